"""The changes of one view: `patches` name the changed rows, and the feed reads them once the store has them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

import orjson

from api.changes.earlier import EarlierPatches, Offsets, applied_by_all
from api.changes.patch_tail import Batch, Touch, Touched
from api.changes.position import write_position
from api.changes.subscription import MAX_CHANGES, Change, ResetReason, Subscription
from api.lookups import Lookups
from api.ports import GenerationGone, Generations, Live, Row, ViewReader
from api.query import every_column
from api.reading import KeyReaders
from eventlog.errors import EventLogError
from eventlog.source_positions import SourcePosition
from projections.errors import GenerationMissing, ProjectionError
from projections.table.declared_stores import Elasticsearch
from projections.view import View

LOOK_S: Final = 1.0
"""How often a feed checks whether its view has a new generation."""
FIRST_PAUSE_S: Final = 0.005
MAX_PAUSE_S: Final = 0.100
RETRY_S: Final = 1.0
LOOK_BACK_S: Final = 5.0
"""How often a feed checks whether a store that was far behind has come near."""
ROWS_AT_ONCE: Final = 500
MAX_WAITING: Final = 50_000
"""Changed rows that may wait for a view's store; with more, the followers get a `reset`."""

logger = logging.getLogger(__name__)


class Missing(NamedTuple):
    """Patches whose touches are not in the feed; start: None if they are too many, so that followers read again."""

    start: Offsets | None
    end: Offsets


