"""Lets a connector read tables again, and deletes rows from topics that their tables no longer have."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headwater.eventlog.capturing import control_notes, control_topics
from headwater.eventlog.capturing.declaring import Captured
from headwater.eventlog.capturing.misread_definitions import check_definitions
from headwater.eventlog.capturing.operated import Operated
from headwater.eventlog.capturing.planning import unchunked
from headwater.eventlog.capturing.reconciling import Findings, note_read
from headwater.eventlog.capturing.snapshot_queue import BROKEN, all_queued, with_tables, without_tables
from headwater.eventlog.capturing.sweeping import sweep
from headwater.eventlog.capturing.unread_tables import find_unread

Incomplete = tuple[type[Captured], str]
"""A table with rows whose last records lack a value, and the condition of these; empty: all."""


def late_tables(of: Operated) -> list[type[Captured]]:
    """Tables that an earlier command has not read, because the connector did not run, or was behind."""
    unread = find_unread(of.settings.log, of.names, of.source, of.offset)
    return Findings(of.source, unread).late()


def mend_rows(
    of: Operated,
    again: Sequence[type[Captured]],
    sweeps: Sequence[type[Captured]],
    problems: list[str],
    prepare: Callable[[], object] = bool,
    timeout_s: float | None = None,
    incomplete: Sequence[Incomplete] = (),
) -> bool:
    """Sweep tables, and let the connector read tables again, once it has captured all until now; whether it has.

    If rows changed without a change in the log, an earlier change of such a row must not come behind the row as it
    is read: Debezium does not hold back what it has read until it has sent what was changed before. problems: gets
    those of tables that cannot be read again, whose records are incomplete. prepare: called while the connector is
    stopped. timeout_s: how long to wait for a connector that runs. incomplete: what else is to be read again. Raises
    SourceProblem if it would misread rows.
    """
    if not of.has_captured_all(timeout_s):
        return False
    check_definitions(of, again, timeout_s)
    try:
        of.stop()
        note_read(of.settings.log, of.names, of.source, [t.table for t in again], [t.table for t in sweeps])
        swept = sweep_tables(of, sweeps)
        read_again(of, again)
        problems += read_incomplete(of, [each for each in (*swept, *incomplete) if each[0] not in again])
        prepare()
    except BaseException:
        of.let_run()
        raise
    of.go_on()
    return True


def report_late(of: Operated, again: Sequence[type[Captured]], sweeps: Sequence[type[Captured]]) -> None:
    """Say when tables are read again or swept, although not now."""
    later = "once all earlier changes are captured"
    if again:
        names = ", ".join(table.table for table in again)
        of.report(f"rows of {names} are read again by headwater sources watch, or the next apply, {later}")
    if sweeps:
        names = ", ".join(table.table for table in sweeps)
        of.report(f"rows of {names} that are gone are deleted by the next apply, {later}")


def read_again(of: Operated, tables: Sequence[type[Captured]], where: str = "") -> None:
    """Let a connector that is stopped read tables when it runs, and keep on until they are read."""
    if not tables:
        return
    names, number = [table.table for table in tables], control_topics.new_signal(of.names)
    log, noted = of.settings.log, {control_notes.DATA_COLLECTIONS: names}
    if not where:
        reading = {control_notes.DATA_COLLECTIONS: dict.fromkeys(names, number)}
        control_topics.note(log, of.names, control_notes.READING, reading)
    # the end of a part of a table is not the end of an earlier reading of it
    signal = f"{number}-part" if where else number
    of.connect.change_offset(of.names.connector, lambda offset: with_tables(offset, names, where, signal))
    if not where:
        control_topics.note(log, of.names, control_notes.SNAPSHOT, noted)
    of.report(f"reading the rows of {', '.join(names)} again: `headwater sources status` shows how far")


def sweep_tables(of: Operated, tables: Sequence[type[Captured]]) -> list[Incomplete]:
    """Delete rows that are gone from the topics of these tables; returns what is to be read again."""
    incomplete: list[Incomplete] = []
    if not tables:
        return incomplete
    with of.open_database() as database:
        for table in tables:
            swept = sweep(of.settings.log, table, database, lambda: of.hold.check(of.source.name))
            left = f", {swept.unreadable:,} left, whose keys cannot be read" if swept.unreadable else ""
            of.report(f"{table.table}: {swept.deleted:,} rows deleted, {swept.incomplete:,} incomplete{left}")
            if swept.incomplete:
                incomplete.append((table, swept.where))
            done = {control_notes.DATA_COLLECTIONS: [table.table]}
            control_topics.note(of.settings.log, of.names, control_notes.SWEPT, done)
    return incomplete


def read_incomplete(of: Operated, incomplete: Sequence[Incomplete]) -> list[str]:
    """Let a stopped connector read the rows that lack a value; returns why some cannot be read."""
    problems: list[str] = []
    with of.open_database() as database:
        for table, where in incomplete:
            if why := unchunked(of.source, database, [table]):
                problems += why
            else:
                read_again(of, [table], where)
    return problems


def give_up_reading(of: Operated) -> None:
    """Stop a connector that failed because the database refused to let a table be read, and leave its tables out.

    It would fail at its next start, too. The tables are named as failed.
    """
    state = of.connect.state(of.names.connector)
    if state is None or state.state != "FAILED" or BROKEN not in state.error:
        return
    if tables := all_queued(of.offset()):
        of.stop()
        failed = {
            control_notes.DATA_COLLECTIONS: dict.fromkeys(tables, "SQL_EXCEPTION"),
            control_notes.SINCE: control_topics.new_signal(of.names),
        }
        control_topics.note(of.settings.log, of.names, control_notes.FAILED, failed)
        of.connect.change_offset(of.names.connector, without_tables)
