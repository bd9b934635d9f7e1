"""Admits work: a bounded number of pieces of one kind at once, and a bounded number that waits for its turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from headwater.api.errors import Overloaded


class Admission:
    """Work of one kind in one process; what comes first is admitted first."""

    def __init__(self, what: str, at_once: int, waiting: int) -> None:
        """what: names the work, in the plural. waiting: pieces that may wait for those that run."""
        self._what, self.at_once, self._limit = what, at_once, at_once + waiting
        self._places = asyncio.Semaphore(at_once)
        self._inside = 0

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Run the body once it is its turn; raises Overloaded if too many others wait."""
        if self._inside >= self._limit:
            raise Overloaded(self._what, self._limit)
        self._inside += 1
        try:
            async with self._places:
                yield
        finally:
            self._inside -= 1


@dataclass(frozen=True)
class Work:
    """The kinds of work of one process that take long or much memory.

    scans: pages of the whole log. folds: states of streams. reads: queries of views. bodies: requests with one
    body, until they are answered. many_lines: requests with many lines, each with one line in memory.
    """

    scans: Admission = field(default_factory=partial(Admission, "pages of all streams", 2, 30))
    folds: Admission = field(default_factory=partial(Admission, "states of streams", 2, 30))
    reads: Admission = field(default_factory=partial(Admission, "reads of views", 16, 500))
    bodies: Admission = field(default_factory=partial(Admission, "requests with a body", 2_000, 0))
    many_lines: Admission = field(default_factory=partial(Admission, "requests with many lines", 200, 0))
