"""Lets a connector read tables again, and deletes rows from topics that their tables no longer have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from headwater.eventlog.capturing.control_topics import PART
from headwater.eventlog.capturing.declaring import Captured
from headwater.eventlog.capturing.errors import SourceProblem
from headwater.eventlog.capturing.kafka_connect import BROKEN, all_queued, with_tables, without_tables
from headwater.eventlog.capturing.operated import Operated, is_reached
from headwater.eventlog.capturing.reconciling import note_read
from headwater.eventlog.capturing.schema_history import read_statements
from headwater.eventlog.capturing.sweeping import sweep

Incomplete = tuple[type[Captured], str]
"""A table with rows whose last records lack a value, and the condition of these; empty: all."""
STORED_S: Final = 30.0
"""How long a statement may take to be stored, once all changes of rows before it are captured."""


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
        note_read(of.control, of.source, [table.table for table in again], [table.table for table in sweeps])
        swept = sweep_tables(of, sweeps)
        read_again(of, again)
        problems += read_incomplete(of, [part for part in (*swept, *incomplete) if part[0] not in again])
        prepare()
    except BaseException:
        of.let_run()
        raise
    of.go_on()
    return True


def check_definitions(of: Operated, tables: Sequence[type[Captured]], timeout_s: float | None = None) -> None:
    """Raise SourceProblem, and note why, if the connector has other columns of one of these tables than the server,
    because Debezium has misread a statement that altered it.

    After a statement that swaps the names of two columns, Debezium lacks one of them. It fails at the next change of
    such a table, but rows that it reads again have no values, or those of other columns. timeout_s: how long to wait
    for what is still to be captured.
    """

    def misread() -> list[str]:
        statements, _ = read_statements(of.control.log, of.source)
        stored = {change.name.casefold(): change.columns for statement in statements for change in statement.changes}
        if not stored:
            return []
        with of.open_database() as database:
            layouts = database.layouts()
        known = [table.table for table in tables if table.table in layouts and table.table.casefold() in stored]
        return [name for name in known if _plain(stored[name.casefold()]) != _plain(layouts[name].order)]

    if not misread():
        return
    if not of.has_captured_all(timeout_s):
        raise SourceProblem(
            of.source.name,
            "changes of definitions are still to be captured, and rows would be read by the earlier ones: let its "
            "connector run until status shows that it is not behind, then run this again",
        )
    is_reached(lambda: not misread(), STORED_S)
    if tables_misread := misread():
        why = (
            f"Debezium has other columns of {', '.join(tables_misread)} than the server, as after an ALTER TABLE "
            "that swaps names of columns"
        )
        of.control.note("skipped-changes", reason=why)
        raise SourceProblem(of.source.name, of.advice(why))


def _plain(columns: Sequence[str]) -> list[str]:
    return [name.replace("``", "`").casefold() for name in columns]


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
    names, number = [table.table for table in tables], of.control.new_signal()
    if not where:
        of.control.note("reading", dict.fromkeys(names, number))
    # the end of a part of a table is not the end of an earlier reading of it
    signal = f"{number}{PART}" if where else number
    of.connect.change_offset(of.names.connector, lambda offset: with_tables(offset, names, where, signal))
    if not where:
        of.control.note("execute-snapshot", names)
    of.report(f"reading the rows of {', '.join(names)} again: `headwater sources status` shows how far")


def sweep_tables(of: Operated, tables: Sequence[type[Captured]], yes_delete: int = 0) -> list[Incomplete]:
    """Delete rows that are gone from the topics of these tables; returns what is to be read again.

    yes_delete: see `sweep`. Raises SourceProblem if more are gone.
    """
    incomplete: list[Incomplete] = []
    if not tables:
        return incomplete
    with of.open_database() as database:
        for table in tables:
            swept = sweep(of.settings.log, table, database, of.check_held, yes_delete)
            left = f", {swept.unreadable:,} left, whose keys cannot be read" if swept.unreadable else ""
            of.report(f"{table.table}: {swept.deleted:,} rows deleted, {swept.incomplete:,} incomplete{left}")
            if swept.incomplete:
                incomplete.append((table, swept.where))
            of.control.note("swept", [table.table])
    return incomplete


def read_incomplete(of: Operated, incomplete: Sequence[Incomplete]) -> list[str]:
    """Let a stopped connector read the rows that lack a value; returns why some cannot be read."""
    problems: list[str] = []
    with of.open_database() as database:
        for table, where in incomplete:
            if why := of.unchunked(database, [table]):
                problems += why
            else:
                read_again(of, [table], where)
    return problems


def give_up_reading(of: Operated) -> None:
    """Stop a connector that failed because the database refused to let a table be read, and leave its tables out.

    It would fail at its next start, too. The tables are named as failed.
    """
    state = of.state()
    if state is None or state.state != "FAILED" or BROKEN not in state.error:
        return
    if tables := all_queued(of.offset()):
        of.stop()
        failed = dict.fromkeys(tables, "SQL_EXCEPTION")
        of.control.note("failed", failed, since=of.control.new_signal())
        of.connect.change_offset(of.names.connector, without_tables)
