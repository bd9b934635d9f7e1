"""A captured database whose topics and views are compared with its tables, and mended as `status` says."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from headwater import Deleted, Postgres, TableView, current
from headwater.eventlog.capturing import Captured
from headwater.eventlog.capturing.errors import SourceProblem
from headwater.eventlog.capturing.operating import Operator
from headwater.eventlog.capturing.source_status import SourceStatus, status_of
from headwater.eventlog.envelope import Position
from headwater.eventlog.kafka.log import KafkaLog
from headwater.projections.reading.reader import fold
from headwater.projections.table.changes import RecordPlace, TableReader, envelope_of
from headwater.projections.table.expressions import Source as Change
from tests.integration.sources.captured import Row, Topic
from tests.support.seeds import is_long
from tests.support.waiting import Latest, eventually

SILENT = "nothing has been captured for "
Tables = Mapping[str, Mapping[str, Row]]
"""The rows of tables by key, by the names of tables."""


@cache
def view_of(table: type[Captured]) -> TableView:
    """A view of all columns."""
    return TableView(
        name=f"seen_{table.__name__.lower()}",
        key="row_key",
        columns={name: current(table, name) for name in table.columns},
        stores=(Postgres(),),
        deleted_by=(Deleted(table),),
    )


@dataclass(frozen=True)
class Reconciled(ABC):
    """A captured database, and how to operate it."""

    operator: Operator
    log: KafkaLog

    @abstractmethod
    def expected(self) -> Tables:
        """The rows of all tables by SQL, as topics should have them."""

    @abstractmethod
    def wait_captured(self) -> None:
        """Return once the log of the database is captured up to its present end."""

    @property
    def tables(self) -> tuple[type[Captured], ...]:
        return self.operator.source.tables

    def found(self) -> Tables:
        """The rows that a reader of the topics has."""
        rows: dict[str, Mapping[str, Row]] = {}
        for table in self.tables:
            topic = Topic(self.operator.settings.log, table)
            topic.read()
            rows[table.table] = topic.comparable()
        return rows

    def viewed(self, is_compacted: bool) -> Tables:
        """The rows of views over the topics, or over what compaction leaves of these."""
        return {table.table: self._view(table, is_compacted) for table in self.tables}

    def _view(self, table: type[Captured], is_compacted: bool) -> Mapping[str, Row]:
        reader, changes = TableReader.of(table, table.columns), []
        for partition, end in self.log.stored_ends(table.topic()).items():
            records = list(self.log.read(table.topic(), partition, 0, end))
            kept = {record.key: record for record in records}.values() if is_compacted else records
            for record in kept:
                place = RecordPlace(table.topic(), partition, record.offset, record.timestamp_ms)
                change = envelope_of(reader, place, record.key.encode(), record.value)
                changes.append(
                    Change(change, Position(partition, record.offset), record.timestamp_ms, "", table.topic())
                )
        rows = fold(view_of(table), changes)
        return {key: {name: row[name] for name in table.columns} for key, row in rows.items()}

    def status(self) -> SourceStatus:
        """What `status` says, once it has heartbeats again of a connector that has not run for a minute."""

        def said() -> SourceStatus | None:
            status = status_of(self.operator)
            return None if any(problem.startswith(SILENT) for problem in status.problems) else status

        found = eventually(said, "heartbeats are captured", every_s=0.2)
        assert found is not None
        return found

    def is_read(self) -> bool:
        """Whether no snapshot runs."""
        snapshot = self.status().snapshot
        return snapshot is not None and not snapshot.is_running

    def mend(self, said: str) -> None:
        """Do what `status` says until nothing is wrong."""

        def is_mended() -> bool:
            status = self.status()
            is_reading = status.snapshot is not None and status.snapshot.is_running
            if status.is_healthy or (is_reading and status.state == "RUNNING"):
                return status.is_healthy
            if status.state == "FAILED":
                with suppress(SourceProblem):  # it says the same
                    self.operator.restart()
            for problem in status.problems:
                command = problem.rpartition("headwater sources ")[2].split()
                with suppress(SourceProblem):  # another one may have to be solved before
                    if command[0] == "snapshot":
                        self.operator.snapshot([self.operator.source.table(command[1])])
                    elif command[0] == "sweep":
                        self.operator.sweep()
                    elif command[0].startswith("apply"):
                        self.operator.apply(dry_run=False)
                    elif command[0] == "remove":  # as `lost_changes` says
                        self.operator.remove(topics=False)
                        self.operator.apply(dry_run=False)
                        eventually(self.is_read, "all is read again", every_s=0.5)
                        self.operator.sweep()
            return False

        eventually(is_mended, Latest(lambda: f"{said}\nis mended; status says {self.status()}"), every_s=0.5)


class RandomChanges(Protocol):
    """Makes random statements in a database. made: those so far; one that failed is a comment."""

    made: list[str]

    def change_rows(self) -> None: ...

    def change_definition(self) -> None: ...


def read_all(crm: Reconciled) -> None:
    """Capture the tables, and return once all rows are in their topics."""
    crm.operator.apply(dry_run=False)
    eventually(lambda: crm.status().is_healthy and crm.found() == crm.expected(), "all is read", every_s=0.5)


def check_rounds(crm: Reconciled, changes: RandomChanges, rounds: int, statements: int) -> None:
    """Change rows and definitions at random; what `status` names is mended, once in each round.

    In every other round, all is still to be captured when `apply` finds what changed.
    """
    differed = 0
    for turn in range(rounds):
        changes.made.clear()
        is_behind = turn % 2 == 1
        if is_behind:
            crm.operator.pause()
        for number in range(statements):
            if number % 3 == 2:
                changes.change_definition()
            else:
                changes.change_rows()
        said = "\n".join(changes.made)
        if is_behind:
            crm.operator.resume()
            with suppress(SourceProblem):  # `status` says the same
                crm.operator.apply(dry_run=False)
            crm.mend(said)
        differed += not check(crm, said)
        if not crm.status().is_healthy:
            with suppress(SourceProblem):
                crm.operator.apply(dry_run=False)
            for _ in range(statements):
                changes.change_rows()
        check_mended(crm, said)
    assert differed or not is_long(), "the changes of definitions are seen"


def differences(found: Tables, expected: Tables) -> str:
    """A line per row that differs."""
    return "\n".join(
        f"{table} {key}: {found[table].get(key)}, not {expected[table].get(key)}"
        for table in expected
        for key in sorted(found[table].keys() | expected[table].keys())
        if found[table].get(key) != expected[table].get(key)
    )


def check(crm: Reconciled, said: str) -> bool:
    """Whether topics have the rows of the tables; if they do not, `status` and `watch` say so."""
    crm.wait_captured()
    status, expected = crm.status(), crm.expected()
    found = crm.found()
    is_equal = found == expected
    assert is_equal or not status.is_healthy, f"{said}\n{differences(found, expected)}"
    if status.state == "RUNNING":
        assert (crm.operator.find_uncaptured() is None) == status.is_healthy, "watch says what status says"
    return is_equal


def check_mended(crm: Reconciled, said: str) -> None:
    """Do what `status` says: topics, and views of them, have the rows of the tables then."""
    crm.mend(said)
    crm.wait_captured()
    expected = crm.expected()
    found = crm.found()
    assert found == expected, f"{said}\n{differences(found, expected)}"
    for is_compacted in (False, True):
        assert crm.viewed(is_compacted) == expected, json.dumps([is_compacted, said])
