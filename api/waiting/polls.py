"""What views have applied, read once for all requests that wait for the same view in the same store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from headwater.api.reading import Applied, GenerationGone, Generations, LedgerReader, Live
from headwater.projections.view import View

MIN_INTERVAL_S: Final = 0.004
"""Between the starts of two polls, however many requests begin to wait meanwhile."""
LINGER_S: Final = 0.1
"""How long a poll that nobody waits for stays: those who wait come back for the next one."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A store in which views are looked at. generations: which generation of a view is meant."""

    reader: LedgerReader
    generations: Generations


@dataclass(frozen=True, slots=True)
class Seen:
    """What one poll found.

    guards: of the requested rows. ledger: by partition of `patches`; None if nobody needed it.
    """

    live: Live
    guards: Mapping[str, Applied]
    ledger: Mapping[int, Applied] | None


@dataclass(eq=False, slots=True)
class _Look:
    """A request that waits for a poll, at `due_s` of the loop's clock or earlier."""

    due_s: float
    keys: Set[str]
    needs_ledger: bool
    answer: asyncio.Future[Seen | None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Polls:
    """The polls of one process, one per view and store that is waited for; each is a task that ends by itself."""

    def __init__(self) -> None:
        self._running: dict[tuple[str, str, str], _Poll] = {}

    async def look(
        self, view: View, reading: Reading, within_s: float, keys: Set[str], needs_ledger: bool
    ) -> Seen | None:
        """What the view has applied, read within this time, or earlier for others; None if its generation was dropped.

        keys: of rows whose guards are needed. Raises GenerationMissing or StoreUnavailable.
        """
        name = (view.name, view.tag, reading.reader.name)
        poll = self._running.get(name)
        if poll is None or poll.task.done():
            poll = self._running[name] = _Poll(view, reading)
            poll.task.add_done_callback(lambda _: self._end(name, poll))
        look = _Look(asyncio.get_running_loop().time() + within_s, keys, needs_ledger)
        poll.add(look)
        try:
            return await look.answer
        finally:
            look.answer.cancel()  # a client that left waits no more

    def _end(self, name: tuple[str, str, str], poll: _Poll) -> None:
        if self._running.get(name) is poll:
            del self._running[name]


class _Poll:
    """Reads one view in one store again and again, while somebody waits."""

    def __init__(self, view: View, reading: Reading) -> None:
        self._view, self._reading = view, reading
        self._looks: list[_Look] = []
        self._added = asyncio.Event()
        self.task = asyncio.create_task(self._run())

    def add(self, look: _Look) -> None:
        """Answer this one with the next poll."""
        self._looks.append(look)
        self._added.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        earliest_s = loop.time()
        looks: list[_Look] = []
        try:
            while True:
                self._looks = [each for each in self._looks if not each.answer.done()]
                due_s = min((each.due_s for each in self._looks), default=None)
                at_s = loop.time() + LINGER_S if due_s is None else max(due_s, earliest_s)
                if due_s is None or at_s > loop.time():
                    self._added.clear()
                    # one that came just as the wait ended is there, although the wait was not woken by it
                    if not await self._was_added_by(at_s) and due_s is None and not self._looks:
                        return
                    continue
                earliest_s = loop.time() + MIN_INTERVAL_S
                looks, self._looks = self._looks, []
                await self._answer(looks)
        finally:  # the application ends
            for each in (*looks, *self._looks):
                each.answer.cancel()

    async def _was_added_by(self, at_s: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout_at(at_s):
                return await self._added.wait()
        return False

    async def _answer(self, looks: list[_Look]) -> None:
        try:
            seen = await self._read(looks)
        except GenerationGone:
            seen = None
        except Exception as error:  # noqa: BLE001 - each of those who wait raises it
            for each in looks:
                if not each.answer.done():
                    each.answer.set_exception(error)
            return
        for each in looks:
            if not each.answer.done():
                each.answer.set_result(seen)

    async def _read(self, looks: list[_Look]) -> Seen:
        live, reader = await self._reading.generations.live(self._view), self._reading.reader
        keys = sorted(set().union(*(each.keys for each in looks)))
        guards, ledger = await asyncio.gather(
            reader.guards(live, keys) if keys else _nothing(),
            reader.ledger(live) if any(each.needs_ledger for each in looks) else _nothing(),
        )
        return Seen(live, guards or {}, ledger)


async def _nothing() -> None: ...
