"""What `apply` is to do so that a source is as declared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.eventlog.capturing.connector import (
    changed_keys,
    connector_config,
    differences,
    new_databases,
    tables_to_read_again,
)
from headwater.eventlog.capturing.control_topics import Snapshot
from headwater.eventlog.capturing.database import Database
from headwater.eventlog.capturing.declaring import Captured
from headwater.eventlog.capturing.errors import SourceProblem
from headwater.eventlog.capturing.naming import source_topics
from headwater.eventlog.capturing.operated import Operated
from headwater.eventlog.capturing.reconciling import Findings, reconcile
from headwater.eventlog.kafka.admin import missing_topics


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
    found = reconcile(of.control, source, of.offset, registered, database)
    wanted = connector_config(source, of.settings, checked.version)
    changes = [f"+ topic {name}" for name in missing_topics(of.settings.log, source_topics(source, of.settings.log))]
    changes += database.preparations()
    if registered is None:
        changes.append(f"+ connector {of.names.connector}, with these properties:")
    changes += [f"{line[:2]}connector: {line[2:]}" for line in differences(wanted, registered or {})]
    if registered is None:
        return Plan(wanted, registered, found, [], [], changes)
    if refused := _refused(wanted, registered, found):
        raise SourceProblem(source.name, *refused)
    new, late, changed = tables_to_read_again(wanted, registered), found.late_tables(), found.changed_tables()
    again = [table for table in source.tables if table in late or table in changed or table.table in new]
    snapshot = of.control.last_snapshot()
    if hindered := [*_still_running(snapshot, found, again), *of.unchunked(database, again)]:
        raise SourceProblem(source.name, *hindered)
    is_read_first = snapshot is not None and snapshot.kind == "initial" and snapshot.is_running
    sweeps = [] if is_read_first else found.unswept_tables()
    changes += [f"+ rows of {table.table}, which {each.why}" for table in changed for each in found.missed[table.table]]
    changes += [f"+ rows of {table.table}, which were not read after it was declared" for table in late]
    changes += [f"- rows of {table.table} that are gone" for table in sweeps]
    return Plan(wanted, registered, found, again, sweeps, changes)


def _refused(wanted: dict[str, str], registered: dict[str, str], found: Findings) -> Sequence[str]:
    """What an existing connector cannot be changed into."""
    source = found.source
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
    return Findings(source, never=found.never).problems()


def _still_running(snapshot: Snapshot | None, found: Findings, again: Sequence[type[Captured]]) -> list[str]:
    """Why tables that changed cannot be read now: a snapshot that began before would count as the one that follows."""
    if snapshot is None or not snapshot.is_running:
        return []
    is_first = snapshot.kind == "initial"
    return [
        f'table "{table.table}" changed while it was read, and its {snapshot.kind} snapshot still runs: wait until it '
        "is completed, then run headwater sources apply again"
        for table in found.source.tables
        if table.table in found.missed and (is_first or (table in again and table.table in found.reading))
    ]
