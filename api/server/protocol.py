"""uvicorn's HTTP protocol, with limits of a request's head: its size, and the time until it is complete."""

from __future__ import annotations

import asyncio
import logging
import select
import time
from typing import Final

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from headwater.api.limits.work import HEAD_TOO_LARGE, LIMITS_HIT

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
