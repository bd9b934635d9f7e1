"""Records that wait because their process instance failed; kept in `processes`, in the order of `process-inbox`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice, takewhile
from typing import Final, NamedTuple

from msgspec import structs

from eventlog import topics
from eventlog.ports import Entry, EventLog, Record

PARKED_PREFIX: Final = "parked:"
"""Start of the keys of these records; process names have no colon."""
MAX_SPAN_OFFSETS: Final = 10_000
"""Of the records of `processes` that are read to find waiting ones."""


class _ParkedPlace(NamedTuple):
    """The place of a waiting record in `process-inbox`, and its place in `processes`."""

    inbox_offset: int
    offset: int


class ParkedRecords:
    """The waiting records, by the record key of their instance. Only places are in memory, so any number may wait."""

    def __init__(self, log: EventLog, partition: int) -> None:
        self._log, self._partition = log, partition
        self._places: dict[str, deque[_ParkedPlace]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return sum(map(len, self._places.values()))

    def count(self, key: str) -> int:
        """The number of records that wait for this instance."""
        return len(self._places.get(key, ()))

    def restore(self, record: Record) -> None:
        """Add a record of `processes` whose key starts with PARKED_PREFIX; they come in the order of their offsets."""
        key, _, inbox_offset = record.key.removeprefix(PARKED_PREFIX).rpartition("/")
        if record.value is not None:
            self.add(key, int(inbox_offset), record.offset)
            return
        places = self._places.get(key)
        if places and places[0].inbox_offset == int(inbox_offset):  # they are handled in order
            self.remove(key, 1)
        else:
            self.forget(key, frozenset({int(inbox_offset)}))

    def add(self, key: str, inbox_offset: int, offset: int) -> None:
        """Add another waiting record, at `offset` of `processes`."""
        self._places.setdefault(key, deque()).append(_ParkedPlace(inbox_offset, offset))

    def remove(self, key: str, count: int) -> None:
        """Remove the first `count` records of this instance."""
        places = self._places[key]
        for _ in range(count):
            places.popleft()
        if not places:
            del self._places[key]

    def forget(self, key: str, inbox_offsets: frozenset[int]) -> None:
        """Remove records of this instance that were erased, wherever they are in the order."""
        places = self._places.get(key, deque())
        if left := deque(place for place in places if place.inbox_offset not in inbox_offsets):
            self._places[key] = left
        else:
            self._places.pop(key, None)

    def first(self, key: str, limit: int) -> list[tuple[int, Record | None]]:
        """The first records of this instance, at most `limit`: their offsets in `process-inbox`, and their content.

        A record that was erased is None.
        """
        places = self._places[key]
        end = places[0].offset + MAX_SPAN_OFFSETS
        chosen = list(takewhile(lambda place: place.offset < end, islice(places, limit)))
        wanted = {place.offset: place.inbox_offset for place in chosen}
        read = self._log.read(topics.PROCESSES, self._partition, chosen[0].offset, chosen[-1].offset + 1)
        found = {
            record.offset: structs.replace(record, topic=topics.INBOX, key=key, offset=wanted[record.offset])
            for record in read
            if record.offset in wanted
        }
        return [(place.inbox_offset, found.get(place.offset)) for place in chosen]


def parked(record: Record) -> Entry:
    """The record of `processes` for a record of `process-inbox` that waits."""
    return Entry(topics.PROCESSES, f"{PARKED_PREFIX}{record.key}/{record.offset}", record.value, record.timestamp_ms)


def released(key: str, inbox_offset: int, now_ms: int) -> Entry:
    """The tombstone for a waiting record that was handled."""
    return Entry(topics.PROCESSES, f"{PARKED_PREFIX}{key}/{inbox_offset}", None, now_ms)
