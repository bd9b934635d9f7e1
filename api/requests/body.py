"""Reads and checks JSON bodies: bounded in bytes, values and levels, and in threads if that takes long."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar, TypeVarTuple

import orjson
from fastapi import Request

from headwater.api.errors import BodyIncomplete, MalformedJson, TooComplex, UnsupportedMedia
from headwater.api.limits import Admission, Limits, Place, Threads
from headwater.commands.errors import TooLarge

JSON_TYPE: Final = re.compile(r"application/(?:[a-z0-9.-]+\+)?json")
MAX_LEVELS: Final = 100
"""Of arrays and objects: what walks through a body calls itself once per level."""
LARGE_BYTES: Final = 16 * 1024
"""Larger bodies are read in a thread: reading 500 kB takes some ten milliseconds, in which a loop answers nothing."""
THREADS: Final = 2
WAITING: Final = 200
"""Large bodies that may wait for a thread, each with the bytes that it has."""
PERSONAL_THREADS: Final = 16
"""Of bodies with personal values: they wait for the store of keys, and not for the processor."""

Arguments = TypeVarTuple("Arguments")
Read = TypeVar("Read")


async def read_json(request: Request, limits: Limits, place: Place) -> bytes:
    """The body, as it is, held by this place; stops reading at the limit. Parse it with `parse_json`.

    Raises UnsupportedMedia, TooLarge, BodyIncomplete, or Overloaded if bodies hold too much.
    """
    check_media(request)
    return await read_body(request, limits.body_s, limits.body_bytes, place)


async def read_body(request: Request, within_s: float, limit_bytes: int, place: Place) -> bytes:
    """Likewise, a body of any type: every body is read here, or as lines."""
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length[:19]) > limit_bytes:
        raise TooLarge(int(length[:19]), limit_bytes)
    chunks, size_bytes = [], 0
    try:
        async with asyncio.timeout(within_s):
            async for chunk in request.stream():
                size_bytes += len(chunk)
                if size_bytes > limit_bytes:
                    raise TooLarge(size_bytes, limit_bytes)
                place.take(len(chunk))
                chunks.append(chunk)
    except TimeoutError as error:
        raise BodyIncomplete(within_s) from error
    return b"".join(chunks)


def parse_json(request: Request, body: bytes, limits: Limits) -> Any:
    """The value of a body, which the request's state keeps, so that a problem document can point to invalid places.

    Raises MalformedJson, or TooComplex if it has too many values.
    """
    check_values(body, limits.body_values)
    try:
        request.state.body = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise MalformedJson(error.msg, error.lineno, error.colno) from error
    return request.state.body


def check_media(request: Request, expected: str = "application/json") -> None:
    """Refuse a body with another media type than `expected`, in another encoding than UTF-8, or compressed.

    Raises UnsupportedMedia.
    """
    media, _, parameters = request.headers.get("content-type", "").lower().partition(";")
    media = media.strip()
    if not (JSON_TYPE.fullmatch(media) if expected == "application/json" else media == expected):
        raise UnsupportedMedia(media or "without a content type", expected)
    charset = re.search(r"charset=\"?([^\s\";]+)", parameters)
    if charset is not None and charset[1] not in ("utf-8", "utf8"):
        raise UnsupportedMedia(f"{media} in {charset[1]}", f"{expected} in utf-8")
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise UnsupportedMedia(f"compressed with {encoding}", expected)


def check_values(body: bytes, limit: int) -> None:
    """Refuse a JSON text with more values than `limit`, or more than MAX_LEVELS levels; raises TooComplex.

    One call of pydantic holds up all of the process, so its work is bounded before. A text that is not valid JSON is
    left to its reader.
    """
    opened = body.count(b"[") + body.count(b"{")
    # nearly always: no text needs to be read to see that it is small
    if opened <= MAX_LEVELS and opened + body.count(b",") < limit:
        return
    with suppress(orjson.JSONDecodeError):
        _check(orjson.loads(body), limit)


def _check(document: Any, limit: int) -> None:
    """Level by level, because each call of a function of its own would be a level of Python's."""
    level, values = [document], 0
    for _ in range(MAX_LEVELS + 1):
        values += len(level)
        if values > limit:
            raise TooComplex("values", limit)
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner += item.values()
            elif isinstance(item, list):
                inner += item
            if values + len(inner) > limit:
                raise TooComplex("values", limit)
        if not inner:
            return
        level = inner
    raise TooComplex("levels", MAX_LEVELS)


class Bodies:
    """Reads bodies of one application, large ones in threads; a resource of it."""

    def __init__(self) -> None:
        self._threads = Threads(THREADS, "bodies")
        self._admission = Admission("large bodies", THREADS, WAITING)
        self._personal = Threads(PERSONAL_THREADS, "personal-bodies")
        self._admission_of_personal = Admission("bodies with personal values", PERSONAL_THREADS, 1_000)

    def close(self) -> None:
        """End the threads."""
        self._threads.close()
        self._personal.close()

    async def read(
        self, size_bytes: int, read: Callable[[*Arguments], Read], *args: *Arguments, waits: bool = False
    ) -> Read:
        """The result of `read`, for a body of this size; raises what it raises, or Overloaded.

        waits: whether it may wait for a server, such as the store of keys.
        """
        if waits:
            async with self._admission_of_personal.place():
                return await self._personal.run(read, *args)
        if size_bytes <= LARGE_BYTES:
            return read(*args)
        async with self._admission.place():
            return await self._threads.run(read, *args)
