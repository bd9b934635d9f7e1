"""What an operator does with a source: apply its declaration, pause, resume, restart, snapshot, sweep, remove."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from headwater.eventlog.capturing.connector import captures, connector_config, plain_secrets, undeclared
from headwater.eventlog.capturing.database import Database
from headwater.eventlog.capturing.declaring import Captured
from headwater.eventlog.capturing.errors import ConnectError, ConnectorFailed, SourceProblem
from headwater.eventlog.capturing.kafka_connect import is_after_snapshot
from headwater.eventlog.capturing.naming import EMPTIED, source_topics, topic_about
from headwater.eventlog.capturing.operated import BUSY, PAUSED, Operated, is_stopped
from headwater.eventlog.capturing.reconciling import (
    Findings,
    Plan,
    find_unread,
    make_plan,
    note_first_snapshot,
    note_mending,
    reconcile,
)
from headwater.eventlog.capturing.rereading import (
    check_definitions,
    give_up_reading,
    mend_rows,
    read_again,
    read_incomplete,
    report_late,
    sweep_tables,
)
from headwater.eventlog.capturing.sweeping import READ_AGAIN, IncompleteRows, condition_of, present
from headwater.eventlog.kafka.admin import empty_partition, prepare_topics, remove_topics

LEFT = "~ connector: it goes on, because a command that had stopped it ended before it did so"
PAUSED_YET = "its connector is paused, and reads what is declared once it goes on: run headwater sources resume {}"


class Operator(Operated):
    """Operates one source of a deployment."""

    def apply(self, dry_run: bool) -> bool:
        """Make the topics, what the database needs, and the connector as declared; whether anything differed.

        dry_run: only report what differs. Raises SourceProblem with every problem of the database, and ConnectError.
        """
        with self.taken(timeout_s=0.0 if dry_run else None) as is_held:
            left = is_held and self.left_stopped() is not None
            if left and not dry_run:
                with suppress(ConnectorFailed):  # what is declared now may be what helps
                    self.bring_back()
            if left:
                self.report(LEFT)
            with self.open_database() as database:
                plan = make_plan(self, database)
                for line in plan.changes:
                    self.report(line)
                secrets = plain_secrets(self.settings, self.source) if plan.differs else []
                for warning in (*secrets, *database.warnings()):
                    self.report(f"warning: {warning}")
                if dry_run:
                    return bool(plan.changes or left)
                if plan.changes:
                    if not is_held:
                        raise SourceProblem(self.source.name, BUSY)
                    self._validate(plan.wanted)
                    prepare_topics(self.settings.log, source_topics(self.source, self.settings.log))
                    database.prepare()
                self.note_server(database)
                if not plan.changes:
                    return left
                sweeps = self._note_plan(plan, database)
            self._carry_out(plan, sweeps)
            return True

    def _validate(self, wanted: dict[str, str]) -> None:
        if not self.connect.has_plugin(self.engine.connector_class):
            raise ConnectError(
                f"Kafka Connect at {self.connect.url} lacks Debezium's connector for {self.engine.title}: add "
                f"{self.engine.artifact} to the plugin.path of its workers"
            )
        problems = self.connect.problems(self.names.connector, wanted)
        if problems:
            raise ConnectError(f'Kafka Connect refuses source "{self.source.name}": {"; ".join(problems)}')

    def _note_plan(self, plan: Plan, database: Database) -> list[type[Captured]]:
        """Note what is about to be read, so that it is known whatever happens before; returns what is to be swept."""
        registered = plan.registered
        if registered is None:
            note_first_snapshot(self.control, self.source)
        new = [table for table in plan.again if registered is not None and not captures(registered, table.table)]
        again = [table.table for table in plan.again]
        more = note_mending(self.control, plan.found, again, new, database)
        return [table for table in self.source.tables if table in plan.sweeps or table.table in more]

    def _carry_out(self, plan: Plan, sweeps: Sequence[type[Captured]]) -> None:
        """Register the connector as planned, and mend rows: at once if it has captured all, else once it runs."""

        def register() -> None:
            if plan.differs:
                self.connect.register(self.names.connector, plan.wanted)

        problems: list[str] = []
        is_due = bool(plan.again or sweeps)
        if not (is_due and mend_rows(self, plan.again, sweeps, problems, register)):
            state = self.state()
            is_changed = plan.registered is not None and plan.differs
            is_paused = state is not None and state.connector == PAUSED
            if state is None or is_paused or not (is_changed or is_stopped(state)):
                register()
                if is_paused:
                    raise SourceProblem(self.source.name, PAUSED_YET.format(self.source.name))
                self.wait_until_running()
            else:
                try:
                    self.stop()  # a task with the earlier properties would run for some time after these are registered
                    register()
                except BaseException:
                    self.let_run()
                    raise
                self.go_on()
            if is_due and not mend_rows(self, plan.again, sweeps, problems):
                report_late(self, plan.again, sweeps)
        if problems:
            raise SourceProblem(self.source.name, *problems)

    def read_late(self, timeout_s: float) -> bool:
        """Let the connector read what an earlier command could not, once it has captured all; whether it does.
        timeout_s: how long to wait for that. Tables that cannot be read again, or that its configuration does not have,
        are left: only `apply` helps.
        """
        config = self.connect.config(self.names.connector) or {}
        late = [table for table in self._late_tables() if captures(config, table.table)]
        with self.open_database() as database:
            again = [table for table in late if not self.unchunked(database, [table])]
        if not again:
            return False
        with self.taken(timeout_s=0.0) as is_held:  # or another command is about to read them
            return is_held and mend_rows(self, again, [], [], timeout_s=timeout_s)

    def _late_tables(self) -> list[type[Captured]]:
        """Tables that an earlier command has not read, because the connector did not run, or was behind."""
        return find_unread(self.control, self.source, self.offset).late_tables()

    def read_incomplete(self, rows: IncompleteRows, timeout_s: float) -> list[str]:
        """Let the connector read rows again that lack values, once it has captured all; returns what helps.

        timeout_s: how long to wait for that. Rows that are not read yet are found again at the next call.
        """
        with self.open_database() as database:
            apart = database.read_apart()
            incomplete = rows.find(list(apart))
            there = {table: present(database, table, keys) for table, keys in incomplete.items()}
            helps = {table: self.unchunked(database, [table]) for table, keys in there.items() if keys}
            readable = {table: there[table] for table, why in helps.items() if not why}
            parts = [(table, condition_of(database, table, keys)) for table, keys in readable.items()]
        rows.forget([table for table, keys in there.items() if not keys])
        if parts:
            with self.taken(timeout_s=0.0) as is_held:
                if is_held and mend_rows(self, [], [], [], timeout_s=timeout_s, incomplete=parts):
                    rows.forget(readable)
                    for table, keys in readable.items():
                        READ_AGAIN.labels(self.source.name, table.table).inc(len(keys))
                        lacked = f'rows of table "{table.table}" that lacked long values are read again ({len(keys):,})'
                        helps[table] = [f"{lacked}: to prevent it, run {apart[table]}"]
        return [sentence for sentences in helps.values() for sentence in sentences]

    def bring_back_if_left(self) -> bool:
        """Let a connector run that a killed command has left stopped; whether it was. Nothing while a command runs."""
        if self.left_stopped() is None:
            return False
        with self.taken(timeout_s=0.0) as is_held:
            return is_held and self.bring_back()

    def captured_otherwise(self) -> list[str]:
        """What the connector captures otherwise than the classes say, as sentences."""
        config = self.connect.config(self.names.connector)
        differs = undeclared(connector_config(self.source, self.settings, 0), config) if config else []
        return [f"its connector is not as declared, because {why}: run headwater sources apply" for why in differs]

    def rows_not_as_declared(self) -> list[str]:
        """What `reconcile` finds, as sentences; only what is noted if the database does not answer."""
        config = self.connect.config(self.names.connector)
        try:
            with self.open_database() as database:
                return self._reconcile(config, database).problems()
        except SourceProblem:
            return self._reconcile(config, None).problems()

    def _reconcile(self, config: Mapping[str, str] | None, database: Database | None) -> Findings:
        return reconcile(self.control, self.source, self.offset, config, database)

    def find_uncaptured(self) -> str | None:
        """What a connector that runs has not captured, and what helps; None if nothing is known to be missing.

        Raises SourceProblem, ConnectError or LogUnavailable.
        """
        with self.open_database() as database:
            lost = self.lost(database)
        return lost or "; ".join([*self.captured_otherwise(), *self.rows_not_as_declared()]) or None

    def pause(self) -> None:
        """Stop capturing until `resume`; the database keeps its log meanwhile."""
        self.must_be_registered()
        self.connect.pause(self.names.connector)
        self.wait_until(
            PAUSED, lambda state: state is not None and state.connector == PAUSED and state.task != "RUNNING"
        )

    def resume(self) -> None:
        """Continue capturing where it was paused, and read tables that were declared meanwhile."""
        self.must_be_registered()
        with self.holding():
            self._resume()

    def _resume(self) -> None:
        give_up_reading(self)
        late = self._late_tables()
        if late or self._skips_events():
            self.stop()  # a paused task keeps its earlier configuration, and may start anew at any time
        with self.open_database() as database:
            database.beat()
            problems = self.unchunked(database, late)
        self.let_run()
        self.wait_until_running()
        if problems:  # changes are captured meanwhile, as they were
            raise SourceProblem(self.source.name, *problems)
        if late and not mend_rows(self, late, [], []):
            report_late(self, late, [])

    def restart(self) -> None:
        """Restart the connector and its task, and wait until they run."""
        self.must_be_registered()
        with self.holding():
            give_up_reading(self)
            self.stop()
            self._resume()

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
            skips = database.past_statements(frozenset) is not None
        with self.holding(timeout_s=0.0):
            give_up_reading(self)
            if skips:
                self.stop()
            if is_stopped(self.state()):
                self.let_run()
        return problems

    def step_over_statements(self) -> bool:
        """Restart a connector behind statements that it has read, so that it skips no changes when Kafka Connect starts
        it anew; whether it was necessary. Nothing while a command runs.
        """
        if not self._skips_events():
            return False
        with self.open_database() as database:
            if database.past_statements(frozenset) is None:
                return False
        with self.taken(timeout_s=0.0) as is_held:
            if is_held:
                self.stop()
                self.go_on()
            return is_held

    def _skips_events(self) -> bool:
        """Whether the connector's place says so, as in the middle of a transaction, or behind a statement."""
        return "event" in (self.offset() or {})

    def snapshot(self, tables: Sequence[type[Captured]], where: str = "") -> None:
        """Read the rows of these tables again, between the changes that go on; resumes after a restart.

        The connector is stopped for a moment. where: a condition in SQL of the rows to read.
        """
        self.must_be_registered()
        with self.open_database() as database:
            problems = self.unchunked(database, tables)
            for table in tables if where else ():
                database.plan(table, where)
        if problems:
            raise SourceProblem(self.source.name, *problems)
        self.snapshot_unchecked(tables, where)

    def snapshot_unchecked(self, tables: Sequence[type[Captured]], where: str = "") -> None:
        """The same, although some values may be misread."""
        if not is_after_snapshot(self.offset()):
            raise SourceProblem(self.source.name, "its first snapshot still runs: wait until it is completed")
        with self.holding():
            check_definitions(self, tables)
            before = self.state()
            try:
                self.stop()
                read_again(self, tables, where)
            finally:
                if not is_stopped(before):
                    self.bring_back()

    def sweep(self, yes_delete: int = 0) -> None:
        """Delete rows that a table no longer has from its topic, with the connector stopped meanwhile.

        Rows whose last record lacks a value are read again afterwards. yes_delete: how many rows of a table may be
        deleted, though that is a large part of it.
        """
        self.must_be_registered()
        with self.open_database() as database:
            if lost := self.lost(database):
                raise SourceProblem(self.source.name, lost)
        snapshot = self.control.last_snapshot()
        if snapshot is not None and snapshot.is_running:
            raise SourceProblem(
                self.source.name, f"its {snapshot.kind} snapshot still runs: wait until it is completed"
            )
        if not self.has_captured_all():
            raise SourceProblem(
                self.source.name,
                "earlier changes are still to be captured, and would bring rows back: let its connector run until "
                "status shows that it is not behind, then run sweep again",
            )
        with self.holding():
            self.stop()
            try:
                problems = read_incomplete(self, sweep_tables(self, self.source.tables, yes_delete))
            finally:
                self._resume()
        if problems:
            raise SourceProblem(self.source.name, *problems)

    def remove(self, topics: bool, replaced: bool = False) -> None:
        """Remove the connector and where it was, what the database has for it and, if `topics`, all records.

        replaced: whether the captured database is gone, and another one has its address. Otherwise raises SourceProblem
        if this is another one: the slot in the captured one would keep its log for ever.
        """
        name, log = self.names.connector, self.settings.log
        if not replaced:
            with self.open_database():
                pass
        if self.connect.config(name) is not None:
            self.connect.stop(name)
            self.wait_until_stopped()
            self.connect.forget_offsets(name)
            self.connect.remove(name)
            self.wait_until("removed", lambda state: state is None)
            self.report(f"- connector {name}")
        specs = source_topics(self.source, log)
        # another database, or an earlier state of this one, may be captured next: its log has other positions
        emptied = {topic_about(self.source, about) for about in EMPTIED}
        for spec in specs:
            if spec.name in emptied:
                empty_partition(log, spec, 0)
        with self._reach_database() as database:
            for line in database.clean_up():
                self.report(line)
        if topics:
            remove_topics(log, specs)
            self.report(f"- {len(specs)} topics")
