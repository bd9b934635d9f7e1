"""What lies before the changes that a feed follows: earlier patches, and up to where all stores have applied them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Final, cast

from headwater.api.changes.patch_tail import Touched, patches_of, touches
from headwater.api.changes.subscription import MAX_CHANGES, ResetReason
from headwater.api.limits.work import Threads
from headwater.api.ports import GenerationGone, Live, Searcher, ViewReader
from headwater.eventlog import topics
from headwater.eventlog.ports import EventLog
from headwater.projections.errors import StoreUnavailable

MAX_CATCH_UP: Final = 200_000
"""Offsets of `patches` that are read again for a follower."""
ASK_S: Final = 1.0

Offsets = Mapping[int, int]
"""Offsets of `patches`, by partition."""


class EarlierPatches:
    """Reads a limited part of `patches` again, in two threads."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._threads = Threads(2, "catch-up")

    def close(self) -> None:
        """Stop reading."""
        self._threads.close()

    async def touched(
        self, tag: str, start: Offsets, end: Offsets, keys: frozenset[str] | None = None
    ) -> Touched | ResetReason:
        """The rows touched from `start` to `end`, else why they are unknown; raises LogUnavailable."""
        if start == end:
            return {}
        return await self._threads.run_while_wanted(self._read, tag, start, end, keys)

    def _read(
        self, unwanted: threading.Event, tag: str, start: Offsets, end: Offsets, keys: frozenset[str] | None
    ) -> Touched | ResetReason:
        for partition, offset in start.items():
            if offset < self._log.first(topics.PATCHES, partition):
                return "position_gone"
            if offset > end[partition] and offset > self._log.end(topics.PATCHES, partition):
                return "position_gone"
        if sum(max(0, end[partition] - offset) for partition, offset in start.items()) > MAX_CATCH_UP:
            return "too_far_behind"
        found: Touched = {}
        for partition, offset in start.items():
            read = self._log.read(topics.PATCHES, partition, offset, end[partition])
            records = takewhile(lambda _: not unwanted.is_set(), read)  # else the follower has left
            for key, touch in touches(patches_of(records, frozenset({tag}))).get(tag, {}).items():
                if keys is None or key in keys:
                    found[key] = touch
        return found if len(found) <= MAX_CHANGES else "too_far_behind"


async def applied_by_all(readers: Sequence[ViewReader], live: Live) -> Offsets | None:
    """Up to where whoever reads the generation now finds everything, in any store; None if a store does not answer."""
    try:
        async with asyncio.timeout(ASK_S):
            found = await asyncio.gather(*(_applied_by(reader, live) for reader in readers))
    except (StoreUnavailable, TimeoutError):
        return None
    lowest: dict[int, int] = {}
    for next_offsets in found:
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
