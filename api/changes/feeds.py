"""The feeds of all followed views, over one reader of `patches`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from headwater.api.changes.changed_rows import FIRST_PAUSE_S, MAX_PAUSE_S
from headwater.api.changes.earlier import EarlierPatches, Offsets
from headwater.api.changes.feed import RETRY_S, FeedName, ViewFeed
from headwater.api.changes.own_keys import OwnKeys
from headwater.api.changes.own_rows import OwnRows
from headwater.api.changes.patch_tail import Batch, PatchTail, Touched
from headwater.api.changes.position import FollowerPosition
from headwater.api.changes.subscription import Reason, ResetReason, Subscription
from headwater.api.errors import TooManyFollowers
from headwater.api.guard.caller import Caller
from headwater.api.lookups import Lookups
from headwater.api.ports import Generations, Live, ViewReader
from headwater.api.reading import KeyReaders
from headwater.eventlog.errors import EventLogError, LogUnavailable
from headwater.eventlog.ports import EventLog
from headwater.projections.errors import ProjectionError
from headwater.projections.view import View

START_S: Final = 10.0
MAX_RETRY_S: Final = 30.0
CATCHING_UP: Final = 4
"""Followers whose missed rows are read at once."""

logger = logging.getLogger(__name__)


class ChangeFeeds:
    """The feeds of all followed views; a resource of the application, for its loop."""

    def __init__(
        self,
        log: EventLog,
        generations: Generations,
        readers: Mapping[str, ViewReader],
        lookups: Lookups,
        patch_partitions: int,
        max_followers: int = 1_000,
    ) -> None:
        self._log, self._generations, self._readers, self._lookups = log, generations, readers, lookups
        self.partitions, self._max_followers = patch_partitions, max_followers
        self._tail = PatchTail(log, patch_partitions, self._take_in)
        self._earlier = EarlierPatches(log)
        self._catching_up = asyncio.Semaphore(CATCHING_UP)
        self._feeds: dict[FeedName, ViewFeed] = {}
        self._running: dict[FeedName, asyncio.Task[None]] = {}
        self._followed: dict[Subscription, ViewFeed] = {}

    @property
    def followers(self) -> int:
        """How many there are."""
        return len(self._followed)

    async def open(self) -> None:
        """Nothing to do: `patches` is read once a view is followed."""

    async def close(self) -> None:
        """Stop following."""
        self.end("closing")
        self._tail.stop()
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)
        self._earlier.close()

    def end(self, reason: Reason) -> None:
        """Disconnect every follower."""
        for follower in self._followed:
            follower.end(reason)

    async def follow(self, view: View, keys: frozenset[str] | None, since: str | None, caller: Caller) -> Subscription:
        """Begin to follow; call `leave` at the end, and `catch_up` if it is held. since: the position of a follower
        that returns.

        Raises BadParameter, TooManyFollowers, GenerationMissing, StoreUnavailable or LogUnavailable.
        """
        conditions = caller.readable(view)
        own = OwnKeys(self._readers, self._generations, view, conditions) if conditions else None
        if own is not None:
            own.check(keys)
        if len(self._followed) >= self._max_followers:
            raise TooManyFollowers(self._max_followers)
        live = await self._generations.live(view)
        feed = self._feeds.get(self._name(view, caller)) or self._start(view, live, caller)
        subscription = (
            Subscription(keys, feed.position, held=True)
            if own is None
            else OwnRows(keys, "", held=True, conditions=conditions)
        )
        self._followed[subscription] = feed  # before the wait, so that the feed is not removed meanwhile
        feed.followers.add(subscription)
        self._listen()
        try:
            async with asyncio.timeout(START_S):
                await feed.started.wait()
                if own is not None and isinstance(subscription, OwnRows):
                    await self._begin(subscription, feed, own)
                    return subscription
                start = await feed.beginning() if since is None else None
        except BaseException as error:
            self.leave(subscription)
            if isinstance(error, TimeoutError):
                raise LogUnavailable("following patches", f"no patches for {START_S:g} s") from error
            raise
        subscription.position = feed.position
        if since is not None:
            subscription.since = self._since(since, feed)
        elif start == feed.complete:
            subscription.catch_up({})
        else:
            subscription.since = "too_far_behind" if start is None else start
            subscription.position = feed.position_at(start or self._nowhere)
        return subscription

    async def _begin(self, subscription: OwnRows, feed: ViewFeed, own: OwnKeys) -> None:
        """Let a follower for whom only some rows exist know which, once it finds the same in every store."""
        pause_s = FIRST_PAUSE_S
        while not await feed.is_even():
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)
        subscription.generation_number = feed.generation
        async with self._catching_up:
            subscription.know(await own.read(subscription.keys))

    def leave(self, subscription: Subscription) -> None:
        """Stop following; the last follower ends the feed."""
        feed = self._followed.pop(subscription)
        feed.followers.discard(subscription)
        if not feed.followers and self._feeds.get(feed.name) is feed:
            self._running[feed.name].cancel()
            self._remove(feed)

    async def catch_up(self, subscription: Subscription) -> None:
        """Send a follower what it missed, or tell it to read all rows again.

        What it missed may be too much. Then it gets later changes, and reads all rows again once the stores are near.
        """
        feed, since = self._followed[subscription], subscription.since
        if since is None:
            return
        end, pause_s = feed.delivered, RETRY_S
        position = feed.position_at(self._nowhere if isinstance(since, str) else since)
        while True:
            try:
                found, reason = await _missed(feed, since, end, subscription.keys)
                if found is not None:
                    subscription.hold()
                    async with self._catching_up:
                        erasures = feed.erased
                        changes = await feed.changes(found)
                    if feed.erased != erasures:
                        continue  # they may have been opened before
                if found is not None and changes is not None:
                    if reason is not None:
                        subscription.reset(reason, feed.position)
                    subscription.catch_up({change.key: change for change in changes})
                    return
                if found is not None:
                    reason = "too_far_behind"  # they are too large
                since, pause_s = reason or since, min(2 * pause_s, MAX_RETRY_S)
                subscription.proceed(position)
            except (EventLogError, ProjectionError) as error:
                logger.warning('a follower of "%s" has to wait: %s', feed.view.name, error)
            await asyncio.sleep(pause_s)

    def _name(self, view: View, caller: Caller) -> FeedName:
        return view.name, self._lookups.readable(view, caller)

    def _start(self, view: View, live: Live, caller: Caller) -> ViewFeed:
        readers, name = KeyReaders(self._readers, view), self._name(view, caller)
        feed = ViewFeed(name, view, readers, self._lookups, self._generations, live, self._earlier, caller)
        self._feeds[name] = feed
        running = self._running[name] = asyncio.create_task(feed.run())
        running.add_done_callback(lambda ended: self._ended(feed, ended))
        return feed

    def _ended(self, feed: ViewFeed, ended: asyncio.Task[None]) -> None:
        """If a feed died of a bug, disconnect its followers; they connect again and get a new feed."""
        if ended.cancelled():
            return
        logger.error('following the changes of "%s" failed', feed.view.name, exc_info=ended.exception())
        for follower in feed.followers:
            follower.end("failed")
        if self._feeds.get(feed.name) is feed:
            self._remove(feed)

    def _remove(self, feed: ViewFeed) -> None:
        del self._feeds[feed.name], self._running[feed.name]
        self._listen()

    def _since(self, text: str, feed: ViewFeed) -> Offsets | ResetReason:
        if feed.view.expiry is not None:  # positions are offsets, which do not tell what has expired since
            return "position_gone"
        known = FollowerPosition.read(text, self.partitions)
        if known is None:
            return "position_gone"
        if known.generation != feed.generation:
            return "generation_changed"
        if known.erasures != feed.erased:
            return "person_erased"
        return known.offsets

    @property
    def _nowhere(self) -> Offsets:
        return dict.fromkeys(range(self.partitions), 0)

    def _listen(self) -> None:
        feeds = self._feeds.values()
        compared = {feed.tag: feed.compared for feed in feeds if feed.compared}
        self._tail.listen((feed.tag for feed in feeds), compared)

    def _take_in(self, batch: Batch) -> None:
        for feed in self._feeds.values():
            feed.take_in(batch)
        if batch.listened != {feed.tag for feed in self._feeds.values()}:
            self._listen()  # the view has a new version


async def _missed(
    feed: ViewFeed, since: Offsets | ResetReason, end: Offsets, keys: frozenset[str] | None
) -> tuple[Touched | None, ResetReason | None]:
    """The rows that were touched before `end` and that a follower lacks; None: too many for now.

    With a reason, it must read all rows again, and lacks what a store has not applied then.
    """
    if not isinstance(since, str):
        found = await feed.touched(since, end, keys)
        if not isinstance(found, str):
            return found, None
        since = found
    start = await feed.beginning()
    if start == feed.complete:
        return {}, since
    if start is None:
        return None, since
    # what was sent meanwhile too: a store that is read again may not have applied it
    found = await feed.touched(start, feed.delivered, keys)
    return (None if isinstance(found, str) else found), since
