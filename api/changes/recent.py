"""The latest touches of a view's rows, for followers that begin or return, and up to where all stores have them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Final, cast

from headwater.api.changes.patch_tail import Touched, patches_of, touches
from headwater.api.changes.subscription import ResetReason
from headwater.api.limits import Threads
from headwater.api.reading import GenerationGone, Live, Searcher, ViewReader
from headwater.eventlog import topics
from headwater.eventlog.ports import EventLog
from headwater.projections.errors import StoreUnavailable
from headwater.projections.view import View

MAX_ROWS: Final = 10_000
"""Rows whose latest touch is kept."""
MAX_CATCH_UP: Final = 200_000
"""Offsets of `patches` that are read again for a follower."""
ASK_S: Final = 1.0

Offsets = Mapping[int, int]
"""Offsets of `patches`, by partition."""


class RecentTouches:
    """A ring buffer: all touches of a view from `start` on, of each row the latest. tag: of the view's patches."""

    def __init__(self, log: EventLog, threads: Threads, view: View, partitions: int) -> None:
        """partitions: of `patches`."""
        self._log, self._threads, self._view, self._partitions = log, threads, view, partitions
        self.start: Offsets = {}
        self._touched: Touched = {}

    def restart(self, start: Offsets) -> None:
        """Keep nothing of what was before."""
        self.start, self._touched = start, {}

    def add(self, touched: Touched) -> None:
        """Add later touches; the earliest ones go if there are too many."""
        for key, touch in touched.items():
            if touch.offset >= self.start[touch.partition]:  # else it was restarted meanwhile, or no patch touched it
                self._touched.pop(key, None)
                self._touched[key] = touch
        start = dict(self.start)
        while len(self._touched) > MAX_ROWS:
            gone = self._touched.pop(next(iter(self._touched)))
            start[gone.partition] = max(start[gone.partition], gone.offset + 1)
        self.start = start

    def since(self, start: Offsets) -> Touched | None:
        """The rows touched from there on; None if they are not known."""
        if any(self.start[partition] > offset for partition, offset in start.items()):
            return None
        return {key: touch for key, touch in self._touched.items() if touch.offset >= start[touch.partition]}

    async def reach(self, tag: str, start: Offsets, end: Offsets) -> ResetReason | None:
        """Begin no later than at `start`: what lies before is read again if it is not much. Returns why it cannot.

        end: up to where `patches` was read. Raises LogUnavailable.
        """
        first = self.start
        if all(first[partition] <= offset <= end[partition] for partition, offset in start.items()):
            return None
        touched_now = await self._threads.run_while_wanted(self._read, tag, start, first)
        if isinstance(touched_now, str):
            return touched_now
        if any(self.start[partition] > offset for partition, offset in first.items()):
            return "too_far_behind"  # it has moved on meanwhile
        touched = {key: touch for key, touch in touched_now.items() if key not in self._touched} | self._touched
        if len(touched) > MAX_ROWS:
            return "too_far_behind"
        self._touched = touched
        self.start = {partition: min(offset, start[partition]) for partition, offset in self.start.items()}
        return None

    def _read(self, unwanted: threading.Event, tag: str, start: Offsets, end: Offsets) -> Touched | ResetReason:
        for partition, offset in start.items():
            if offset < self._log.first(topics.PATCHES, partition):
                return "position_gone"
            if offset > end[partition] and offset > self._log.end(topics.PATCHES, partition):
                return "position_gone"
        if sum(max(0, end[partition] - offset) for partition, offset in start.items()) > MAX_CATCH_UP:
            return "too_far_behind"
        touched: Touched = {}
        for partition, offset in start.items():
            if offset < end[partition]:
                read = self._log.read(topics.PATCHES, partition, offset, end[partition])
                records = takewhile(lambda _: not unwanted.is_set(), read)  # else the follower has left
                touched |= touches(patches_of(records, {tag: self._view}, self._partitions)).get(tag, {})
        return touched


async def applied_by_all(readers: Sequence[ViewReader], live: Live) -> Offsets | None:
    """Up to where whoever reads the generation now finds everything, in any store; None if a store does not answer."""
    try:
        async with asyncio.timeout(ASK_S):
            positions = await asyncio.gather(*(_applied_by(reader, live) for reader in readers))
    except (StoreUnavailable, TimeoutError):
        return None
    lowest: dict[int, int] = {}
    for next_offsets in positions:
        for partition, offset in next_offsets.items():
            lowest[partition] = min(offset, lowest.get(partition, offset))
    return lowest


async def _applied_by(reader: ViewReader, live: Live) -> Offsets:
    try:
        next_offsets = await reader.next_offsets(live)
        if reader.needs_refresh:
            await cast(Searcher, reader).refresh(live)  # else lists and searches may lack what was applied
    except GenerationGone:
        return {}  # there are no rows that could be old
    return next_offsets
