"""Newline-delimited JSON (NDJSON): reads lines of a body as it arrives, and writes the answer meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

import orjson
from fastapi import Request, Response
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from headwater.api.errors import BodyIncomplete, MalformedJson, MalformedLine
from headwater.api.limits import Limits, Turns
from headwater.api.requests.body import check_values
from headwater.commands.errors import TooLarge

MEDIA_TYPE: Final = "application/x-ndjson"

SLICE_BYTES: Final = 16 * 1024
SLICE_LINES: Final = 16
"""The lines that are split, parsed and started per turn of the event loop, for all requests together: about 4 ms."""

Write = Callable[[bytes], Awaitable[None]]

logger = logging.getLogger(__name__)


class Line(NamedTuple):
    """One line that is not blank; number: from 1, including blank lines. content: None if it is too long."""

    number: int
    content: bytes | None
    size_bytes: int

    def checked(self, limits: Limits) -> bytes:
        """The content, if it has not too many bytes or values; raises TooLarge or TooComplex."""
        if self.content is None:
            raise TooLarge(self.size_bytes, limits.body_bytes)
        check_values(self.content, limits.body_values)
        return self.content

    def read(self, limits: Limits) -> dict[str, Any]:
        """The JSON object of the line; raises TooLarge, TooComplex, MalformedJson or MalformedLine."""
        try:
            document = orjson.loads(self.checked(limits))
        except orjson.JSONDecodeError as error:
            raise MalformedJson(error.msg, self.number, error.colno) from error
        if not isinstance(document, dict):
            raise MalformedLine(self.number, [{"loc": (), "msg": "is not a JSON object: send one per line"}])
        return document

    def document(self) -> Any:
        """The value of the line, None if it is not valid JSON."""
        try:
            return orjson.loads(self.content or b"")
        except orjson.JSONDecodeError:
            return None


class LineSplitter:
    """Splits chunks into lines; characters beyond the limit are counted, not kept."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._parts: list[bytes] = []
        self._size_bytes = 0
        self._number = 0

    def feed(self, chunk: bytes) -> list[Line]:
        """The lines that end in `chunk`."""
        *ends, rest = chunk.split(b"\n")
        lines = [line for end in ends if (line := self._finish(end)) is not None]
        self._hold(rest)
        return lines

    def end(self) -> list[Line]:
        """The last line, if no newline ends it."""
        line = self._finish(b"") if self._size_bytes else None
        return [] if line is None else [line]

    def _hold(self, part: bytes) -> None:
        self._size_bytes += len(part)
        if self._size_bytes > self._limit_bytes:
            self._parts.clear()
        elif part:
            self._parts.append(part)

    def _finish(self, part: bytes) -> Line | None:
        self._hold(part)
        self._number += 1
        size_bytes, content = self._size_bytes, b"".join(self._parts)
        self._parts, self._size_bytes = [], 0
        if size_bytes > self._limit_bytes:
            return Line(self._number, None, size_bytes)
        return Line(self._number, content, size_bytes) if content and not content.isspace() else None


def largest_bytes(lines: Sequence[Line]) -> int:
    """The size of the largest line that is kept."""
    return max(len(line.content or b"") for line in lines)


async def read_lines(
    request: Request, limits: Limits, turns: Turns, at_once: int = SLICE_LINES
) -> AsyncIterator[Sequence[Line]]:
    """The lines of the body as they arrive, at most `at_once` per turn of `turns`.

    Raises ClientDisconnect if the body is incomplete, and BodyIncomplete if no more of it arrives in time.
    """
    splitter = LineSplitter(limits.body_bytes)
    async for chunk in _chunks(request, limits.body_s):
        for start in range(0, len(chunk), SLICE_BYTES):
            await turns.next()
            lines = splitter.feed(chunk[start : start + SLICE_BYTES])
            for first in range(0, len(lines), at_once):
                if first:
                    await turns.next()
                yield lines[first : first + at_once]
    if lines := splitter.end():
        yield lines


async def _chunks(request: Request, within_s: float) -> AsyncIterator[bytes]:
    stream = request.stream()
    while True:
        try:
            async with asyncio.timeout(within_s):
                chunk = await anext(stream, None)
        except TimeoutError as error:
            raise BodyIncomplete(within_s) from error
        if chunk is None:
            return
        yield chunk


class DuplexResponse(Response):
    """An NDJSON answer that is written while the request is read.

    exchange: reads the request and calls `write`, which waits if the client reads slowly. If the client disconnects, it
    ends silently.
    """

    media_type = MEDIA_TYPE

    def __init__(self, exchange: Callable[[Write], Awaitable[None]]) -> None:
        super().__init__()
        self._exchange = exchange

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as ASGI."""
        del self.headers["content-length"]
        # only with the first line: until the body is read, a client may wait for "100 Continue"
        waiting: list[Message] = [{"type": "http.response.start", "status": 200, "headers": self.raw_headers}]

        async def write(content: bytes, more: bool = True) -> None:
            while waiting:
                await send(waiting.pop())
            await send({"type": "http.response.body", "body": content, "more_body": more})

        try:
            await self._exchange(write)
            await write(b"", more=False)
        except ClientDisconnect:
            logger.info("%s: the client disconnected", scope["path"])
