"""The changes of one view: `patches` name the changed rows, and the feed reads them once the store has them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Hashable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from headwater.api.changes.changed_rows import ChangedRows, size_bytes
from headwater.api.changes.earlier import EarlierPatches, Offsets, applied_by_all
from headwater.api.changes.erasures import Erasures
from headwater.api.changes.expired_rows import ExpiredRows
from headwater.api.changes.own_rows import OwnRows
from headwater.api.changes.patch_tail import Batch, Touched
from headwater.api.changes.position import FollowerPosition
from headwater.api.changes.subscription import MAX_CHANGES, MAX_UNREAD_BYTES, Change, ResetReason, Subscription
from headwater.api.guard.caller import Caller
from headwater.api.lookups import Lookups
from headwater.api.ports import Generations, Live, ViewReader
from headwater.api.reading import KeyReaders
from headwater.eventlog.errors import EventLogError
from headwater.projections.errors import ProjectionError
from headwater.projections.table.readable import state_fields
from headwater.projections.view import View

LOOK_S: Final = 1.0
"""How often a feed checks whether its view has a new generation."""
RETRY_S: Final = 1.0
LOOK_BACK_S: Final = 5.0
"""How often a feed checks whether a store that was far behind has come near."""
ROOM_S: Final = 5.0
"""How long all followers wait for one that has much to read."""
MAX_WAITING: Final = 50_000
"""Changed rows that may wait for a view's store; with more, the followers get a `reset`."""

logger = logging.getLogger(__name__)


FeedName = tuple[str, tuple[Hashable, ...]]
"""A view, and what the rows that it looks up must fulfil to exist for the feed's followers."""


class Missing(NamedTuple):
    """Patches whose touches are not in the feed; start: None if followers read again, for this reason."""

    start: Offsets | None
    end: Offsets
    reason: ResetReason = "too_far_behind"


