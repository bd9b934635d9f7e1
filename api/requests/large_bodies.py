"""Reads JSON bodies in threads: large ones, and those whose values wait for the store of keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar, TypeVarTuple

from headwater.api.limits import Admission, Threads

LARGE_BYTES: Final = 16 * 1024
"""Larger bodies are read in a thread: reading 500 kB takes some ten milliseconds, in which a loop answers nothing."""
THREADS: Final = 2
WAITING: Final = 200
"""Large bodies that may wait for a thread, each with the bytes that it has."""
PERSONAL_THREADS: Final = 16
"""Of bodies with personal values: they wait for the store of keys, and not for the processor."""

Arguments = TypeVarTuple("Arguments")
Read = TypeVar("Read")


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
