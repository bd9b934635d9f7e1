"""Pages of a whole topic: events of all streams, and observations of a person; each reads a limited part of the log."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple

from headwater.api.limits import MAX_PAGE_BYTES, Threads, next_portion
from headwater.eventlog import topics
from headwater.eventlog.envelope import HEARTBEAT, Envelope, Position, decode, timestamp_ms
from headwater.eventlog.errors import NotAnEnvelope
from headwater.eventlog.heartbeats import is_heartbeat_key
from headwater.eventlog.personal.sealed_text import START
from headwater.eventlog.ports import EventLog, Record, topic_ends, topic_firsts
from headwater.eventlog.topics import OBSERVATIONS

FIRST_CHUNK: Final = 200
MAX_CHUNK: Final = 5_000
MAX_OFFSETS: Final = 50_000
"""Offsets that one page may read, in all partitions together."""
MAX_READ_BYTES: Final = 64 * 1024 * 1024
"""Likewise, of their records."""
MAX_AHEAD_BYTES: Final = 16 * 1024 * 1024
"""Of the records that are in memory at once, in all partitions together."""
FIRST_PLACE: Final = Position(0, 0)


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Selects events: of these types (empty: all), at `since` or later, before `until`.

    correlation_id: of which they are; None: of any. exists: whether a stream exists for the caller.
    """

    types: frozenset[str] = frozenset()
    since: datetime | None = None
    until: datetime | None = None
    correlation_id: str | None = None
    exists: Callable[[str], bool] = lambda _: True

    def takes(self, event: Envelope) -> bool:
        """Whether it is selected."""
        return (
            event.type != HEARTBEAT
            and (not self.types or event.type in self.types)
            and (self.since is None or event.time >= self.since)
            and (self.until is None or event.time < self.until)
            and (self.correlation_id is None or event.correlation_id == self.correlation_id)
            and self.exists(event.stream)
        )


@dataclass(slots=True)
class AuditPage:
    """Some events with their positions; where to continue, by partition; and whether the end of the log was reached.

    unreadable: positions of records that are not valid events.
    """

    events: list[tuple[Position, bytes]] = field(default_factory=list)
    unreadable: list[Position] = field(default_factory=list)
    next_offsets: Mapping[int, int] = field(default_factory=dict)
    ended: bool = False


class AuditReader:
    """Reads all of `events`, in threads, because reading blocks.

    The partitions are merged by their records' times, then by partition: the same log gives the same order. Nothing is
    missed or repeated, because a page continues from an offset in each partition.
    """

    def __init__(self, log: EventLog, threads: int = 2) -> None:
        self._log = log
        self._threads = Threads(threads, "audit")

    def close(self) -> None:
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


"""Offsets that one page may read."""
"""Likewise, of their records."""


class ObservationsFound(NamedTuple):
    """A page of observations. place: where the next one begins; None: everything is searched.

    searched, size: how many offsets of the topic have been searched so far, and how many it has.
    """

    records: Sequence[bytes]
    place: Position | None
    searched: int
    size: int


class ObservationReader:
    """Reads `observations`, in threads, because reading blocks; partition by partition, in the order of arrival.

    The topic has no index by persons, so a page says how far it has searched.
    """

    def __init__(self, log: EventLog, threads: int = 2, max_offsets: int = MAX_OFFSETS) -> None:
        self._log, self._max_offsets = log, max_offsets
        self._threads = Threads(threads, "observations")

    def close(self) -> None:
        """End the threads."""
        self._threads.close()

    async def page(self, key_ids: Collection[str], limit: int, place: Position = FIRST_PLACE) -> ObservationsFound:
        """At most `limit` observations with a value that is sealed with one of these keys, from a place on.

        There are fewer if they are large, or if the page reads as much of the log as it may. Raises LogUnavailable.
        """
        return await self._threads.run_while_wanted(self._page, key_ids, limit, place)

    def _page(
        self, unwanted: threading.Event, key_ids: Collection[str], limit: int, place: Position
    ) -> ObservationsFound:
        partitions = range(self._log.partitions)
        firsts = topic_firsts(self._log, OBSERVATIONS, partitions)
        ends = topic_ends(self._log, OBSERVATIONS, partitions)
        bounds = [(firsts[partition], ends[partition]) for partition in partitions]
        texts = [f'"{START}{key_id}:'.encode() for key_id in key_ids]
        lines, size_bytes, read_bytes, left = list[bytes](), 0, 0, self._max_offsets
        for partition, (first, end) in enumerate(bounds):
            if partition < place.partition:
                continue
            start = max(first, place.offset) if partition == place.partition else first
            stop = min(end, start + left)
            for record in self._log.read(OBSERVATIONS, partition, start, stop):
                value = record.value or b""
                read_bytes += len(value)
                if any(text in value for text in texts):
                    lines.append(value)
                    size_bytes += len(value)
                is_full = len(lines) >= limit or size_bytes >= MAX_PAGE_BYTES or read_bytes >= MAX_READ_BYTES
                if is_full or unwanted.is_set():
                    stop = record.offset + 1
                    left = stop - start  # nothing of the next partition
                    break
            left -= max(0, stop - start)
            if stop < end:
                return _found(lines, bounds, Position(partition, stop))
        return _found(lines, bounds, None)


def _found(records: list[bytes], bounds: list[tuple[int, int]], place: Position | None) -> ObservationsFound:
    sizes = [end - first for first, end in bounds]
    searched = sum(sizes)
    if place is not None:
        searched = sum(sizes[: place.partition]) + place.offset - bounds[place.partition][0]
    return ObservationsFound(records, place, searched, sum(sizes))