class ViewFeed:
    """The changes of one view, for all its followers; each row is read once for all of them.

    Where it begins, stores may not have applied what lies before, so it begins at the earliest patch that one of them
    has not applied.
    """

    def __init__(
        self,
        view: View,
        readers: KeyReaders,
        lookups: Lookups,
        generations: Generations,
        live: Live,
        earlier: EarlierPatches,
    ) -> None:
        self.view, self.tag, self.generation = view, live.patch_tag, live.generation
        self.followers: set[Subscription] = set()
        self.delivered: Offsets = {}
        """The `patches` offsets up to which everything that was not missing was sent; set once `started`."""
        self.complete: Offsets = {}
        """Those up to which followers have everything; behind `delivered` while something is missing."""
        self.started = asyncio.Event()
        self._readers, self._lookups, self._generations, self._earlier = readers, lookups, generations, earlier
        self._touched: Touched = {}
        self._missing: Missing | None = None
        self._look_back_at = 0.0
        self._recent: Touched = {}
        self._recent_from: Offsets | None = None
        """From here to `complete`, all touches are in `_recent`."""
        self._has_changes = asyncio.Event()
        self._followed = asyncio.Event()
        self._read_to: Offsets = {}

    @property
    def position(self) -> str:
        """The position of a follower that has everything."""
        return write_position(self.generation, self.complete)

    def take_in(self, batch: Batch) -> None:
        """A batch of patches."""
        if self.tag not in batch.listened:
            return
        if not self._followed.is_set():
            self.delivered = batch.start
            self._followed.set()
        elif any(batch.start[partition] > offset for partition, offset in self._read_to.items()):
            self._touched.clear()  # retention has deleted patches that nobody read
            self._miss(None)
        self._read_to = batch.end
        if touched := batch.touched.get(self.tag):
            self._touched |= touched
            if len(self._touched) > MAX_WAITING:
                self._touched.clear()
                self._miss(None)
            self._has_changes.set()

    async def run(self) -> None:
        """Send every change to the followers, until cancelled."""
        self._has_changes.set()  # begin at once
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._has_changes.wait()
            self._has_changes.clear()
            touched: Touched = {}
            try:
                await self._look_at_generation()
                await self._find_missing()
                touched, self._touched = self._touched, {}
                read_to = self._read_to
                changes = await self.changes(touched)
            except (EventLogError, ProjectionError) as error:
                logger.warning('changes of "%s" are delayed: %s', self.view.name, error)
                self._touched = touched | self._touched
                self._has_changes.set()
                await asyncio.sleep(RETRY_S)
                continue
            self.delivered = read_to
            if self._missing is None:
                self._remember(touched, read_to)
                self.complete = read_to
            for follower in self.followers:
                follower.offer(changes, self.position)

    async def changes(self, touched: Touched) -> list[Change]:
        """The touched rows, once the store has applied the patches that touched them; raises ProjectionError."""
        if not touched:
            return []

        async def read(reader: ViewReader) -> Mapping[str, Row]:
            rows: dict[str, Row] = {}
            while True:
                live = await self._generations.live(self.view)
                try:
                    await _applied(reader, live, touched.values())
                    keys = list(touched)
                    for start in range(0, len(keys), ROWS_AT_ONCE):
                        rows |= await reader.get_many(live, keys[start : start + ROWS_AT_ONCE])
                    return rows
                except GenerationGone:
                    now = await self._generations.live(self.view, fresh=True)
                    if (now.patch_tag, now.generation) == (live.patch_tag, live.generation):
                        raise  # this store has lost it: another one may have it
                except _Behind:
                    continue  # a swap may be the reason: read the registry again

        try:
            stored = await self._readers.ask(read)
        except GenerationGone as error:
            raise GenerationMissing(self.view.name, self.generation) from error
        shown = await self._lookups.show(self.view, list(stored.values()), every_column(self.view))
        rows = dict(zip(stored, shown, strict=True))
        return [_change(key, rows.get(key), touch.position) for key, touch in touched.items()]

    async def beginning(self) -> Offsets | None:
        """From where on a follower that reads rows now needs the changes; None if a store does not answer."""
        stores = self._readers.stores
        if len(stores) == 1 and stores[0].name != Elasticsearch.name:
            return self.complete  # what was sent was read from this store
        applied = await applied_by_all(stores, await self._generations.live(self.view))
        return None if applied is None else _until(applied, self.complete)

    async def touched(self, start: Offsets, end: Offsets, keys: frozenset[str] | None) -> Touched | ResetReason:
        """The rows touched from `start` to `end`, else why they are unknown; raises LogUnavailable."""
        first = self._recent_from
        if first is None or not all(first[each] <= offset <= end[each] for each, offset in start.items()):
            return await self._earlier.touched(self.tag, start, end, keys)
        return {
            key: touch
            for key, touch in self._recent.items()
            if start[touch.partition] <= touch.offset < end[touch.partition] and (keys is None or key in keys)
        }

    async def _look_at_generation(self) -> None:
        live = await self._generations.live(self.view)
        if self.started.is_set() and (live.patch_tag, live.generation) == (self.tag, self.generation):
            return
        if live.patch_tag != self.tag:
            self.tag = live.patch_tag
            self._touched.clear()
            self._followed.clear()
        applied = await applied_by_all(self._readers.stores, live)  # before followers read rows
        await self._followed.wait()
        self.generation = live.generation
        self.complete = dict.fromkeys(self._read_to, 0) if applied is None else _until(applied, self._read_to)
        self._miss(None if applied is None else self.complete)
        if self.started.is_set():
            self._reset_all("generation_changed")
        self.started.set()

    def _miss(self, start: Offsets | None) -> None:
        """Find everything from `start` up to here."""
        self._missing, self._look_back_at, self._recent_from = Missing(start, self._read_to), 0.0, None

    async def _find_missing(self) -> None:
        """Add the missing touches. If they are too many, or unknown, followers read again once the stores are near."""
        missing = self._missing
        if missing is None or time.monotonic() < self._look_back_at:
            return
        start, end = missing
        found = "too_far_behind" if start is None else await self._earlier.touched(self.tag, start, end)
        must_reset = isinstance(found, str)
        if must_reset:
            applied = await applied_by_all(self._readers.stores, await self._generations.live(self.view))
            end = self._read_to  # what was sent meanwhile too: a store that is read again may not have applied it
            start = None if applied is None else _until(applied, end)
            found = "too_far_behind" if start is None else await self._earlier.touched(self.tag, start, end)
        if self._missing is not missing:
            return  # more was dropped meanwhile
        if start is None or isinstance(found, str):
            self._missing, self._look_back_at = Missing(None, end), time.monotonic() + LOOK_BACK_S
            return
        self._missing, self._touched = None, found | self._touched
        if must_reset:
            self.complete = start
            self._reset_all("too_far_behind")

    def _remember(self, touched: Touched, read_to: Offsets) -> None:
        """Keep the latest touches, for followers that begin while a store has not applied them."""
        if self._recent_from is None:
            self._recent, self._recent_from = {}, self.complete
        self._recent |= touched
        if len(self._recent) > MAX_CHANGES:
            self._recent, self._recent_from = {}, read_to

    def _reset_all(self, reason: ResetReason) -> None:
        for follower in self.followers:
            follower.reset(reason, self.position)


class _Behind(Exception):
    """The store has not applied the patches within LOOK_S."""


async def _applied(reader: ViewReader, live: Live, wanted: Iterable[Touch]) -> None:
    """Wait until the generation has applied everything in `wanted`; raises _Behind after a while, or GenerationGone."""
    latest: dict[int, int] = {}
    for touch in wanted:
        latest[touch.partition] = max(touch.offset, latest.get(touch.partition, 0))
    pause_s, waited_s = FIRST_PAUSE_S, 0.0
    while True:
        next_offsets = await reader.next_offsets(live)
        if not next_offsets:
            raise GenerationGone(f"{reader.name} has no ledger")
        if all(next_offsets.get(partition, 0) > offset for partition, offset in latest.items()):
            return
        if waited_s > LOOK_S:
            raise _Behind
        await asyncio.sleep(pause_s)
        waited_s += pause_s
        pause_s = min(2 * pause_s, MAX_PAUSE_S)


def _change(key: str, row: Row | None, position: SourcePosition | None) -> Change:
    document = {"key": key, "row": row, "position": None if position is None else str(position)}
    return Change(key, b"event: change\ndata: " + orjson.dumps(document) + b"\n")


def _until(offsets: Offsets, end: Offsets) -> Offsets:
    """`offsets`, but none after `end`; `end` if there is none."""
    return {partition: min(offset, offsets.get(partition, offset)) for partition, offset in end.items()}
