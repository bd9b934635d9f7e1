"""Compares what is with what is declared: the one place that says which rows of a source may be wrong, and why; and
what `apply` is to do so that all is as declared.

`apply` mends what it finds; `status` and `watch` name it. A log of changes does not have all of them: TRUNCATE, ALTER
TABLE, partitions that come and go, and tables that are replaced change rows without a word. So how each table is stored
is noted before its rows are read, and compared from then on.

A connector that fails between the start of its first snapshot and the first row that is stored takes the snapshot for
made when it starts again. So a table counts as read only if the end of its snapshot was reported, and its topic has
rows if it had any. All of this is remembered for longer than the connector reports it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import msgspec

from headwater.eventlog.capturing.connector import (
    captures,
    changed_keys,
    connector_config,
    differences,
    new_databases,
    tables_to_read_again,
)
from headwater.eventlog.capturing.control_topics import PART, ControlTopics, Snapshot
from headwater.eventlog.capturing.database import Database, Layout, Missed, StoredOffset
from headwater.eventlog.capturing.declaring import Captured, Source
from headwater.eventlog.capturing.errors import SourceProblem
from headwater.eventlog.capturing.kafka_connect import is_after_snapshot, queued
from headwater.eventlog.capturing.naming import source_topics
from headwater.eventlog.capturing.operated import Operated
from headwater.eventlog.capturing.schema_history import Searched, find_uncaptured
from headwater.eventlog.heartbeats import PREFIX
from headwater.eventlog.kafka.admin import missing_topics
from headwater.eventlog.ports import EventLog


@dataclass(slots=True)
class Findings:
    """What of a source is not as declared, as far as rows are concerned.

    late: tables that were declared later, and not read. never: left out by the first snapshot. failed: by their last
    snapshot, each with how Debezium calls the reason. reading: that the connector is reading again, or is going to.
    lost: that it was told to read, and neither has read nor is going to. unswept: whose topics may have rows that are
    gone. missed: changes of tables that the log of the database does not have. noted: how tables are stored, as noted.
    layouts: how they are stored now, if the database answers. searched: how far the history of definitions was searched
    for statements that changed rows.
    """

    source: Source
    late: frozenset[str] = frozenset()
    never: frozenset[str] = frozenset()
    failed: Mapping[str, str] = field(default_factory=dict)
    reading: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()
    unswept: frozenset[str] = frozenset()
    missed: dict[str, Sequence[Missed]] = field(default_factory=dict)
    noted: Mapping[str, Layout] = field(default_factory=dict)
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    searched: Searched = field(default_factory=Searched)

    def late_tables(self) -> list[type[Captured]]:
        """Tables that were declared or changed later, and not read."""
        return [table for table in self.source.tables if table.table in self.late | self.lost]

    def problems(self) -> list[str]:
        """What is not as declared, each with what helps."""
        return [problem for table in self.source.tables for problem in self._problems(table.table)]

    def _problems(self, table: str) -> Iterator[str]:
        if problem := self.problem_of(table):
            yield problem
        for missed in self.missed.get(table, ()):
            yield (
                f'table "{table}" {missed.why}, of which the log of the database has no changes: run '
                "headwater sources apply, which reads its rows again, and deletes those that are gone"
            )
        if table in self.unswept:
            yield (
                f'the topic of table "{table}" may have rows that were deleted while they were not captured: once its '
                f"snapshot is completed, run headwater sources sweep {self.source.name}"
            )

    def problem_of(self, table: str) -> str | None:
        """That rows of a table are missing, and what helps; None if none are."""
        if table in self.late:
            return f'rows of table "{table}" were not read after it was declared: run headwater sources apply'
        if table in self.never:
            return (
                f'rows of table "{table}" were never read, because its connector failed before its first snapshot was '
                f"stored: run headwater sources remove {self.source.name}, then apply, which reads all tables"
            )
        if table in self.failed:
            return (
                f'rows of table "{table}" were not read: its last snapshot failed ({self.failed[table]}): see the log '
                f"of Kafka Connect, then run headwater sources snapshot {table} --source {self.source.name}"
            )
        if table in self.reading:
            return (
                f'rows of table "{table}" are being read again: wait until status shows that its snapshot is completed'
            )
        if table in self.lost:
            return f'rows of table "{table}" were not read again as its connector was told: run headwater sources apply'
        return None


def find_unread(control: ControlTopics, source: Source, stored_offset: StoredOffset) -> Findings:
    """The tables whose rows are missing, and note what the connector reports of others; raises LogUnavailable."""
    notes = control.notes()
    # in this order: a table leaves the offset when its end is reported, and is noted before it comes into the offset
    offset = stored_offset()
    reports = control.reports()
    declared = {table.table for table in source.tables}
    scans = {
        # the end that says how it was read as a whole: the first one since the connector was told to, or the last
        name: next((scan for scan in ended if name in notes.reading and scan.is_since(notes.reading[name])), ended[-1])
        for name, ended in reports.scans.items()
    }
    read, repaired, done_reading = set[str](), set[str](), set[str]()
    first = {name: ends for name, ends in notes.first.items() if name in declared and is_after_snapshot(offset)}
    for name, scan in scans.items():
        if name in first and scan.is_read:
            was_empty = scan.rows == 0 or scan.ended == "EMPTY"
            if was_empty or has_rows(control.log, source.table(name).topic(), first[name]):
                read.add(name)
        since = notes.failed_since.get(name)
        is_whole = scan.is_read and not scan.signal.endswith(PART)
        if name in notes.failed and is_whole and (since is None or scan.is_since(since)):
            repaired.add(name)
        if name in notes.reading and scan.is_read and scan.is_since(notes.reading[name]):
            done_reading.add(name)
    if done := sorted(read | repaired | done_reading):
        control.note("read", done)
    failed = {name: scan.ended for name, scan in scans.items() if not scan.is_read}
    if new := {name: reason for name, reason in failed.items() if notes.failed.get(name) != reason}:
        control.note("failed", new)
    if reports.starts > notes.starts:  # rows that an interrupted snapshot has read may be gone when it begins again
        control.note("unswept", [table.table for table in source.tables], starts=reports.starts)
        notes.unswept |= declared
    all_failed = {name: why for name, why in {**notes.failed, **failed}.items() if name not in repaired}
    reading = notes.reading.keys() - done_reading
    lost = reading - set(queued(offset)) if is_after_snapshot(offset) else set[str]()
    return Findings(
        source,
        late=frozenset(notes.unread),
        never=frozenset(first.keys() - read),
        failed=all_failed,
        reading=frozenset(reading - lost),
        lost=frozenset(lost - all_failed.keys()),
        unswept=frozenset(notes.unswept),
        missed={name: missed for name, missed in notes.missed.items() if name in declared},
        noted=notes.layouts,
        searched=notes.searched,
    )


def has_rows(log: EventLog, topic: str, starts: Mapping[int, int]) -> bool:
    """Whether the topic of a table has a record, other than heartbeats, from these offsets on, by partition."""
    return any(
        not record.key.startswith(PREFIX)
        for partition in log.stored_ends(topic)
        for record in log.read(topic, partition, max(starts.get(partition, 0), log.first(topic, partition)))
    )


def reconcile(
    control: ControlTopics,
    source: Source,
    offset: StoredOffset,
    config: Mapping[str, str] | None,
    database: Database | None,
) -> Findings:
    """Find what is not as declared, and note what is new of tables that are; raises SourceProblem or LogUnavailable.

    offset, config: of the connector, as far as there is one. database: None if it does not answer, so that only the log
    is known.
    """
    findings = find_unread(control, source, offset)
    if config is None or database is None:
        return findings
    findings.layouts = database.layouts()
    kept, new = dict[str, Layout](), dict[str, list[Missed]]()
    stated, searched = find_uncaptured(control.log, source, findings.searched)
    for name, now in findings.layouts.items():
        if not captures(config, name):
            continue
        noted = findings.noted.get(name)
        lacking = [Missed(now.losing)] if now.losing else []
        changes = [*lacking, *database.missed(noted or now, now), *stated.get(name, ())]
        # each is kept until the table is read again, also if its cause ends before
        if fresh := [change for change in changes if change not in findings.missed.get(name, ())]:
            new[name] = fresh
        if (layout := now.noted(noted or now, source.table(name).columns)) != noted:
            kept[name] = layout
    _note_missed(control, new, searched if searched != findings.searched else None)
    if kept:
        note_layouts(control, kept)
    for name, changes in new.items():
        findings.missed[name] = list(dict.fromkeys([*findings.missed.get(name, ()), *changes]))
    return findings


def _note_missed(control: ControlTopics, missed: Mapping[str, Sequence[Missed]], searched: Searched | None) -> None:
    """Note what was missed first, and keep it: a change may be undone, and leave rows behind, before it is mended."""
    if missed:
        control.note("missed", {name: msgspec.to_builtins(changes) for name, changes in missed.items()})
    if searched is not None:
        control.note("searched", **asdict(searched))


def note_first_snapshot(control: ControlTopics, source: Source) -> None:
    """Note which tables a new connector is to read, and where their topics end; raises LogUnavailable.

    A topic that has rows already may have some that were deleted before this connector came.
    """
    ends = {table.table: dict(control.log.stored_ends(table.topic())) for table in source.tables}
    control.note("first-snapshot", ends)
    if filled := [table.table for table in source.tables if has_rows(control.log, table.topic(), {})]:
        control.note("unswept", filled)


def note_read(control: ControlTopics, source: Source, again: Collection[str], swept: Collection[str]) -> None:
    """Note statements that a connector has stored before it reads tables again: these rows are what they left.

    again, swept: the tables that are about to be read, and those that are swept. Raises LogUnavailable.
    """
    before = control.notes().searched
    stated, searched = find_uncaptured(control.log, source, before)
    left = dict[str, list[Missed]]()
    for name, missed in stated.items():
        if rest := [why for why in missed if (why.reads and name not in again) or (why.sweeps and name not in swept)]:
            left[name] = rest
    _note_missed(control, left, searched if searched != before else None)


def note_mending(
    control: ControlTopics, findings: Findings, again: Sequence[str], new: Sequence[type[Captured]], database: Database
) -> set[str]:
    """Note that tables are to be read again, and which are to be swept; changes after that are found as such.

    again: that are to be read. new: of these, the ones that were not captured before. Returns the tables to be swept,
    beside those that were to be before.
    """
    layouts, kept = database.layouts(), dict[str, Layout]()
    if again:
        control.note("unread", again)
    unswept = [name for name, missed in findings.missed.items() if any(why.sweeps for why in missed)]
    unswept += [table.table for table in new if has_rows(control.log, table.topic(), {})]
    if unswept:
        control.note("unswept", unswept)
    for name, layout in layouts.items():
        # a publication that is altered for other tables is not what makes a table unlike itself
        now = msgspec.structs.replace(findings.layouts.get(name, layout), published=layout.published)
        declared = findings.source.table(name).columns
        kept[name] = now if name in again else now.noted(findings.noted.get(name, now), declared)
    if kept:
        note_layouts(control, kept)
    if findings.missed:
        control.note("mended", sorted(findings.missed))
    return set(unswept)


def note_layouts(control: ControlTopics, layouts: Mapping[str, Layout]) -> None:
    """Note how tables are stored; raises LogUnavailable."""
    noted = {name: msgspec.to_builtins(layout.noted(layout, ())) for name, layout in layouts.items()}
    control.note("layouts", noted)


@dataclass(frozen=True, slots=True)
class Plan:
    """What `apply` is to do.

    wanted: the properties of the connector, as declared.
    registered: those that it has; None: there is no connector yet.
    found: of the rows.
    again: the tables whose rows are to be read again.
    sweeps: the tables whose topics may have rows that are gone.
    changes: a line per change; without any, there is nothing to do.
    """

    wanted: dict[str, str]
    registered: dict[str, str] | None
    found: Findings
    again: Sequence[type[Captured]]
    sweeps: Sequence[type[Captured]]
    changes: Sequence[str]

    @property
    def differs(self) -> bool:
        """Whether the connector has other properties."""
        return bool(differences(self.wanted, self.registered or {}))


def make_plan(of: Operated, database: Database) -> Plan:
    """Plan what makes all as declared; raises SourceProblem if nothing does, ConnectError or LogUnavailable."""
    source, registered = of.source, of.connect.config(of.names.connector)
    checked = database.check(registered is not None)
    if problems := [lost] if (lost := of.lost(database)) else checked.problems:
        raise SourceProblem(source.name, *problems)
    findings = reconcile(of.control, source, of.offset, registered, database)
    wanted = connector_config(source, of.settings, checked.version)
    changes = [f"+ topic {name}" for name in missing_topics(of.settings.log, source_topics(source, of.settings.log))]
    changes += database.preparations()
    if registered is None:
        changes.append(f"+ connector {of.names.connector}, with these properties:")
    changes += [f"{line[:2]}connector: {line[2:]}" for line in differences(wanted, registered or {})]
    if registered is None:
        return Plan(wanted, registered, findings, [], [], changes)
    if refused := _refused(wanted, registered, findings):
        raise SourceProblem(source.name, *refused)
    new, late = tables_to_read_again(wanted, registered), findings.late_tables()
    changed = [table for table in source.tables if any(why.reads for why in findings.missed.get(table.table, ()))]
    again = [table for table in source.tables if table in late or table in changed or table.table in new]
    snapshot = of.control.last_snapshot()
    if hindered := [*_still_running(snapshot, findings, again), *of.unchunked(database, again)]:
        raise SourceProblem(source.name, *hindered)
    is_read_first = snapshot is not None and snapshot.kind == "initial" and snapshot.is_running
    unswept = findings.unswept.union(
        name for name, missed in findings.missed.items() if any(why.sweeps for why in missed)
    )
    sweeps = [] if is_read_first else [table for table in source.tables if table.table in unswept]
    changes += [
        f"+ rows of {table.table}, which {row.why}" for table in changed for row in findings.missed[table.table]
    ]
    changes += [f"+ rows of {table.table}, which were not read after it was declared" for table in late]
    changes += [f"- rows of {table.table} that are gone" for table in sweeps]
    return Plan(wanted, registered, findings, again, sweeps, changes)


def _refused(wanted: dict[str, str], registered: dict[str, str], findings: Findings) -> Sequence[str]:
    """What an existing connector cannot be changed into."""
    source = findings.source
    if changed := changed_keys(wanted, registered):
        return [
            f'the key of table "{table}" has changed, and its topic has rows under the old key: keep the key, or run '
            f"headwater sources remove {source.name} --topics, then apply, and rebuild its views"
            for table in changed
        ]
    if databases := new_databases(wanted, registered):
        return [
            f'no table of database "{database}" was captured before, so its connector lacks their definitions: run '
            f"headwater sources remove {source.name}, then apply, which reads all tables again, then "
            "sweep, or declare a source of its own for that database"
            for database in databases
        ]
    return Findings(source, never=findings.never).problems()


def _still_running(snapshot: Snapshot | None, findings: Findings, again: Sequence[type[Captured]]) -> list[str]:
    """Why tables that changed cannot be read now: a snapshot that began before would count as the one that follows."""
    if snapshot is None or not snapshot.is_running:
        return []
    is_first = snapshot.kind == "initial"
    return [
        f'table "{table.table}" changed while it was read, and its {snapshot.kind} snapshot still runs: wait until it '
        "is completed, then run headwater sources apply again"
        for table in findings.source.tables
        if table.table in findings.missed and (is_first or (table in again and table.table in findings.reading))
    ]
