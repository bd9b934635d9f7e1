"""A proxy in front of a Kafka broker that knows the framing of its protocol: it holds requests and loses answers."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import Enum
from typing import Final, NamedTuple

from tests.support.proxy import Proxy
from tests.support.waiting import BOUND_S

HOST: Final = "127.0.0.1"
HEADER: Final = struct.Struct(">hhi")
"""Of a request: API key, API version, correlation id."""


class Api(Enum):
    """Requests of a transaction, by their API keys."""

    PRODUCE = 0
    INIT_PRODUCER = 22
    ADD_PARTITIONS = 24
    END_TRANSACTION = 26


class Fault(Enum):
    """What happens to a request."""

    HELD = "the connection breaks before the request arrives, and it arrives when `release` is called"
    ANSWER_LOST = "it arrives, and the connection breaks before the client has the answer"
    TWICE = "it arrives, and once more on a connection of its own when `release` is called"


class Step(NamedTuple):
    """One fault of a schedule: the request with this key that comes after `skip` others of its kind."""

    api: Api
    skip: int
    fault: Fault


class KafkaProxy(Proxy):
    """Forwards a local port to a broker at 127.0.0.1:`port`, whose address in answers becomes the proxy's."""

    def __init__(self, port: int) -> None:
        self._changing = threading.Lock()
        self._steps: list[Step] = []
        self._skipped = 0
        self._held: list[bytes] = []
        self.happened: list[Step] = []
        super().__init__(HOST, port)
        self._real, self._shown = (HOST.encode() + struct.pack(">i", number) for number in (port, self.port))

    def arm(self, *steps: Step) -> None:
        """Let these faults come next, one after another, instead of those that did not happen yet."""
        with self._changing:
            self._steps, self._skipped = list(steps), 0

    def release(self) -> list[bytes]:
        """Deliver requests that are kept on a connection each, in their order; returns the broker's answers."""
        with self._changing:
            held, self._held = self._held, []
        answers = []
        for request in held:
            with socket.create_connection((HOST, self._server[1]), timeout=BOUND_S) as broker:
                broker.sendall(request)
                answers.append(next(_frames(broker), b""))
        return answers

    def serve(self, client: socket.socket) -> None:
        """Forward a connection frame by frame."""
        with client, suppress(OSError), socket.create_connection(self._server) as broker:
            lost: set[int] = set()
            """Correlation ids whose answers do not reach the client: with the first of them the connection breaks."""
            back = threading.Thread(target=self._answer, args=(broker, client, lost), daemon=True)
            back.start()
            for frame in _frames(client):
                key, _, correlation = HEADER.unpack_from(frame, 4)
                fault = self._fault_of(key, frame)
                if fault is Fault.HELD:
                    break
                if fault is Fault.ANSWER_LOST:
                    lost.add(correlation)
                broker.sendall(frame)
            _end(client, broker)
            back.join()

    def _answer(self, broker: socket.socket, client: socket.socket, lost: set[int]) -> None:
        with suppress(OSError):
            for frame in _frames(broker):
                (correlation,) = struct.unpack_from(">i", frame, 4)
                if correlation in lost:
                    break
                client.sendall(frame.replace(self._real, self._shown))
        _end(client, broker)

    def _fault_of(self, key: int, frame: bytes) -> Fault | None:
        """What happens to a request with this API key; one that arrives later is kept for `release`."""
        with self._changing:
            if not self._steps or self._steps[0].api.value != key:
                return None
            if self._skipped < self._steps[0].skip:
                self._skipped += 1
                return None
            step, self._skipped = self._steps.pop(0), 0
            self.happened.append(step)
            if step.fault is not Fault.ANSWER_LOST:
                self._held.append(frame)
            return step.fault


def _frames(source: socket.socket) -> Iterator[bytes]:
    """What comes, frame by frame, each with its length before it."""
    read: Callable[[int], bytes] = source.makefile("rb").read
    with suppress(OSError):
        while len(length := read(4)) == 4:
            body = read(int.from_bytes(length))
            if len(body) < int.from_bytes(length):
                return
            yield length + body


def _end(*sockets: socket.socket) -> None:
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