class ViewFeed:
    """The changes of one view, for all its followers; each row is read once for all of them.

    Where it begins, stores may not have applied what lies before, so it begins at the earliest patch that one of them
    has not applied.
    """

    def __init__(
        self,
        name: FeedName,
        view: View,
        readers: KeyReaders,
        lookups: Lookups,
        generations: Generations,
        live: Live,
        earlier: EarlierPatches,
        caller: Caller,
    ) -> None:
        """caller: for whom columns of other views are looked up: for all followers of this feed, they are the same."""
        self.name = name
        self.compared = {name: state_fields((name,), view.layout).get(name, "") for name in view.readable_by}
        self.view, self.tag, self.generation = view, live.patch_tag, live.generation
        self.followers: set[Subscription] = set()
        self.delivered: Offsets = {}
        """The `patches` offsets up to which everything that was not missing was sent; set once `started`."""
        self.complete: Offsets = {}
        """Those up to which followers have everything; behind `delivered` while something is missing."""
        self.started = asyncio.Event()
        self._readers, self._generations, self._earlier = readers, generations, earlier
        self._rows = ChangedRows(view, readers, lookups, generations, caller)
        self._expired = None if view.expiry is None else ExpiredRows(view, view.expiry, readers.stores, generations)
        self._erasures = Erasures() if lookups.opens(view, caller) else None
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
        return self.position_at(self.complete)

    def position_at(self, offsets: Offsets) -> str:
        """The position of a follower that has everything before these offsets of `patches`."""
        return str(FollowerPosition(self.generation, offsets, self.erased))

    @property
    def erased(self) -> int | None:
        """How many persons were erased before what followers have read; None if they read no personal values."""
        return None if self._erasures is None else self._erasures.known

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
        for follower in self.followers if self.tag in batch.brought else ():
            if isinstance(follower, OwnRows):
                for key, offset, values in batch.brought[self.tag]:
                    follower.bring(key, offset, values)
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
                if self._erasures is not None and not self.started.is_set():
                    await self._erasures.begin()
                await self._look_at_generation()
                await self._look_at_erasures()
                await self._find_missing()
                touched, self._touched = self._touched, {}
                read_to = self._read_to
                await self._deliver(touched, read_to)
                touched = {}
                await self._send_expired()
            except (EventLogError, ProjectionError) as error:
                logger.warning('changes of "%s" are delayed: %s', self.view.name, error)
                self._touched = touched | self._touched
                self._has_changes.set()
                await asyncio.sleep(RETRY_S)

    async def changes(self, touched: Touched) -> list[Change] | None:
        """The touched rows, once the store has applied the patches that touched them; None if they are too large.

        Raises ProjectionError.
        """
        found: list[Change] = []
        left_bytes = MAX_UNREAD_BYTES
        if touched:
            async for changes, _ in self._rows.portions(touched):
                found += changes
                left_bytes -= size_bytes(changes)
                if left_bytes < 0:
                    return None
        return found

    async def _deliver(self, touched: Touched, read_to: Offsets) -> None:
        """Send the touched rows, several at once if they are large; then followers have everything up to `read_to`.

        Who begins to follow between two portions reads all rows again.
        """
        present: set[Subscription] | None = None
        last: list[Change] = []
        if touched:
            async for changes, is_last in self._rows.portions(touched):
                await self._wait_for_room(size_bytes(changes))
                if is_last:
                    last = changes
                    break
                present = set(self.followers) if present is None else present & self.followers
                for follower in present:
                    follower.offer(changes)
        # from here on without a pause, so that nobody begins to follow in between
        self.delivered = read_to
        if self._missing is None:
            self._remember(touched, read_to)
            self.complete = read_to
        for follower in self.followers:
            if present is not None and follower not in present:
                follower.reset("too_far_behind", self.position)
            follower.offer(last, self.position)

    async def _send_expired(self) -> None:
        """Tell the followers which rows have expired; if they are too many, all rows are read again."""
        expired = self._expired
        if expired is None or not expired.is_due or not await self._has_all_sent([expired.store]):
            return
        found = await expired.look()
        changes = None if found is None else await self.changes(found)
        if changes is None:
            self._miss(None)
            self._has_changes.set()
            return
        for follower in self.followers:
            follower.offer(changes)

    async def _wait_for_room(self, wanted_bytes: int) -> None:
        """Give followers that have much to read some time to do so; those that do not are disconnected."""
        full = [each for each in self.followers if not (each.held or each.has_room(wanted_bytes))]
        if full:
            tasks = [asyncio.create_task(each.wait_for_room(wanted_bytes)) for each in full]
            try:
                await asyncio.wait(tasks, timeout=ROOM_S)
            finally:
                for task in tasks:
                    task.cancel()

    async def beginning(self) -> Offsets | None:
        """From where on a follower that reads rows now needs the changes; None if a store does not answer."""
        stores = self._readers.stores
        if len(stores) == 1 and not stores[0].needs_refresh:
            return self.complete  # what was sent was read from this store
        applied = await applied_by_all(stores, await self._generations.live(self.view))
        return None if applied is None else _until(applied, self.complete)

    async def is_even(self) -> bool:
        """Whether every store has applied what was sent before, so that a follower reads the same rows in each."""
        return await self._has_all_sent(self._readers.stores)

    async def _has_all_sent(self, stores: Sequence[ViewReader]) -> bool:
        """Whether these stores have applied everything that was sent."""
        if len(self._readers.stores) == 1 and not stores[0].needs_refresh:
            return True  # what was sent was read from this store
        end = self.delivered
        applied = await applied_by_all(stores, await self._generations.live(self.view))
        return applied is not None and await self._earlier.touched(self.tag, _until(applied, end), end) == {}

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
        self._rows.forget()
        self.generation = live.generation
        self.complete = dict.fromkeys(self._read_to, 0) if applied is None else _until(applied, self._read_to)
        self._miss(None if applied is None else self.complete)
        if self.started.is_set():
            self._reset_all("generation_changed")
        self.started.set()

    async def _look_at_erasures(self) -> None:
        """Let all followers read again if a person was erased: they may show a value, and so may changes that they have
        not taken."""
        if self._erasures is not None and await self._erasures.are_new():
            self._rows.forget()
            for follower in self.followers:
                follower.drop()
            self._miss(None, "person_erased")

    def _miss(self, start: Offsets | None, reason: ResetReason = "too_far_behind") -> None:
        """Find everything from `start` up to here."""
        self._missing, self._look_back_at, self._recent_from = Missing(start, self._read_to, reason), 0.0, None

    async def _find_missing(self) -> None:
        """Add the missing touches. If they are too many, or unknown, followers read again once the stores are near."""
        missing = self._missing
        if missing is None or time.monotonic() < self._look_back_at:
            return
        start, end, reason = missing
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
            self._missing, self._look_back_at = Missing(None, end, reason), time.monotonic() + LOOK_BACK_S
            return
        self._missing, self._touched = None, found | self._touched
        if must_reset:
            self.complete = start
            self._reset_all(reason)

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


def _until(offsets: Offsets, end: Offsets) -> Offsets:
    """`offsets`, but none after `end`; `end` if there is none."""
    return {partition: min(offset, offsets.get(partition, offset)) for partition, offset in end.items()}
