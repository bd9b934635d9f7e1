"""The changes of one view: `patches` name the changed rows, and the feed reads them once the store has them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

import orjson

from api.changes.patch_tail import Batch, Touch, Touched
from api.changes.position import write_position
from api.changes.subscription import Change, ResetReason, Subscription
from api.lookups import Lookups
from api.ports import GenerationGone, Generations, Live, Row, ViewReader
from api.query import every_column
from api.reading import KeyReaders
from eventlog.source_positions import SourcePosition
from projections.errors import ProjectionError
from projections.view import View

LOOK_S: Final = 1.0
"""How often a feed checks whether its view has a new generation."""
FIRST_PAUSE_S: Final = 0.005
MAX_PAUSE_S: Final = 0.100
RETRY_S: Final = 1.0
ROWS_AT_ONCE: Final = 500
MAX_WAITING: Final = 50_000
"""Changed rows that may wait for a view's store; with more, the followers get a `reset`."""

logger = logging.getLogger(__name__)


class ViewFeed:
    """The changes of one view, for all its followers; each row is read once for all of them."""

    def __init__(self, view: View, readers: KeyReaders, lookups: Lookups, generations: Generations, live: Live) -> None:
        self.view, self.tag, self.generation = view, live.patch_tag, live.generation
        self.followers: set[Subscription] = set()
        self.delivered: Mapping[int, int] = {}
        """The `patches` offsets up to which the followers got everything; set once `started`."""
        self.started = asyncio.Event()
        self._readers, self._lookups, self._generations = readers, lookups, generations
        self._touched: Touched = {}
        self._overflown = False
        self._has_changes = asyncio.Event()
        self._read_to: Mapping[int, int] = {}

    @property
    def position(self) -> str:
        """The position of a follower that has everything."""
        return write_position(self.generation, self.delivered)

    def take_in(self, batch: Batch) -> None:
        """A batch of patches."""
        if self.tag not in batch.listened:
            return
        if not self.started.is_set():
            self.delivered = batch.start
            self.started.set()
        if touched := batch.touched.get(self.tag):
            self._touched |= touched
            if len(self._touched) > MAX_WAITING:
                self._overflown = True
                self._touched.clear()
            self._has_changes.set()
        self._read_to = batch.end

    async def run(self) -> None:
        """Send every change to the followers, until cancelled."""
        await self.started.wait()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._has_changes.wait()
            self._has_changes.clear()
            touched: Touched = {}
            try:
                await self._look_at_generation()
                touched, self._touched = self._touched, {}
                read_to = self._read_to
                changes = await self.changes(touched)
            except ProjectionError as error:
                logger.warning('changes of "%s" are delayed: %s', self.view.name, error)
                self._touched = touched | self._touched
                self._has_changes.set()
                await asyncio.sleep(RETRY_S)
                continue
            self.delivered = read_to
            for follower in self.followers:
                follower.offer(changes, self.position)
            if self._overflown:
                self._overflown = False
                self._reset_all("too_far_behind")

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
                    await self._generations.live(self.view, fresh=True)
                except _Behind:
                    continue  # a swap may be the reason: read the registry again

        stored = await self._readers.ask(read)
        shown = await self._lookups.show(self.view, list(stored.values()), every_column(self.view))
        rows = dict(zip(stored, shown, strict=True))
        return [_change(key, rows.get(key), touch.position) for key, touch in touched.items()]

    async def _look_at_generation(self) -> None:
        live = await self._generations.live(self.view)
        if live.patch_tag != self.tag:
            self.tag = live.patch_tag
            self._touched.clear()
            self.started.clear()
            await self.started.wait()  # nothing is missed between reading again and the next change
        if live.generation != self.generation:
            self.generation = live.generation
            self._reset_all("generation_changed")

    def _reset_all(self, reason: ResetReason) -> None:
        for follower in self.followers:
            follower.reset(reason)


class _Behind(Exception):
    """The store has not applied the patches within LOOK_S."""


async def _applied(reader: ViewReader, live: Live, wanted: Iterable[Touch]) -> None:
    """Wait until the generation has applied everything in `touched`; raises _Behind after a while."""
    latest: dict[int, int] = {}
    for touch in wanted:
        latest[touch.partition] = max(touch.offset, latest.get(touch.partition, 0))
    pause_s, waited_s = FIRST_PAUSE_S, 0.0
    while True:
        next_offsets = await reader.next_offsets(live)
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
