"""The connections of uvicorn, with limits of a request's head, and of how long a client may send or take nothing."""

from __future__ import annotations

import asyncio
import logging
import select
import socket
import struct
import time
from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from headwater.api.limits import HEAD_TOO_LARGE, LIMITS_HIT, STALLED

MAX_HEAD_BYTES: Final = 64 * 1024
"""Of the request line and all headers and trailers. uvicorn has such a limit for its other parser only."""
TOO_LARGE: Final = orjson.dumps(
    {
        "type": f"urn:headwater:problem:{HEAD_TOO_LARGE}",
        "title": "Request Header Fields Too Large",
        "status": 431,
        "detail": f"path, query and headers have more than {MAX_HEAD_BYTES} bytes: send fewer values at once",
        "instance": "",
    }
)
REFUSAL: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/problem+json\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(TOO_LARGE), TOO_LARGE)
)
LINGER_S: Final = 1.0
TCP_INFO_BYTES: Final = 128
BYTES_ACKED_AT: Final = 120
"""Where `tcpi_bytes_acked` is in Linux's `struct tcp_info`: the bytes that the client's machine has acknowledged."""

logger = logging.getLogger(__name__)


class HeadTooLarge(Exception):
    """Ends the parsing of a request."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection.

    waiting_since_s: since when, by the steady clock, the next request is awaited; None while one is answered.
    """

    waiting_since_s: float | None = None
    _refused = False
    _parsed_bytes = 0
    """Of the parts of this request's head that the parser has handed over."""
    _received_bytes = 0
    """Since the parser handed over a part of a body: it may be one endless header, which the parser keeps."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self.waiting_since_s = time.monotonic()

    def data_received(self, data: bytes) -> None:
        """Parse; refuse a head that is too large although it is not complete."""
        if self._refused:
            return
        self._received_bytes += len(data)
        super().data_received(data)
        # what `data` begins with may belong to the body before
        if self._received_bytes > MAX_HEAD_BYTES + len(data) and not self.transport.is_closing():
            self._refuse()

    def on_message_begin(self) -> None:
        """A request begins."""
        self._parsed_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A part of the path and the query."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or after the body a trailer."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Answer the request."""
        self.waiting_since_s, self._received_bytes = None, 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._received_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """All of the request is there."""
        self._received_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request, unless it has come already."""
        super().on_response_complete()
        if self.cycle.response_complete:
            self.waiting_since_s = time.monotonic()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request, or too large."""
        if self._parsed_bytes > MAX_HEAD_BYTES:
            self._refuse()
        else:
            super().send_400_response(msg)

    def _refuse(self) -> None:
        """Answer, and disconnect; only disconnect while another request is answered."""
        self._refused = True
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.close()
            return
        LIMITS_HIT.labels(HEAD_TOO_LARGE).inc()
        self.transport.write(REFUSAL)
        # at once, what the client still sends would reset the connection, and with it the answer
        self.loop.call_later(LINGER_S, self.transport.close)

    def _count(self, size_bytes: int) -> None:
        self._parsed_bytes += size_bytes
        if self._parsed_bytes > MAX_HEAD_BYTES:
            raise HeadTooLarge

    def timeout_keep_alive_handler(self) -> None:
        """Disconnect a client that has sent nothing since its last answer; called once."""
        if not self._has_unread():
            super().timeout_keep_alive_handler()

    def disconnect_if_idle(self, now_s: float, limit_s: float) -> None:
        """Disconnect a client that has sent no complete head for so long."""
        if self.waiting_since_s is not None and now_s - self.waiting_since_s > limit_s and not self._has_unread():
            logger.info("disconnected %s, which has sent no request for %g s", self.client, limit_s)
            self.transport.close()

    def _has_unread(self) -> bool:
        """Whether the client has sent what will be read in a moment.

        After a pause of this process, such as on a busy machine, timers come before what arrived meanwhile.
        """
        descriptor = self.transport.get_extra_info("socket").fileno()
        if descriptor < 0:
            return False
        reading = select.poll()
        reading.register(descriptor, select.POLLIN)
        return bool(reading.poll(0))


class Connection(Protocol):
    """A connection of uvicorn's."""

    transport: asyncio.Transport


class _Taken(NamedTuple):
    """How much a client had taken of all its answers, and for how long it has taken no more."""

    size_bytes: int
    idle_s: float


class StalledClients:
    """Finds the connections of one server with something to send, of which their clients take nothing.

    uvicorn waits for such a client without a limit: a stream before it sends more, and a connection that is to be
    closed until all is sent. A client that reads slowly takes something now and then, and is kept. On systems other
    than Linux nobody is disconnected, because nothing says how much a client has taken.
    """

    def __init__(self, limit_s: float) -> None:
        """limit_s: how long a client may take nothing."""
        self._limit_s = limit_s
        self._taken: dict[Connection, _Taken] = {}
        self._looked_at_s = 0.0

    def disconnect(self, connections: Iterable[Connection], now_s: float) -> None:
        """Disconnect those that have taken nothing for too long; call it about once per second with a steady clock.

        If it was not called for longer, this process was paused, and could not give clients anything to take: that
        time counts as no more than a part of the limit.
        """
        passed_s, self._looked_at_s = min(now_s - self._looked_at_s, self._limit_s / 2), now_s
        taken: dict[Connection, _Taken] = {}
        for connection in connections:
            if not connection.transport.get_write_buffer_size():
                continue
            size_bytes = _acknowledged_bytes(connection.transport)
            known = self._taken.get(connection)
            if size_bytes is None or known is None or known.size_bytes != size_bytes:
                taken[connection] = _Taken(size_bytes or 0, 0.0)
            elif known.idle_s + passed_s < self._limit_s:
                taken[connection] = _Taken(size_bytes, known.idle_s + passed_s)
            else:
                client = connection.transport.get_extra_info("peername")
                logger.warning("disconnected %s, which has read nothing for %g s", client, self._limit_s)
                LIMITS_HIT.labels(STALLED).inc()
                connection.transport.abort()
        self._taken = taken


def _acknowledged_bytes(transport: asyncio.Transport) -> int | None:
    """None if the system does not say: an older kernel gives less, and an emulated one may leave it 0."""
    if not hasattr(socket, "TCP_INFO"):
        return None
    try:
        info = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
    except OSError:
        return None
    if len(info) < TCP_INFO_BYTES:
        return None
    (acknowledged,) = struct.unpack_from("=Q", info, BYTES_ACKED_AT)
    return int(acknowledged) or None
