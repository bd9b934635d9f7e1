"""JSON bodies: bounded in values and levels, and read in threads if they are large."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar, TypeVarTuple

import orjson

from api.admission import Admission
from api.errors import TooComplex
from api.reads.threads import Threads

LARGE_BYTES: Final = 16 * 1024
"""Larger bodies are read in a thread: reading 500 kB takes some ten milliseconds, in which a loop answers nothing."""
MAX_LEVELS: Final = 100
"""Of arrays and objects: what walks through a body calls itself once per level."""
THREADS: Final = 2
WAITING: Final = 200
"""Large bodies that may wait for a thread, each with the bytes that it has."""

Arguments = TypeVarTuple("Arguments")
Read = TypeVar("Read")


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
        for each in level:
            if isinstance(each, dict):
                inner += each.values()
            elif isinstance(each, list):
                inner += each
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

    async def open(self) -> None:
        """Nothing to do: the threads are started when they are needed."""

    async def close(self) -> None:
        """End the threads."""
        self._threads.close()

    async def read(self, size_bytes: int, read: Callable[[*Arguments], Read], *args: *Arguments) -> Read:
        """The result of `read`, for a body of this size; raises what it raises, or Overloaded."""
        if size_bytes <= LARGE_BYTES:
            return read(*args)
        async with self._admission.place():
            return await self._threads.run(read, *args)
