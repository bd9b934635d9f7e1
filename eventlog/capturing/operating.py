"""What an operator does with a source: apply its declaration, pause, resume, restart, snapshot, remove."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from eventlog.admin import empty_partition, prepare_topics, remove_topics
from eventlog.capturing import control_notes, control_topics
from eventlog.capturing.connector import differences, plain_secrets
from eventlog.capturing.connector_states import (
    is_reached,
    wait_until_paused,
    wait_until_removed,
    wait_until_running,
    wait_until_stopped,
)
from eventlog.capturing.declaring import Captured, Source
from eventlog.capturing.engines import engine_of
from eventlog.capturing.errors import ConnectError, SourceProblem
from eventlog.capturing.kafka_connect import KafkaConnect
from eventlog.capturing.naming import EMPTIED, SourceNames, source_topics, topic_about
from eventlog.capturing.planning import Plan, make_plan, unchunked
from eventlog.capturing.ports import Database, Engine
from eventlog.capturing.reconciling import Findings, note_mending, reconcile
from eventlog.capturing.settings import SourceSettings
from eventlog.capturing.skipped_changes import advice, note_server, why_skipped
from eventlog.capturing.sweeping import sweep
from eventlog.capturing.unread_tables import note_first_snapshot

Report = Callable[[str], None]
Incomplete = tuple[type[Captured], str]
"""A table with rows whose last records lack a value, and the condition of these; empty: all."""


@dataclass(frozen=True, slots=True)
class Operator:
    """Operates one source of a deployment; closes `connect` at its end. report: called with a line per thing done."""

    source: Source
    settings: SourceSettings
    connect: KafkaConnect
    report: Report

    def __enter__(self) -> Operator:
        return self

    def __exit__(self, *_: object) -> None:
        self.connect.close()

    @property
    def names(self) -> SourceNames:
        """What the source is called in this deployment."""
        return SourceNames.of(self.source, self.settings.log.environment)

    @property
    def engine(self) -> Engine:
        """The kind of the source's database."""
        return engine_of(self.source)

    def open_database(self) -> AbstractContextManager[Database]:
        """Connect to the source's database; raises SourceProblem with what helps if that fails."""
        return self.engine.open(self.source, self.names, self.settings.database, self._offset)

    def _offset(self) -> Mapping[str, Any] | None:
        return self.connect.offset(self.names.connector)

    def apply(self, dry_run: bool) -> bool:
        """Make the topics, what the database needs, and the connector as declared; whether anything differed.

        dry_run: only report what differs. Raises SourceProblem with every problem of the database, and ConnectError.
        """
        with self.open_database() as database:
            plan = self._plan(database)
            for line in plan.changes:
                self.report(line)
            if differences(plan.wanted, plan.registered or {}):
                for warning in plain_secrets(self.settings, self.source):
                    self.report(f"warning: {warning}")
            for warning in database.warnings():
                self.report(f"warning: {warning}")
            if dry_run:
                return bool(plan.changes)
            if plan.changes:
                self._validate(plan.wanted)
                prepare_topics(self.settings.log, source_topics(self.source, self.settings.log))
                database.prepare()
            note_server(self.settings.log, self.names, database)
            if not plan.changes:
                return False
            sweeps = self._note(plan, database)
        is_captured = bool(sweeps) and self._has_captured_all()
        starts_anew = bool(plan.again or sweeps) and self._stop_to_read_again()
        incomplete = self._sweep_stopped(sweeps) if starts_anew and is_captured else []
        self._register(plan)
        is_told = starts_anew and control_topics.are_signals_kept(self.settings.log, self.names)
        if is_told:
            self._read_again(plan.again)
        if starts_anew:
            self.connect.resume(self.names.connector)
        wait_until_running(self.connect, self.source, self.names)
        if not is_told:
            self._read_again(plan.again)
        self._read_incomplete([each for each in incomplete if each[0] not in plan.again])
        if sweeps and not is_captured:
            tables = ", ".join(table.table for table in sweeps)
            self.report(f"rows of {tables} that are gone are deleted by the next apply, once all else is captured")
        return True

    def _plan(self, database: Database) -> Plan:
        """What to do so that all is as declared; raises SourceProblem if it cannot be."""
        registered = self.connect.config(self.names.connector)
        version = self._check(database, registered is not None)
        found = self.reconcile(registered, database)
        return make_plan(self.settings, self.source, database, version, registered, found)

    def _note(self, plan: Plan, database: Database) -> list[type[Captured]]:
        """Note what is about to be read, so that it is known whatever happens before; returns what is to be swept."""
        log, again = self.settings.log, [table.table for table in plan.again]
        if plan.registered is None:
            note_first_snapshot(log, self.names, self.source)
        new = [table for table in plan.again if plan.is_new(table)]
        more = note_mending(log, self.names, plan.found, again, new, database)
        return [table for table in self.source.tables if table in plan.sweeps or table.table in more]

    def _register(self, plan: Plan) -> None:
        """Register the connector's properties if they differ."""
        if not differences(plan.wanted, plan.registered or {}):
            return
        if plan.registered is not None:
            self._beat()
        self.connect.register(self.names.connector, plan.wanted)

    def _stop_to_read_again(self) -> bool:
        """Stop the connector before it is told to read new tables, unless it is paused; returns whether it did.

        A task with the earlier configuration may run for some time after the new one is registered. It would take the
        signal, and ignore tables that it does not know.
        """
        state = self.connect.state(self.names.connector)
        if state is None or state.connector == "PAUSED":
            return False
        self._stop()
        return True

    def _noted(self) -> list[type[Captured]]:
        """Tables that an earlier `apply` has not read, because the connector did not run."""
        noted = control_topics.notes(self.settings.log, self.names).unread
        return [table for table in self.source.tables if table.table in noted]

    def reconcile(self, config: Mapping[str, str] | None, database: Database | None) -> Findings:
        """What is not as declared; raises ConnectError, SourceProblem or LogUnavailable.

        config: of the connector. database: None if it does not answer.
        """
        return reconcile(self.settings.log, self.names, self.source, self._offset(), config, database)

    def rows_not_as_declared(self) -> list[str]:
        """The same as sentences, of a database that is opened for it, if it answers."""
        config = self.connect.config(self.names.connector)
        try:
            with self.open_database() as database:
                return self.reconcile(config, database).problems()
        except SourceProblem:
            return self.reconcile(config, None).problems()

    def _check(self, database: Database, registered: bool) -> int:
        """The server's version; raises SourceProblem."""
        checked = database.check(registered)
        if lost := self.lost(database):
            raise SourceProblem(self.source.name, lost)
        if checked.problems:
            raise SourceProblem(self.source.name, *checked.problems)
        return checked.version

    def lost(self, database: Database) -> str | None:
        """Why changes are missing that were not captured, and what helps; None if none are known to be."""
        if lost := database.lost():
            return lost
        why = why_skipped(self.settings.log, self.names, database)
        return None if why is None else advice(self.source.name, why)

    def find_lost(self) -> str | None:
        """The same, of a database that is opened for it; raises SourceProblem or LogUnavailable."""
        with self.open_database() as database:
            return self.lost(database)

    def _validate(self, wanted: dict[str, str]) -> None:
        if not self.connect.has_plugin(self.engine.connector_class):
            raise ConnectError(
                f"Kafka Connect at {self.connect.url} lacks Debezium's connector for {self.engine.title}: add "
                f"{self.engine.artifact} to the plugin.path of its workers"
            )
        problems = self.connect.problems(self.names.connector, wanted)
        if problems:
            raise ConnectError(f'Kafka Connect refuses source "{self.source.name}": {"; ".join(problems)}')

    def pause(self) -> None:
        """Stop capturing until `resume`; the database keeps its log meanwhile."""
        self._registered()
        self.connect.pause(self.names.connector)
        wait_until_paused(self.connect, self.source, self.names)

    def resume(self) -> None:
        """Continue capturing where it was paused."""
        self._registered()
        if late := self._noted():
            self._stop()  # a paused task keeps its earlier configuration, as in `_stop_to_read_again`
        with self.open_database() as database:
            database.beat()
            problems = unchunked(self.source, database, late)
        is_told = bool(late) and not problems and control_topics.are_signals_kept(self.settings.log, self.names)
        if is_told:
            self._read_again(late)
        self.connect.resume(self.names.connector)
        wait_until_running(self.connect, self.source, self.names)
        if problems:  # changes are captured meanwhile, as they were
            raise SourceProblem(self.source.name, *problems)
        if not is_told:
            self._read_again(late)

    def restart(self) -> None:
        """Restart the connector and its task, and wait until they run."""
        self._registered()
        self._stop()
        self.resume()

    def prepare_restart(self) -> Sequence[str]:
        """Check the database before a failed connector is restarted, and write the heartbeat that it may need.

        Returns problems of the database, each with what solves it, of which one may be why it failed. Raises
        SourceProblem if a restart cannot help: the database does not answer, refuses the account, or has lost changes.
        """
        with self.open_database() as database:
            if lost := self.lost(database):
                raise SourceProblem(self.source.name, lost)
            problems = database.check(registered=True).problems
            try:
                database.beat()
            except SourceProblem as error:
                raise SourceProblem(self.source.name, *problems, *error.problems) from error
        return problems

    def snapshot(self, tables: Sequence[type[Captured]], where: str = "") -> None:
        """Read the rows of these tables again, between the changes that go on; resumes after a restart.

        where: a condition in SQL of the rows to read.
        """
        self._registered()
        with self.open_database() as database:
            problems = unchunked(self.source, database, tables)
        if problems:
            raise SourceProblem(self.source.name, *problems)
        self._read_again(tables, where)

    def _read_again(self, tables: Sequence[type[Captured]], where: str = "") -> None:
        """Tell the connector to read tables, while it is stopped if it can be.

        Debezium 3.6 begins to read in two threads at once if changes come in when it is told to: it gives up the first
        table then, and takes its rows for those of the second one.
        """
        if not tables:
            return
        names = [table.table for table in tables]
        data: dict[str, object] = {"type": "INCREMENTAL", "data-collections": names}
        if where:
            data["additional-conditions"] = [{"data-collection": name, "filter": where} for name in names]
        number = control_topics.new_signal(self.names)
        if not where:
            reading = {control_notes.DATA_COLLECTIONS: dict.fromkeys(names, number)}
            control_topics.note(self.settings.log, self.names, control_notes.READING, reading)
        control_topics.signal(self.settings.log, self.names, control_notes.SNAPSHOT, data, number)
        self.report(f"reading the rows of {', '.join(names)} again: `headwater sources status` shows how far")

    def sweep(self) -> None:
        """Delete rows that a table no longer has from its topic, with the connector stopped meanwhile.

        Rows whose last record lacks a value are read again afterwards.
        """
        self._registered()
        found = control_topics.last_snapshot(self.settings.log, self.names)
        if found is not None and found.is_running:
            raise SourceProblem(self.source.name, f"its {found.kind} snapshot still runs: wait until it is completed")
        if not self._has_captured_all():
            raise SourceProblem(
                self.source.name,
                "earlier changes are still to be captured, and would bring rows back: let its connector run until "
                "status shows that it is not behind, then run sweep again",
            )
        self._stop()
        try:
            incomplete = self._sweep(self.source.tables)
        finally:
            self.resume()
        self._read_incomplete(incomplete)

    def _has_captured_all(self) -> bool:
        """Whether the connector has captured all that the database has logged until now; waits for a time if it runs.

        Otherwise it would bring rows that are gone back to the topic, after they were swept.
        """
        state = self.connect.state(self.names.connector)
        if state is None or not state.is_running:
            return False
        with self.open_database() as database:
            place = database.place()
            database.beat()  # something to capture behind that place
            return is_reached(lambda: database.has_captured(place))

    def _sweep_stopped(self, tables: Sequence[type[Captured]]) -> list[Incomplete]:
        """Sweep tables of a connector that is stopped; it goes on as it was if that fails."""
        try:
            return self._sweep(tables)
        except BaseException:
            self.connect.resume(self.names.connector)
            raise

    def _sweep(self, tables: Sequence[type[Captured]]) -> list[Incomplete]:
        """Delete rows that are gone from the topics of these tables; returns what is to be read again."""
        incomplete: list[Incomplete] = []
        if not tables:
            return incomplete
        with self.open_database() as database:
            for table in tables:
                swept = sweep(self.settings.log, table, database)
                left = f", {swept.unreadable:,} left, whose keys cannot be read" if swept.unreadable else ""
                self.report(f"{table.table}: {swept.deleted:,} rows deleted, {swept.incomplete:,} incomplete{left}")
                if swept.incomplete:
                    incomplete.append((table, swept.where))
                done = {control_notes.DATA_COLLECTIONS: [table.table]}
                control_topics.note(self.settings.log, self.names, control_notes.SWEPT, done)
        return incomplete

    def _read_incomplete(self, incomplete: Sequence[Incomplete]) -> None:
        problems: list[str] = []
        for table, where in incomplete:
            try:
                self.snapshot([table], where)
            except SourceProblem as error:
                problems += error.problems
        if problems:
            raise SourceProblem(self.source.name, *problems)

    def remove(self, topics: bool) -> None:
        """Remove the connector and where it was, what the database has for it and, if `topics`, all records."""
        name = self.names.connector
        if self.connect.config(name) is not None:
            self._stop()
            self.connect.forget_offsets(name)
            self.connect.remove(name)
            wait_until_removed(self.connect, self.source, self.names)
            self.report(f"- connector {name}")
        # another database, or an earlier state of this one, may be captured next: its log has other positions
        for topic in source_topics(self.source, self.settings.log):
            if topic.name in {topic_about(self.source, name) for name in EMPTIED}:
                empty_partition(self.settings.log, topic, 0)
        with self.open_database() as database:
            for line in database.clean_up():
                self.report(line)
        if topics:
            specs = source_topics(self.source, self.settings.log)
            remove_topics(self.settings.log, specs)
            self.report(f"- {len(specs)} topics")

    def _stop(self) -> None:
        self.connect.stop(self.names.connector)
        wait_until_stopped(self.connect, self.source, self.names)

    def _beat(self) -> None:
        """Write a heartbeat, which a connector that starts may need."""
        with self.open_database() as database:
            database.beat()

    def _registered(self) -> None:
        if self.connect.config(self.names.connector) is None:
            raise SourceProblem(self.source.name, "it has no connector: run headwater sources apply")
