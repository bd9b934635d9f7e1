"""Tables whose rows were not read as they should have been: remembered for longer than the connector reports them.

A connector that fails between the start of its first snapshot and the first row that is stored takes the snapshot for
made when it starts again. So a table counts as read only if the end of its snapshot was reported, and its topic has
rows if it had any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from headwater.eventlog.capturing import control_notes, control_topics
from headwater.eventlog.capturing.control_notes import DATA_COLLECTIONS, Notes
from headwater.eventlog.capturing.control_topics import Scan
from headwater.eventlog.capturing.declaring import Captured, Source
from headwater.eventlog.capturing.naming import SourceNames
from headwater.eventlog.capturing.ports import Layout, Missed, StoredOffset
from headwater.eventlog.capturing.snapshot_queue import is_after_snapshot, queued
from headwater.eventlog.capturing.uncaptured_statements import Searched
from headwater.eventlog.heartbeats import PREFIX
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.ports import EventLog
from headwater.eventlog.settings import LogSettings


@dataclass(frozen=True, slots=True)
class Unread:
    """Tables whose rows are missing.

    late: declared later, and not read. never: left out by the first snapshot. failed: by their last snapshot, each with
    how Debezium calls the reason. reading: that the connector is reading again, or is going to. lost: that it was told
    to read, and neither has read nor is going to. unswept: whose topics may have rows that are gone. layouts: how
    tables are stored, as noted. missed: changes of tables that were not captured, as noted. searched: how far the
    history of definitions was searched for statements that changed rows.
    """

    late: frozenset[str]
    never: frozenset[str]
    failed: Mapping[str, str]
    reading: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()
    unswept: frozenset[str] = frozenset()
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    missed: Mapping[str, Sequence[Missed]] = field(default_factory=dict)
    searched: Searched = field(default_factory=Searched)


def note_first_snapshot(settings: LogSettings, names: SourceNames, source: Source) -> None:
    """Note which tables a new connector is to read, and where their topics end; raises LogUnavailable.

    A topic that has rows already may have some that were deleted before this connector came.
    """
    with closing(KafkaLog(settings)) as log:
        ends = {table.table: dict(log.stored_ends(table.topic())) for table in source.tables}
    control_topics.note(settings, names, control_notes.FIRST_SNAPSHOT, {DATA_COLLECTIONS: ends})
    if filled := with_rows(settings, source.tables):
        control_topics.note(settings, names, control_notes.UNSWEPT, {DATA_COLLECTIONS: filled})


def with_rows(settings: LogSettings, tables: Sequence[type[Captured]]) -> list[str]:
    """Those of these tables whose topics have rows already; raises LogUnavailable."""
    if not tables:
        return []
    with closing(KafkaLog(settings)) as log:
        return [table.table for table in tables if has_rows(log, table.topic(), {})]


def find_unread(settings: LogSettings, names: SourceNames, source: Source, stored_offset: StoredOffset) -> Unread:
    """The tables whose rows are missing, and note what the connector reports of others; raises LogUnavailable."""
    notes = control_topics.notes(settings, names)
    # in this order: a table leaves the offset when its end is reported, and is noted before it comes into the offset
    offset = stored_offset()
    reports = control_topics.reports(settings, names)
    scans = reports.scans
    declared = {table.table for table in source.tables}
    first = {name: ends for name, ends in notes.first.items() if name in declared and is_after_snapshot(offset)}
    read = {name for name, ends in first.items() if _is_read(settings, source.table(name), scans.get(name), ends)}
    failed = {name: scan.ended for name, scan in scans.items() if not scan.is_read}
    repaired = {name for name in notes.failed if name in scans and _is_repaired(name, scans[name], notes)}
    done_reading = {
        name for name, signal in notes.reading.items() if name in scans and scans[name].is_read_since(signal)
    }
    if done := sorted(read | repaired | done_reading):
        control_topics.note(settings, names, control_notes.WAS_READ, {DATA_COLLECTIONS: done})
    if new := {name: reason for name, reason in failed.items() if notes.failed.get(name) != reason}:
        control_topics.note(settings, names, control_notes.FAILED, {DATA_COLLECTIONS: new})
    if reports.starts > notes.starts:  # rows that an interrupted snapshot has read may be gone when it is made again
        restarted = {DATA_COLLECTIONS: [table.table for table in source.tables], "starts": reports.starts}
        control_topics.note(settings, names, control_notes.UNSWEPT, restarted)
        notes.add(control_notes.UNSWEPT, restarted)
    all_failed = {name: why for name, why in {**notes.failed, **failed}.items() if name not in repaired}
    reading = notes.reading.keys() - done_reading
    lost = reading - set(queued(offset)) if is_after_snapshot(offset) else set[str]()
    return Unread(
        late=frozenset(notes.unread),
        never=frozenset(first.keys() - read),
        failed=all_failed,
        reading=frozenset(reading - lost),
        lost=frozenset(lost - all_failed.keys()),
        unswept=frozenset(notes.unswept),
        layouts=notes.layouts,
        missed=notes.missed,
        searched=notes.searched,
    )


def _is_repaired(table: str, scan: Scan, notes: Notes) -> bool:
    since = notes.failed_since.get(table)
    return scan.is_read if since is None else scan.is_read_since(since)


def _is_read(settings: LogSettings, table: type[Captured], scan: Scan | None, ends: Mapping[int, int]) -> bool:
    if scan is None or not scan.is_read:
        return False
    if scan.rows == 0 or scan.ended == "EMPTY":
        return True
    with closing(KafkaLog(settings)) as log:
        return has_rows(log, table.topic(), ends)


def has_rows(log: EventLog, topic: str, starts: Mapping[int, int]) -> bool:
    """Whether the topic of a table has a record, other than heartbeats, from these offsets on, by partition."""
    return any(
        not record.key.startswith(PREFIX)
        for partition in log.stored_ends(topic)
        for record in log.read(topic, partition, max(starts.get(partition, 0), log.first(topic, partition)))
    )


def problem_of(source: Source, table: str, unread: Unread) -> str | None:
    """That rows of a table are missing, and what helps; None if none are."""
    if table in unread.late:
        return f'rows of table "{table}" were not read after it was declared: run headwater sources apply'
    if table in unread.never:
        return (
            f'rows of table "{table}" were never read, because its connector failed before its first snapshot was '
            f"stored: run headwater sources remove {source.name}, then apply, which reads all tables"
        )
    if table in unread.failed:
        return (
            f'rows of table "{table}" were not read: its last snapshot failed ({unread.failed[table]}): see the log of '
            f"Kafka Connect, then run headwater sources snapshot {table} --source {source.name}"
        )
    if table in unread.reading:
        return f'rows of table "{table}" are being read again: wait until status shows that its snapshot is completed'
    if table in unread.lost:
        return f'rows of table "{table}" were not read again as its connector was told: run headwater sources apply'
    return None
