"""What an operator does with a source: apply its declaration, pause, resume, restart, snapshot, remove."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from eventlog.admin import empty_partition, prepare_topics, remove_topics
from eventlog.capturing import control_notes, control_topics
from eventlog.capturing.connector import captures, differences, plain_secrets
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
from eventlog.capturing.kafka_connect import ConnectorState, KafkaConnect
from eventlog.capturing.naming import EMPTIED, SourceNames, source_topics, topic_about
from eventlog.capturing.planning import Plan, make_plan, unchunked
from eventlog.capturing.ports import Database, Engine
from eventlog.capturing.reconciling import Findings, note_mending, reconcile
from eventlog.capturing.settings import SourceSettings
from eventlog.capturing.skipped_changes import advice, note_server, why_skipped
from eventlog.capturing.snapshot_queue import BROKEN, all_queued, is_after_snapshot, with_tables, without_tables
from eventlog.capturing.sweeping import sweep
from eventlog.capturing.unread_tables import find_unread, note_first_snapshot

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
        problems: list[str] = []
        due = bool(plan.again or sweeps)
        if not (due and self._mend_rows(plan.again, sweeps, problems, lambda: self._register(plan))):
            self._run_with(plan)
            if due and not self._mend_rows(plan.again, sweeps, problems):
                self._report_late(plan.again, sweeps)
        if problems:
            raise SourceProblem(self.source.name, *problems)
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

    def _run_with(self, plan: Plan) -> None:
        """Register the connector's properties, and return once a task with these runs; one that is paused stays so."""
        state = self.connect.state(self.names.connector)
        is_changed = plan.registered is not None and bool(differences(plan.wanted, plan.registered))
        if state is None or state.connector == "PAUSED" or not (is_changed or _is_stopped(state)):
            self._register(plan)
            wait_until_running(self.connect, self.source, self.names)
            return
        try:
            self._stop()  # a task with the earlier properties would run for some time after these are registered
            self._register(plan)
        except BaseException:
            self.connect.resume(self.names.connector)
            raise
        self._go_on()

    def _register(self, plan: Plan) -> None:
        """Register the connector's properties if they differ."""
        if differences(plan.wanted, plan.registered or {}):
            self.connect.register(self.names.connector, plan.wanted)

    def _mend_rows(
        self,
        again: Sequence[type[Captured]],
        sweeps: Sequence[type[Captured]],
        problems: list[str],
        prepare: Callable[[], object] = bool,
        timeout_s: float | None = None,
    ) -> bool:
        """Sweep tables, and let the connector read tables again, once it has captured all until now; whether it has.

        If rows changed without a change in the log, an earlier change of such a row must not come behind the row as it
        is read: Debezium does not hold back what it has read until it has sent what was changed before. problems: gets
        those of tables that cannot be read again, whose records are incomplete. prepare: called while the connector is
        stopped. timeout_s: how long to wait for a connector that runs.
        """
        if not self._has_captured_all(timeout_s):
            return False
        try:
            self._stop()
            incomplete = self._sweep(sweeps)
            self._read_again(again)
            problems += self._read_incomplete([each for each in incomplete if each[0] not in again])
            prepare()
        except BaseException:
            self.connect.resume(self.names.connector)
            raise
        self._go_on()
        return True

    def _report_late(self, again: Sequence[type[Captured]], sweeps: Sequence[type[Captured]]) -> None:
        later = "once all earlier changes are captured"
        if again:
            names = ", ".join(table.table for table in again)
            self.report(f"rows of {names} are read again by headwater sources watch, or the next apply, {later}")
        if sweeps:
            names = ", ".join(table.table for table in sweeps)
            self.report(f"rows of {names} that are gone are deleted by the next apply, {later}")

    def _go_on(self) -> None:
        """Let a stopped connector run, with the heartbeat that one that reads tables again needs to begin with."""
        try:
            self._beat()
        finally:
            self.connect.resume(self.names.connector)
        wait_until_running(self.connect, self.source, self.names)

    def _late(self) -> list[type[Captured]]:
        """Tables that an earlier command has not read, because the connector did not run, or was behind."""
        unread = find_unread(self.settings.log, self.names, self.source, self._offset)
        return Findings(self.source, unread).late()

    def read_late(self, timeout_s: float) -> bool:
        """Let the connector read what an earlier command could not, once it has captured all; whether it does.
        timeout_s: how long to wait for that. Tables that cannot be read again, or that its configuration does not have,
        are left: only `apply` helps.
        """
        config = self.connect.config(self.names.connector) or {}
        late = [table for table in self._late() if captures(config, table.table)]
        with self.open_database() as database:
            again = [table for table in late if not unchunked(self.source, database, [table])]
        return bool(again) and self._mend_rows(again, [], [], timeout_s=timeout_s)

    def reconcile(self, config: Mapping[str, str] | None, database: Database | None) -> Findings:
        """What is not as declared; raises ConnectError, SourceProblem or LogUnavailable.

        config: of the connector. database: None if it does not answer.
        """
        return reconcile(self.settings.log, self.names, self.source, self._offset, config, database)

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
        """Continue capturing where it was paused, and read tables that were declared meanwhile."""
        self._registered()
        self._give_up_reading()
        late = self._late()
        if late:
            self._stop()  # a paused task keeps its earlier configuration
        with self.open_database() as database:
            database.beat()
            problems = unchunked(self.source, database, late)
        self.connect.resume(self.names.connector)
        wait_until_running(self.connect, self.source, self.names)
        if problems:  # changes are captured meanwhile, as they were
            raise SourceProblem(self.source.name, *problems)
        if late and not self._mend_rows(late, [], []):
            self._report_late(late, [])

    def _give_up_reading(self) -> None:
        """Stop a connector that failed because the database refused to let a table be read, and leave its tables out.

        It would fail at its next start, too. The tables are named as failed.
        """
        state = self.connect.state(self.names.connector)
        if state is None or state.state != "FAILED" or BROKEN not in state.error:
            return
        if tables := all_queued(self._offset()):
            self._stop()
            failed = {
                control_notes.DATA_COLLECTIONS: dict.fromkeys(tables, "SQL_EXCEPTION"),
                control_notes.SINCE: control_topics.new_signal(self.names),
            }
            control_topics.note(self.settings.log, self.names, control_notes.FAILED, failed)
            self.connect.change_offset(self.names.connector, without_tables)

    def restart(self) -> None:
        """Restart the connector and its task, and wait until they run."""
        self._registered()
        self._give_up_reading()
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
        self._give_up_reading()
        if _is_stopped(self.connect.state(self.names.connector)):
            self.connect.resume(self.names.connector)
        return problems

    def snapshot(self, tables: Sequence[type[Captured]], where: str = "") -> None:
        """Read the rows of these tables again, between the changes that go on; resumes after a restart.

        The connector is stopped for a moment. where: a condition in SQL of the rows to read.
        """
        self._registered()
        with self.open_database() as database:
            problems = unchunked(self.source, database, tables)
            for table in tables if where else ():
                database.plan(table, where)
        if problems:
            raise SourceProblem(self.source.name, *problems)
        self.snapshot_unchecked(tables, where)

    def snapshot_unchecked(self, tables: Sequence[type[Captured]], where: str = "") -> None:
        """The same, although some values may be misread."""
        if not is_after_snapshot(self._offset()):
            raise SourceProblem(self.source.name, "its first snapshot still runs: wait until it is completed")
        before = self.connect.state(self.names.connector)
        try:
            self._stop()
            self._read_again(tables, where)
        finally:
            if before is not None and before.connector == "PAUSED":
                self.connect.pause(self.names.connector)
            elif not _is_stopped(before):
                self._go_on()

    def _read_again(self, tables: Sequence[type[Captured]], where: str = "") -> None:
        """Let a connector that is stopped read tables when it runs, and keep on until they are read."""
        if not tables:
            return
        names, number = [table.table for table in tables], control_topics.new_signal(self.names)
        log, noted = self.settings.log, {control_notes.DATA_COLLECTIONS: names}
        if not where:
            reading = {control_notes.DATA_COLLECTIONS: dict.fromkeys(names, number)}
            control_topics.note(log, self.names, control_notes.READING, reading)
        # the end of a part of a table is not the end of an earlier reading of it
        signal = f"{number}-part" if where else number
        self.connect.change_offset(self.names.connector, lambda offset: with_tables(offset, names, where, signal))
        if not where:
            control_topics.note(log, self.names, control_notes.SNAPSHOT, noted)
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
            problems = self._read_incomplete(self._sweep(self.source.tables))
        finally:
            self.resume()
        if problems:
            raise SourceProblem(self.source.name, *problems)

    def _has_captured_all(self, timeout_s: float | None = None) -> bool:
        """Whether the connector has captured all that the database has logged until now; waits for a time if it runs.

        Otherwise it would bring rows that are gone back to the topic, after they were swept, and others as they were.
        """
        state = self.connect.state(self.names.connector)
        if state is None or not state.is_running:
            return False
        with self.open_database() as database:
            place = database.place()
            database.beat()  # something to capture behind that place
            return is_reached(lambda: is_after_snapshot(self._offset()) and database.has_captured(place), timeout_s)

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

    def _read_incomplete(self, incomplete: Sequence[Incomplete]) -> list[str]:
        """Let a stopped connector read the rows that lack a value; returns why some cannot be read."""
        problems: list[str] = []
        with self.open_database() as database:
            for table, where in incomplete:
                if why := unchunked(self.source, database, [table]):
                    problems += why
                else:
                    self._read_again([table], where)
        return problems

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


def _is_stopped(state: ConnectorState | None) -> bool:
    return state is not None and state.connector == "STOPPED"
