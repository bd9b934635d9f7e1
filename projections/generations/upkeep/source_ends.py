"""The ends of the sources, as one look finds them: how many events each view has not applied, and since when."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headwater.eventlog.heartbeats import is_heartbeat_key
from headwater.eventlog.ports import EventLog
from headwater.eventlog.source_positions import topic_and_partition

COUNTED_RECORDS: Final = 20_000
"""Events are counted in so many offsets before the end of a source; before these, offsets are counted."""
READ_RECORDS: Final = 500
"""So many offsets are read at once to find the first event after a position before these."""
FIRST_WINDOW: Final = 16
LAST_WINDOW: Final = 16_384
"""Offsets before a position in which the last record is looked for: most are markers of transactions, or compacted."""


@dataclass(frozen=True)
class Tail:
    """The end of one source.

    start: from here on, events are counted. offsets, times_ms: of the events from `start` to `end`. older_ms: by
    position before `start`, the time of the first event from there on.
    """

    start: int
    end: int
    offsets: Sequence[int]
    times_ms: Sequence[int]
    older_ms: Mapping[int, int | None]

    def after(self, position: int) -> tuple[int, int | None]:
        """The number of events from `position` on, and the time of the first one in milliseconds since 1970.

        position: one of those that the tail was read for.
        """
        first = bisect_left(self.offsets, position)
        older_ms = self.older_ms.get(position)
        if older_ms is None and first < len(self.offsets):
            older_ms = self.times_ms[first]
        return max(0, self.start - position) + len(self.offsets) - first, older_ms


def last_time(log: EventLog, source: str, position: int) -> int | None:
    """The time of the last record before a position, heartbeats included, in milliseconds since 1970.

    None if there is none near. Raises LogUnavailable.
    """
    window = FIRST_WINDOW
    while position and window <= LAST_WINDOW:
        start, last = max(0, position - window), None
        for record in log.read(*topic_and_partition(source), start, position):
            last = record.timestamp_ms
        if last is not None or not start:
            return last
        window *= 4
    return None


def read_tails(log: EventLog, positions: Mapping[str, Collection[int]], ends: Mapping[str, int]) -> dict[str, Tail]:
    """The tails of these sources. positions: by source, those of all views. Raises LogUnavailable."""
    return {source: _read(log, source, positions.get(source, ()), end) for source, end in ends.items()}


def _read(log: EventLog, source: str, positions: Collection[int], end: int) -> Tail:
    start = max(min(positions, default=end), end - COUNTED_RECORDS)
    counted = list(_events(log, source, start, end))
    older_ms = {each: _first_ms(log, source, each, start) for each in set(positions) if each < start}
    return Tail(start, end, [offset for offset, _ in counted], [at_ms for _, at_ms in counted], older_ms)


def _first_ms(log: EventLog, source: str, start: int, end: int) -> int | None:
    """The time of the first event; a read that is broken off would cost a connection."""
    for each in range(start, end, READ_RECORDS):
        if found := list(_events(log, source, each, min(each + READ_RECORDS, end))):
            return found[0][1]
    return None


def _events(log: EventLog, source: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Offset and time of each record that is no heartbeat."""
    for record in log.read(*topic_and_partition(source), start, end):
        if not is_heartbeat_key(record.key, record.topic):
            yield record.offset, record.timestamp_ms
