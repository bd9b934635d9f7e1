"""Tables that Debezium has other columns of than the server, because it has misread a statement that altered them.

After a statement that swaps the names of two columns, Debezium lacks one of them. It fails at the next change of such a
table, but rows that it reads again have no values, or those of other columns. So they are not read by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headwater.eventlog.capturing import skipped_changes
from headwater.eventlog.capturing.connector_states import is_reached
from headwater.eventlog.capturing.declaring import Captured
from headwater.eventlog.capturing.errors import SourceProblem
from headwater.eventlog.capturing.operated import Operated
from headwater.eventlog.capturing.schema_history import read_statements

STORED_S: Final = 30.0
"""How long a statement may take to be stored, once all changes of rows before it are captured."""


def check_definitions(of: Operated, tables: Sequence[type[Captured]], timeout_s: float | None = None) -> None:
    """Raise SourceProblem, and note why, if the connector has other columns of one of these tables than the server.

    timeout_s: how long to wait for what is still to be captured.
    """
    if not _misread(of, tables):
        return
    if not of.has_captured_all(timeout_s):
        raise SourceProblem(
            of.source.name,
            "changes of definitions are still to be captured, and rows would be read by the earlier ones: let its "
            "connector run until status shows that it is not behind, then run this again",
        )
    is_reached(lambda: not _misread(of, tables), STORED_S)
    if not (misread := _misread(of, tables)):
        return
    why = (
        f"Debezium has other columns of {', '.join(misread)} than the server, as after an ALTER TABLE "
        "that swaps names of columns"
    )
    skipped_changes.note_skipped(of.settings.log, of.names, why)
    raise SourceProblem(of.source.name, skipped_changes.advice(of.source.name, why))


def _misread(of: Operated, tables: Sequence[type[Captured]]) -> list[str]:
    statements, _ = read_statements(of.settings.log, of.source)
    stored = {change.name.casefold(): change.columns for statement in statements for change in statement.changes}
    if not stored:
        return []
    with of.open_database() as database:
        found = database.layouts()
    known = [table.table for table in tables if table.table in found and table.table.casefold() in stored]
    return [name for name in known if _plain(stored[name.casefold()]) != _plain(found[name].order)]


def _plain(columns: Sequence[str]) -> list[str]:
    return [name.replace("``", "`").casefold() for name in columns]
