"""A proxy in front of a Kafka broker that knows the framing of its protocol: it holds, loses and repeats requests."""

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
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS = 24
    END_TRANSACTION = 26


class Fault(Enum):
    """What happens to a request."""

    HELD = "the connection breaks before the request arrives, and it arrives when `release` is called"
    ANSWER_LOST = "it arrives, and the connection breaks before the client has the answer"
    REPEATED = "it arrives twice, at once, and the client gets the first answer"


class Step(NamedTuple):
    """One fault of a schedule: the request with this key that comes after `skip` others of its kind."""

    api: Api
    skip: int
    fault: Fault


class KafkaProxy(Proxy):
    """Forwards a local port to a broker at 127.0.0.1:`port`, whose address in answers becomes the proxy's.

    steps: the faults, one after another: the next one is armed when the one before it has happened.
    """

    def __init__(self, port: int, steps: Iterator[Step] | tuple[Step, ...] = ()) -> None:
        self._changed = threading.Condition()
        self._steps = iter(steps)
        self._armed: Step | None = next(self._steps, None)
        self._skipped = 0
        self._held: list[bytes] = []
        self.happened: list[Step] = []
        super().__init__(HOST, port)
        self._real, self._shown = (HOST.encode() + struct.pack(">i", number) for number in (port, self.port))

    def arm(self, *steps: Step) -> None:
        """Let these faults come next, instead of those that did not happen yet."""
        with self._changed:
            self._steps = iter(steps)
            self._armed, self._skipped = next(self._steps, None), 0

    def wait_for(self, fault: Fault) -> None:
        """Return once a fault of this kind has happened."""
        with self._changed:
            is_there = self._changed.wait_for(lambda: any(step.fault is fault for step in self.happened), BOUND_S)
            assert is_there, f"no request was {fault.name}"

    def release(self) -> list[bytes]:
        """Deliver held requests on a connection of their own, in their order; returns the broker's answers."""
        with self._changed:
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
            repeated: set[int] = set()
            back = threading.Thread(target=self._answer, args=(broker, client, lost, repeated), daemon=True)
            back.start()
            for frame in _frames(client):
                key, _, correlation = HEADER.unpack_from(frame, 4)
                match self._fault_of(key):
                    case Fault.HELD:
                        self._note_held(frame)
                        break
                    case Fault.ANSWER_LOST:
                        lost.add(correlation)
                        broker.sendall(frame)
                    case Fault.REPEATED:
                        repeated.add(correlation)
                        broker.sendall(frame * 2)
                    case None:
                        broker.sendall(frame)
            _end(client, broker)
            back.join()

    def _answer(self, broker: socket.socket, client: socket.socket, lost: set[int], repeated: set[int]) -> None:
        answered: set[int] = set()
        with suppress(OSError):
            for frame in _frames(broker):
                (correlation,) = struct.unpack_from(">i", frame, 4)
                if correlation in lost:
                    break
                if correlation in answered:
                    continue
                if correlation in repeated:
                    answered.add(correlation)
                client.sendall(frame.replace(self._real, self._shown))
        _end(client, broker)

    def _fault_of(self, key: int) -> Fault | None:
        with self._changed:
            if self._armed is None or self._armed.api.value != key:
                return None
            if self._skipped < self._armed.skip:
                self._skipped += 1
                return None
            step, self._armed, self._skipped = self._armed, next(self._steps, None), 0
            if step.fault is not Fault.HELD:
                self.happened.append(step)
                self._changed.notify_all()
            else:
                self._holding = step
            return step.fault

    def _note_held(self, frame: bytes) -> None:
        with self._changed:
            self._held.append(frame)
            self.happened.append(self._holding)
            self._changed.notify_all()


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
