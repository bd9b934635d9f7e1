"""Records that wait for their process instance; kept in `processes`, in the order of `process-inbox`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Final

from msgspec import structs

from headwater.commands.reacting.instance_store import WaitingPlace
from headwater.eventlog import topics
from headwater.eventlog.ports import Entry, EventLog, Record

PARKED_PREFIX: Final = "parked:"
"""Start of the keys of these records; process names have no colon."""
MAX_SPAN_OFFSETS: Final = 10_000
"""Of the records of `processes` that are read to find waiting ones."""


def read_waiting(
    log: EventLog, partition: int, key: str, places: Sequence[WaitingPlace]
) -> list[tuple[int, Record | None]]:
    """The first of these records, with their offsets in `process-inbox`; a record that was erased is None."""
    if not places:
        return []
    end = places[0].offset + MAX_SPAN_OFFSETS
    chosen = list(takewhile(lambda place: place.offset < end, places))
    wanted = {place.offset: place.inbox_offset for place in chosen}
    read = log.read(topics.PROCESSES, partition, chosen[0].offset, chosen[-1].offset + 1)
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


def parked_place(record_key: str) -> tuple[str, int]:
    """The record key of the instance for which a record of `processes` waits, and its offset in `process-inbox`."""
    key, _, inbox_offset = record_key.removeprefix(PARKED_PREFIX).rpartition("/")
    return key, int(inbox_offset)
