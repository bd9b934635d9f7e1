"""The feeds of all followed views, over one reader of `patches`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextvars import Context
from functools import partial
from typing import Final

from headwater.api.changes.changed_rows import FIRST_PAUSE_S, MAX_PAUSE_S
from headwater.api.changes.feed import FeedName, ViewFeed
from headwater.api.changes.patch_tail import Batch, PatchTail
from headwater.api.changes.recent import RecentTouches
from headwater.api.changes.subscription import OwnKeys, OwnRows, Reason, Subscription
from headwater.api.errors import TooManyFollowers
from headwater.api.guard.caller import Caller, OwnStreams
from headwater.api.guard.scopes import STREAMS
from headwater.api.limits import Threads, share_of
from headwater.api.lookups import Lookups
from headwater.api.reading import Generations, KeyReaders, Live, ViewReader
from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.ports import EventLog
from headwater.projections.view import View

START_S: Final = 10.0
READING_KEYS: Final = 4
"""Followers whose own rows are read at once."""

logger = logging.getLogger(__name__)


class ChangeFeeds:
    """The feeds of all followed views; a resource of the application, for its loop."""

    def __init__(
        self,
        log: EventLog,
        generations: Generations,
        readers: Mapping[str, ViewReader],
        lookups: Lookups,
        own_streams: OwnStreams,
        patch_partitions: int,
        max_followers: int = 1_000,
    ) -> None:
        self._log, self._generations, self._readers, self._lookups = log, generations, readers, lookups
        self._own_streams, self.partitions, self._max_followers = own_streams, patch_partitions, max_followers
        self._tail = PatchTail(log, patch_partitions, self._take_in)
        self._threads = Threads(2, "catch-up")
        self._reading_keys = asyncio.Semaphore(READING_KEYS)
        self._feeds: dict[FeedName, ViewFeed] = {}
        self._running: dict[FeedName, asyncio.Task[None]] = {}
        self._followed: dict[Subscription, ViewFeed] = {}
        self._callers: dict[Subscription, str | None] = {}

    @property
    def followers(self) -> int:
        """How many there are."""
        return len(self._followed)

    async def close(self) -> None:
        """Stop following."""
        self.end("closing")
        self._tail.stop()
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)
        self._threads.close()

    def end(self, reason: Reason) -> None:
        """Disconnect every follower."""
        for follower in self._followed:
            follower.end(reason)

    async def follow(self, view: View, keys: frozenset[str] | None, since: str | None, caller: Caller) -> Subscription:
        """Begin to follow; call `leave` at the end. since: the position of a follower that returns.

        Raises BadParameter, TooManyFollowers, GenerationMissing, StoreUnavailable or LogUnavailable.
        """
        conditions = caller.readable(view)
        own = OwnKeys(self._readers, self._generations, view, conditions) if conditions else None
        if own is not None:
            own.check(keys)
        if len(self._followed) >= self._max_followers:
            raise TooManyFollowers(self._max_followers)
        if list(self._callers.values()).count(caller.name) >= (share := share_of(self._max_followers, caller.name)):
            raise TooManyFollowers(share)
        live = await self._generations.live(view)
        feed = self._feeds.get(self._name(view, caller)) or self._start(view, live, caller)
        subscription = Subscription(keys, "") if own is None else OwnRows(keys, "", conditions=conditions)
        if view.name == STREAMS:
            subscription.exists = partial(self._own_streams.has_event, caller)
        self._callers[subscription] = caller.name
        self._followed[subscription] = feed  # before the wait, so that the feed is not removed meanwhile
        self._listen()
        try:
            async with asyncio.timeout(START_S):
                await feed.started.wait()
                if own is not None and isinstance(subscription, OwnRows):
                    await self._begin(subscription, feed, own)
                else:
                    await feed.admit(subscription, since, self.partitions)
        except BaseException as error:
            self.leave(subscription)
            if isinstance(error, TimeoutError):
                raise LogUnavailable("following patches", f"no patches for {START_S:g} s") from error
            raise
        return subscription

    async def _begin(self, subscription: OwnRows, feed: ViewFeed, own: OwnKeys) -> None:
        """Let a follower for whom only some rows exist know which, once it finds the same in every store."""
        feed.join(subscription)
        pause_s = FIRST_PAUSE_S
        while not await feed.is_even():
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)
        subscription.generation_number = feed.generation
        async with self._reading_keys:
            subscription.know(await own.read(subscription.keys))

    def leave(self, subscription: Subscription) -> None:
        """Stop following; the last follower ends the feed."""
        feed = self._followed.pop(subscription)
        del self._callers[subscription]
        feed.followers.discard(subscription)
        if feed not in self._followed.values() and self._feeds.get(feed.name) is feed:
            self._running[feed.name].cancel()
            self._remove(feed)

    def _name(self, view: View, caller: Caller) -> FeedName:
        return view.name, self._lookups.readable(view, caller)

    def _start(self, view: View, live: Live, caller: Caller) -> ViewFeed:
        readers, name = KeyReaders(self._readers, view), self._name(view, caller)
        recent = RecentTouches(self._log, self._threads, view, self.partitions)
        feed = ViewFeed(name, view, readers, self._lookups, self._generations, live, recent, caller)
        self._feeds[name] = feed
        running = self._running[name] = asyncio.create_task(feed.run(), context=Context())
        running.add_done_callback(lambda ended: self._ended(feed, ended))
        return feed

    def _ended(self, feed: ViewFeed, ended: asyncio.Task[None]) -> None:
        """If a feed died of a bug, disconnect its followers; they connect again and get a new feed."""
        if ended.cancelled():
            return
        logger.error('following the changes of "%s" failed', feed.view.name, exc_info=ended.exception())
        for follower in [follower for follower, followed in self._followed.items() if followed is feed]:
            follower.end("failed")
        if self._feeds.get(feed.name) is feed:
            self._remove(feed)

    def _remove(self, feed: ViewFeed) -> None:
        del self._feeds[feed.name], self._running[feed.name]
        self._listen()

    def _listen(self) -> None:
        feeds = self._feeds.values()
        compared = {feed.tag: feed.compared for feed in feeds if feed.compared}
        self._tail.listen({feed.tag: feed.view for feed in feeds}, compared)

    def _take_in(self, batch: Batch) -> None:
        for feed in self._feeds.values():
            feed.take_in(batch)
        if batch.listened != {feed.tag for feed in self._feeds.values()}:
            self._listen()  # the view has a new version
