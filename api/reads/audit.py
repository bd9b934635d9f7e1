"""The whole log by position: events of all streams in pages, each reading a limited part of the log."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from typing import Final

from headwater.api.event_pages import AuditPage, EventFilter
from headwater.api.limits.requests import MAX_PAGE_BYTES, next_portion
from headwater.api.limits.work import Threads
from headwater.eventlog import topics
from headwater.eventlog.envelope import Position, decode, timestamp_ms
from headwater.eventlog.errors import NotAnEnvelope
from headwater.eventlog.heartbeats import is_heartbeat_key
from headwater.eventlog.ports import EventLog, Record, topic_ends

FIRST_CHUNK: Final = 200
MAX_CHUNK: Final = 5_000
MAX_OFFSETS: Final = 50_000
"""Offsets that one page may read, in all partitions together."""
MAX_READ_BYTES: Final = 64 * 1024 * 1024
"""Likewise, of their records."""
MAX_AHEAD_BYTES: Final = 16 * 1024 * 1024
"""Of the records that are in memory at once, in all partitions together."""


class AuditReader:
    """Reads all of `events`, in threads, because reading blocks.

    The partitions are merged by their records' times, then by partition: the same log gives the same order. Nothing is
    missed or repeated, because a page continues from an offset in each partition.
    """

    def __init__(self, log: EventLog, threads: int = 2) -> None:
        self._log = log
        self._threads = Threads(threads, "audit")

    async def open(self) -> None:
        """Nothing to do: the log connects at its first use."""

    async def close(self) -> None:
        """End the threads."""
        self._threads.close()

    async def page(self, starts: Mapping[int, int], event_filter: EventFilter, limit: int) -> AuditPage:
        """At most `limit` events from these offsets on; a partition without one starts at `event_filter.since`.

        There are fewer if they are large, or if the page reads as much of the log as it may.
        Raises LogUnavailable.
        """
        return await self._threads.run_while_wanted(self._page, starts, event_filter, limit)

    def _page(
        self, unwanted: threading.Event, starts: Mapping[int, int], event_filter: EventFilter, limit: int
    ) -> AuditPage:
        merged = _Merged(
            self._log, {p: self._start(p, starts, event_filter) for p in range(self._log.partitions)}, unwanted
        )
        page, size_bytes = AuditPage(), 0
        while len(page.events) < limit and size_bytes < MAX_PAGE_BYTES and (record := merged.take()) is not None:
            if record.value is None or is_heartbeat_key(record.key):
                continue  # erased, or not an event
            position = Position(record.partition, record.offset)
            try:
                if event_filter.takes(decode(record.value)):
                    page.events.append((position, record.value))
                    size_bytes += len(record.value)
            except NotAnEnvelope:
                page.unreadable.append(position)
        page.next_offsets, page.ended = merged.next_offsets, merged.ended
        return page

    def _start(self, partition: int, starts: Mapping[int, int], event_filter: EventFilter) -> int:
        if partition in starts:
            return starts[partition]
        if event_filter.since is None:
            return 0
        return self._log.offset_at(topics.EVENTS, partition, timestamp_ms(event_filter.since))


class _Merged:
    """The records of all partitions in one order, up to their current ends, or until the reading limit."""

    def __init__(self, log: EventLog, starts: Mapping[int, int], unwanted: threading.Event) -> None:
        self._log, self._unwanted = log, unwanted
        self._ends = topic_ends(log, topics.EVENTS, starts)
        # an offset beyond the end was made up by a client, or is of another deployment
        self._read = {partition: min(start, self._ends[partition]) for partition, start in starts.items()}
        self._ahead: dict[int, deque[Record]] = {partition: deque() for partition in starts}
        self._chunk = dict.fromkeys(starts, FIRST_CHUNK)
        self._chunk_bytes = MAX_AHEAD_BYTES // len(starts)
        self._left, self._left_bytes = MAX_OFFSETS, MAX_READ_BYTES

    @property
    def next_offsets(self) -> dict[int, int]:
        """The offset to continue from, by partition."""
        return {p: ahead[0].offset if ahead else self._read[p] for p, ahead in self._ahead.items()}

    @property
    def ended(self) -> bool:
        """Whether everything was taken."""
        return all(offset >= self._ends[partition] for partition, offset in self.next_offsets.items())

    def take(self) -> Record | None:
        """The next record; None at the end, or at the reading limit."""
        if self._unwanted.is_set():
            return None  # the client has left
        for partition, ahead in self._ahead.items():
            while not ahead and self._read[partition] < self._ends[partition]:
                if self._left <= 0 or self._left_bytes <= 0:
                    return None
                self._fetch(partition)
        heads = [ahead[0] for ahead in self._ahead.values() if ahead]
        if not heads:
            return None
        first = min(heads, key=lambda record: (record.timestamp_ms, record.partition))
        return self._ahead[first.partition].popleft()

    def _fetch(self, partition: int) -> None:
        """Read the next chunk; it ends early if its records are large."""
        start, ahead, size_bytes = self._read[partition], self._ahead[partition], 0
        stop = min(start + self._chunk[partition], self._ends[partition])
        for record in self._log.read(topics.EVENTS, partition, start, stop):
            ahead.append(record)
            size_bytes += len(record.value or b"")
            if size_bytes >= self._chunk_bytes or self._unwanted.is_set():
                stop = record.offset + 1
                break
        self._read[partition] = stop
        self._left -= stop - start
        self._left_bytes -= size_bytes
        self._chunk[partition] = next_portion(stop - start, size_bytes, self._chunk_bytes, MAX_CHUNK)
