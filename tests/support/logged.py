"""Events appended as the owners of partitions do, and read back as views see them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

from headwater.eventlog.envelope import Position, decode, encode
from headwater.eventlog.ports import Entry, EventLog
from headwater.eventlog.topics import EVENTS
from headwater.projections.table.expressions import Source


def append(log: EventLog, sources: Iterable[Source]) -> None:
    """Append events to the partitions that they are made for, in one transaction each."""
    made: dict[int, list[Entry]] = {}
    for source in sources:
        entry = Entry(EVENTS, source.envelope.id, encode(source.envelope), source.timestamp_ms)
        made.setdefault(source.position.partition, []).append(entry)
    for partition, entries in made.items():
        with closing(log.own(partition)) as writer:
            transaction = writer.begin()
            transaction.append(entries)
            transaction.commit()


def settle(log: EventLog) -> None:
    """See to it that what was appended is seen: a new owner waits for the end of earlier transactions."""
    for partition in range(log.partitions):
        log.own(partition).close()


def logged(log: EventLog) -> list[Source]:
    """All events, where they stand in the log."""
    return [
        Source(
            decode(record.value),
            Position(partition, record.offset),
            record.timestamp_ms,
            (record.value or b"").decode(),
        )
        for partition in range(log.partitions)
        for record in log.read(EVENTS, partition, 0)
    ]
