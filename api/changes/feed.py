"""The changes of one view: `patches` name the changed rows, and the feed reads them once the store has them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Hashable, Sequence
from contextlib import suppress
from typing import Final

from headwater.api.changes.changed_rows import ChangedRows, Erasures, ExpiredRows, size_bytes
from headwater.api.changes.patch_tail import Batch, Touched
from headwater.api.changes.recent import Offsets, RecentTouches, applied_by_all
from headwater.api.changes.subscription import FollowerPosition, OwnRows, ResetReason, Subscription
from headwater.api.guard.caller import Caller
from headwater.api.lookups import Lookups
from headwater.api.reading import Generations, KeyReaders, Live, ViewReader
from headwater.eventlog.errors import EventLogError
from headwater.projections.errors import ProjectionError
from headwater.projections.table.personal import state_fields
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


class ViewFeed:
    """The changes of one view, for all its followers; each row is read once for all of them.

    A follower reads rows from any store, and stores lag. So it is sent all changes from where it returns, or from the
    earliest patch on that one of the stores has not applied when it begins. If these are not known, it gets later ones
    at once, and is told to read all rows again when the stores are near.
    """

    def __init__(
        self,
        name: FeedName,
        view: View,
        readers: KeyReaders,
        lookups: Lookups,
        generations: Generations,
        live: Live,
        recent: RecentTouches,
        caller: Caller,
    ) -> None:
        """caller: for whom columns of other views are looked up: for all followers of this feed, they are the same."""
        self.name = name
        self.compared = {name: state_fields((name,), view.layout).get(name, "") for name in view.readable_by}
        self.view, self.tag, self.generation = view, live.patch_tag, live.generation
        self.followers: set[Subscription] = set()
        self.delivered: Offsets = {}
        """The `patches` offsets up to which everything was sent; set once `started`."""
        self.started = asyncio.Event()
        self._readers, self._generations, self._recent = readers, generations, recent
        self._rows = ChangedRows(view, readers, lookups, generations, caller)
        self._expired = None if view.expiry is None else ExpiredRows(view, view.expiry, readers.stores, generations)
        self._erasures = Erasures() if lookups.opens(view, caller) else None
        self._touched: Touched = {}
        self._sending: Touched = {}
        self._look_back_at = 0.0
        self._has_changes = asyncio.Event()
        self._followed = asyncio.Event()
        self._read_to: Offsets = {}

    @property
    def position(self) -> str:
        """The position of a follower that has everything."""
        return self._position_at(self.delivered)

    @property
    def erased(self) -> int | None:
        """How many persons were erased before what followers have read; None if they read no personal values."""
        return None if self._erasures is None else self._erasures.known

    def take_in(self, batch: Batch) -> None:
        """A batch of patches."""
        if self.tag not in batch.listened:
            return
        is_gap = any(batch.start[partition] > offset for partition, offset in self._read_to.items())
        self._read_to = batch.end
        if not self._followed.is_set():
            self.delivered = batch.start
            self._recent.restart(batch.start)
            self._followed.set()
            is_gap = False
        for follower in self.followers if self.tag in batch.brought else ():
            if isinstance(follower, OwnRows):
                for key, offset, values in batch.brought[self.tag]:
                    follower.bring(key, offset, values)
        self._touched |= batch.touched.get(self.tag, {})
        if is_gap or len(self._touched) > MAX_WAITING:  # a gap: retention has deleted patches that nobody read
            self._touched.clear()
            self._recent.restart(self._read_to)
            self._lack("too_far_behind")
        if self._touched or is_gap:
            self._has_changes.set()

    async def run(self) -> None:
        """Send every change to the followers, until cancelled."""
        self._has_changes.set()  # begin at once
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._has_changes.wait()
            self._has_changes.clear()
            try:
                if self._erasures is not None and not self.started.is_set():
                    await self._erasures.begin()
                await self._look_at_generation()
                if self._erasures is not None and await self._erasures.are_new():
                    # followers may show a value, and so may changes that they have not taken
                    self._rows.forget()
                    for follower in self.followers:
                        follower.drop()
                    self._lack("person_erased")
                await self._reset_lacking()
                await self._deliver()
                await self._send_expired()
            except (EventLogError, ProjectionError) as error:
                logger.warning('changes of "%s" are delayed: %s', self.view.name, error)
                self._has_changes.set()
                await asyncio.sleep(RETRY_S)

    async def admit(self, follower: Subscription, since: str | None, partitions: int) -> None:
        """Let a follower begin, or go on at a position. Raises LogUnavailable, StoreUnavailable or GenerationMissing.

        partitions: of `patches`.
        """
        while True:
            now = self.generation, self.erased
            start: Offsets | None = None
            reason: ResetReason | None = None
            if since is not None:
                known = self._known(since, partitions)
                if isinstance(known, str):
                    reason = known
                elif (reason := await self._recent.reach(self.tag, known, self.delivered)) is None:
                    start = _until(known, self.delivered)
            if start is None:
                start = await self._reachable(self._readers.stores)
            if (self.generation, self.erased) == now:
                break
        touched = None if start is None else self._recent.since(start)
        if start is None or touched is None or (wanted := follower.of_its_keys(touched)) is None:
            follower.position = self._position_at(dict.fromkeys(self.delivered, 0))
            follower.lacks = reason or "too_far_behind"
        else:
            follower.position, follower.wanted = self._position_at(start), wanted
            if reason is not None:
                follower.reset(reason)
        self.join(follower)

    def join(self, follower: Subscription) -> None:
        """Send a follower what is being sent, and all that follows."""
        follower.wanted = follower.wanted | self._sending
        self.followers.add(follower)
        self._has_changes.set()

    async def is_even(self, stores: Sequence[ViewReader] | None = None) -> bool:
        """Whether every store, or these, has applied what was sent, so that a follower reads the same rows in each."""
        start = await self._reachable(self._readers.stores if stores is None else stores)
        return start is not None and self._recent.since(start) == {}

    def _known(self, since: str, partitions: int) -> Offsets | ResetReason:
        """The offsets of a position, or why it is none of what is followed here."""
        known = FollowerPosition.read(since, partitions)
        if known is None or self.view.expiry is not None:  # offsets do not tell what has expired since
            return "position_gone"
        if known.generation != self.generation:
            return "generation_changed"
        return "person_erased" if known.erasures != self.erased else known.offsets

    def _position_at(self, offsets: Offsets) -> str:
        return str(FollowerPosition(self.generation, offsets, self.erased))

    async def _reachable(self, stores: Sequence[ViewReader]) -> Offsets | None:
        """From where on a follower that reads rows in these stores now needs the changes; None if that is not known."""
        applied = await applied_by_all(stores, await self._generations.live(self.view))
        if applied is None:
            return None
        start = _until(applied, self.delivered)
        return None if await self._recent.reach(self.tag, start, self.delivered) else start

    def _lack(self, reason: ResetReason) -> None:
        """All followers read again once the stores are near."""
        self._look_back_at = 0.0
        for follower in self.followers:
            follower.lacks = reason

    async def _reset_lacking(self) -> None:
        """Tell followers to read again that lack something, if what the stores lack is known."""
        if time.monotonic() < self._look_back_at or not any(follower.lacks for follower in self.followers):
            return
        start = await self._reachable(self._readers.stores)
        touched = None if start is None else self._recent.since(start)
        for follower in self.followers:
            if follower.lacks is None:
                continue
            if start is None or touched is None or (wanted := follower.of_its_keys(touched)) is None:
                self._look_back_at = time.monotonic() + LOOK_BACK_S
                continue
            follower.reset(follower.lacks)
            follower.wanted = wanted
            follower.move(self._position_at(start))

    async def _deliver(self) -> None:
        """Send the touched rows, and to each follower those that it wants, several at once if they are large; then
        followers have everything up to where `patches` was read."""
        touched, read_to = self._touched, self._read_to
        wanted = {follower: follower.wanted for follower in self.followers}
        self._touched, self._sending = {}, touched
        everything = dict(touched)
        for follower, own in wanted.items():
            follower.wanted = {}
            if own:
                wanted[follower] = own | touched
                everything = own | everything
        try:
            async for changes in self._rows.portions(everything):
                await self._wait_for_room(size_bytes(changes))
                of_all = [change for change in changes if change.key in touched]
                for follower, own in wanted.items():
                    follower.offer([change for change in changes if change.key in own] if own else of_all)
        except (EventLogError, ProjectionError):
            self._touched = touched | self._touched
            for follower, own in wanted.items():
                follower.wanted = own | follower.wanted
            raise
        finally:
            self._sending = {}
        self._recent.add(touched)
        self.delivered = read_to
        for follower in wanted:
            follower.move(self.position)

    async def _send_expired(self) -> None:
        """Let rows be sent that have expired; if they are too many, all rows are read again."""
        expired = self._expired
        if expired is None or not expired.is_due or not await self.is_even([expired.store]):
            return
        expired_keys = await expired.look()
        if expired_keys is None:
            self._lack("too_far_behind")
        else:
            self._touched = expired_keys | self._touched
        if expired_keys != {}:
            self._has_changes.set()

    async def _wait_for_room(self, wanted_bytes: int) -> None:
        """Give followers that have much to read some time to do so; those that do not are disconnected."""
        full = [follower for follower in self.followers if not follower.has_room(wanted_bytes)]
        if full:
            tasks = [asyncio.create_task(subscriber.wait_for_room(wanted_bytes)) for subscriber in full]
            try:
                await asyncio.wait(tasks, timeout=ROOM_S)
            finally:
                for task in tasks:
                    task.cancel()

    async def _look_at_generation(self) -> None:
        live = await self._generations.live(self.view)
        if self.started.is_set() and (live.patch_tag, live.generation) == (self.tag, self.generation):
            return
        if live.patch_tag != self.tag:
            self.tag = live.patch_tag
            self._touched.clear()
            self._followed.clear()
        await self._followed.wait()
        self._rows.forget()
        self.generation = live.generation
        if self.started.is_set():
            self._lack("generation_changed")
        self.started.set()


def _until(offsets: Offsets, end: Offsets) -> Offsets:
    """`offsets`, but none after `end`; `end` if there is none."""
    return {partition: min(offset, offsets.get(partition, offset)) for partition, offset in end.items()}
