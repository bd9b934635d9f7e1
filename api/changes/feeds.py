"""The feeds of all followed views, over one reader of `patches`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from api.changes.feed import RETRY_S, ViewFeed
from api.changes.patch_tail import Batch, PatchTail, Touched, touches
from api.changes.position import read_position
from api.changes.subscription import MAX_CHANGES, Reason, ResetReason, Subscription
from api.errors import TooManyFollowers
from api.lookups import Lookups
from api.ports import Generations, ViewReader
from api.reading import KeyReaders
from eventlog import topics
from eventlog.errors import EventLogError, LogUnavailable
from eventlog.ports import EventLog
from projections.errors import ProjectionError
from projections.view import View

START_S: Final = 10.0
MAX_CATCH_UP: Final = 200_000
"""Offsets of `patches` that are read again for a returning follower."""

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
        self._feeds: dict[str, ViewFeed] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._followed: dict[Subscription, ViewFeed] = {}
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="catch-up")

    async def open(self) -> None:
        """Nothing to do: `patches` is read once a view is followed."""

    async def close(self) -> None:
        """Stop following."""
        self.end("closing")
        self._tail.stop()
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def end(self, reason: Reason) -> None:
        """Disconnect every follower."""
        for follower in self._followed:
            follower.end(reason)

    async def follow(self, view: View, keys: frozenset[str] | None, held: bool) -> Subscription:
        """Begin to follow; call `leave` at the end. held: until `catch_up`.

        Raises TooManyFollowers, GenerationMissing, StoreUnavailable or LogUnavailable.
        """
        if len(self._followed) >= self._max_followers:
            raise TooManyFollowers(self._max_followers)
        live = await self._generations.live(view)
        feed = self._feeds.get(view.name)
        if feed is None:
            feed = ViewFeed(view, KeyReaders(self._readers, view), self._lookups, self._generations, live)
            self._feeds[view.name] = feed
            running = self._running[view.name] = asyncio.create_task(feed.run())
            running.add_done_callback(lambda ended: self._ended(feed, ended))
        subscription = Subscription(keys, feed.position, held)
        self._followed[subscription] = feed
        feed.followers.add(subscription)  # before the wait, so that the feed is not removed meanwhile
        self._listen()
        try:
            async with asyncio.timeout(START_S):
                await feed.started.wait()
        except BaseException as error:
            self.leave(subscription)
            if isinstance(error, TimeoutError):
                raise LogUnavailable("following patches", f"no patches for {START_S:g} s") from error
            raise
        subscription.position = feed.position
        return subscription

    def leave(self, subscription: Subscription) -> None:
        """Stop following; the last follower ends the feed."""
        feed = self._followed.pop(subscription)
        feed.followers.discard(subscription)
        if not feed.followers and self._feeds.get(feed.view.name) is feed:
            self._running[feed.view.name].cancel()
            self._remove(feed)

    async def catch_up(self, subscription: Subscription, position: str) -> None:
        """Send a follower the changes since `position`, or tell it to read all rows again."""
        feed = self._followed[subscription]
        known = read_position(position, self.partitions)
        if known is None or known[0] != feed.generation:
            subscription.reset("generation_changed" if known else "position_gone")
            return
        while True:
            try:
                loop = asyncio.get_running_loop()
                found = await loop.run_in_executor(
                    self._threads, self._touched, feed.tag, known[1], feed.delivered, subscription.keys
                )
                if isinstance(found, dict):
                    changes = await feed.changes(found)
                    subscription.catch_up({change.key: change for change in changes})
                else:
                    subscription.reset(found)
                return
            except (EventLogError, ProjectionError) as error:
                logger.warning('a follower of "%s" has to wait: %s', feed.view.name, error)
                await asyncio.sleep(RETRY_S)

    def _touched(
        self, tag: str, start: Mapping[int, int], end: Mapping[int, int], keys: frozenset[str] | None
    ) -> Touched | ResetReason:
        """The rows touched from `start` to `end`; blocks. Else why they are unknown."""
        for partition, offset in start.items():
            if offset > end[partition] or offset < self._log.first(topics.PATCHES, partition):
                return "position_gone"
        if sum(end[partition] - offset for partition, offset in start.items()) > MAX_CATCH_UP:
            return "too_far_behind"
        found: Touched = {}
        for partition, offset in start.items():
            records = self._log.read(topics.PATCHES, partition, offset, end[partition])
            for key, touch in touches(records, frozenset({tag})).get(tag, {}).items():
                if keys is None or key in keys:
                    found[key] = touch
        return found if len(found) <= MAX_CHANGES else "too_far_behind"

    def _ended(self, feed: ViewFeed, ended: asyncio.Task[None]) -> None:
        """If a feed died of a bug, disconnect its followers; they connect again and get a new feed."""
        if ended.cancelled():
            return
        logger.error('following the changes of "%s" failed', feed.view.name, exc_info=ended.exception())
        for follower in feed.followers:
            follower.end("failed")
        if self._feeds.get(feed.view.name) is feed:
            self._remove(feed)

    def _remove(self, feed: ViewFeed) -> None:
        del self._feeds[feed.view.name], self._running[feed.view.name]
        self._listen()

    def _listen(self) -> None:
        self._tail.listen(feed.tag for feed in self._feeds.values())

    def _take_in(self, batch: Batch) -> None:
        for feed in self._feeds.values():
            feed.take_in(batch)
        if batch.listened != {feed.tag for feed in self._feeds.values()}:
            self._listen()  # the view has a new version
