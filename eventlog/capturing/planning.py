"""What `apply` is to do so that a source is as declared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headwater.eventlog.capturing import control_topics
from headwater.eventlog.capturing.connector import (
    captures,
    changed_keys,
    connector_config,
    differences,
    new_databases,
    tables_to_read_again,
)
from headwater.eventlog.capturing.declaring import Captured, Source
from headwater.eventlog.capturing.errors import SourceProblem
from headwater.eventlog.capturing.naming import SourceNames, source_topics
from headwater.eventlog.capturing.ports import Database
from headwater.eventlog.capturing.reconciling import Findings
from headwater.eventlog.capturing.settings import SourceSettings
from headwater.eventlog.capturing.unread_tables import Unread, problem_of
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

    def is_new(self, table: type[Captured]) -> bool:
        """Whether the table was not captured before, although others were."""
        return self.registered is not None and not captures(self.registered, table.table)


def make_plan(
    settings: SourceSettings,
    source: Source,
    database: Database,
    version: int,
    registered: dict[str, str] | None,
    found: Findings,
) -> Plan:
    """Plan what makes all as declared; raises SourceProblem if nothing does."""
    wanted, names = connector_config(source, settings, version), SourceNames.of(source, settings.log.environment)
    changes = _changes(settings, source, database, wanted, registered)
    if registered is None:
        return Plan(wanted, registered, found, [], [], changes)
    if problems := _refused(source, wanted, registered, found.unread):
        raise SourceProblem(source.name, *problems)
    new, late, changed = tables_to_read_again(wanted, registered), found.late(), found.changed()
    again = [table for table in source.tables if table in late or table in changed or table.table in new]
    if problems := [*_still_running(settings, names, found, again), *unchunked(source, database, again)]:
        raise SourceProblem(source.name, *problems)
    snapshot = control_topics.last_snapshot(settings.log, names)
    is_read_first = snapshot is not None and snapshot.kind == "initial" and snapshot.is_running
    sweeps = [] if is_read_first else found.unswept()
    changes += [f"+ rows of {table.table}, which {each.why}" for table in changed for each in found.missed[table.table]]
    changes += [f"+ rows of {table.table}, which were not read after it was declared" for table in late]
    changes += [f"- rows of {table.table} that are gone" for table in sweeps]
    return Plan(wanted, registered, found, again, sweeps, changes)


def unchunked(source: Source, database: Database, tables: Sequence[type[Captured]]) -> list[str]:
    """Those of these tables that cannot be read again while changes go on, each with what helps."""
    return [
        f'the rows of table "{table.table}" cannot be read again while changes go on, because {why}: run '
        f"headwater sources remove {source.name}, then apply, which reads all again, then sweep"
        for table in tables
        if (why := database.unchunked(table))
    ]


def _refused(source: Source, wanted: Mapping[str, str], registered: Mapping[str, str], unread: Unread) -> Sequence[str]:
    """What an existing connector cannot be changed into."""
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
    never = Unread(frozenset(), unread.never, {})
    return [problem for table in source.tables if (problem := problem_of(source, table.table, never))]


def _still_running(
    settings: SourceSettings, names: SourceNames, found: Findings, again: Sequence[type[Captured]]
) -> list[str]:
    """Why tables that changed cannot be read now: a snapshot that began before would count as the one that follows."""
    snapshot = control_topics.last_snapshot(settings.log, names)
    if snapshot is None or not snapshot.is_running:
        return []
    is_first = snapshot.kind == "initial"
    return [
        f'table "{table.table}" changed while it was read, and its {snapshot.kind} snapshot still runs: wait until it '
        "is completed, then run headwater sources apply again"
        for table in found.source.tables
        if table.table in found.missed and (is_first or (table in again and table.table in found.unread.reading))
    ]


def _changes(
    settings: SourceSettings,
    source: Source,
    database: Database,
    wanted: dict[str, str],
    registered: dict[str, str] | None,
) -> list[str]:
    absent = missing_topics(settings.log, source_topics(source, settings.log))
    lines = [f"+ topic {name}" for name in absent] + database.preparations()
    if registered is None:
        name = SourceNames.of(source, settings.log.environment).connector
        lines.append(f"+ connector {name}, with these properties:")
    return lines + [f"{line[:2]}connector: {line[2:]}" for line in differences(wanted, registered or {})]
