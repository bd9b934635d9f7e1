"""What an operator works on: a source of a deployment, with its connector and its database."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Self

from headwater.eventlog.capturing import control_notes, control_topics
from headwater.eventlog.capturing.connector_states import is_reached, wait_until_running, wait_until_stopped
from headwater.eventlog.capturing.declaring import Source
from headwater.eventlog.capturing.errors import ConnectorFailed, SourceProblem
from headwater.eventlog.capturing.holding import BUSY, Hold
from headwater.eventlog.capturing.kafka_connect import ConnectorState, KafkaConnect
from headwater.eventlog.capturing.naming import SourceNames
from headwater.eventlog.capturing.ports import Database, Engine
from headwater.eventlog.capturing.schema_history import read_statements
from headwater.eventlog.capturing.settings import SourceSettings, engine_of
from headwater.eventlog.capturing.snapshot_queue import is_after_snapshot

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Operated:
    """A source of a deployment; closes `connect` at its end. report: called with a line per thing done."""

    source: Source
    settings: SourceSettings
    connect: KafkaConnect
    report: Report
    hold: Hold = field(default_factory=Hold)

    def __enter__(self) -> Self:
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
        return self.engine.open(self.source, self.names, self.settings.database, self.offset)

    def offset(self) -> Mapping[str, Any] | None:
        """Where the connector goes on after a restart; None if it has stored nothing."""
        return self.connect.offset(self.names.connector)

    @contextmanager
    def holding(self, timeout_s: float | None = None) -> Iterator[None]:
        """Let no other command stop the connector, or let it run, within the block.

        timeout_s: how long to wait for such a command; None: HOLD_S. Raises SourceProblem if it has not ended by then.
        """
        with self.hold.taken(self.open_database, timeout_s) as is_held:
            if not is_held:
                raise SourceProblem(self.source.name, BUSY)
            yield

    def stop(self) -> None:
        """Stop the connector, and return once its task is gone. `go_on`, `let_run` or `pause_again` bring it back."""
        state = self.connect.state(self.names.connector)
        if state is not None and not is_stopped(state):
            before = PAUSED if state.connector == PAUSED else RUNNING
            self.note(control_notes.STOPPED, {BEFORE: before})
        self.connect.stop(self.names.connector)
        wait_until_stopped(self.connect, self.source, self.names)
        with suppress(SourceProblem), self.open_database() as database:  # the database may not answer
            if (past := database.past_statements(self.stored_statements)) is not None:
                self.connect.change_offset(self.names.connector, lambda _: past)

    def let_run(self) -> None:
        """Let a connector run that is stopped or paused."""
        self.connect.resume(self.names.connector)
        self.note(control_notes.BROUGHT_BACK, {})

    def pause_again(self) -> None:
        """Pause a connector that was paused before it was stopped."""
        self.connect.pause(self.names.connector)
        self.note(control_notes.BROUGHT_BACK, {})

    def go_on(self) -> None:
        """Let a stopped connector run, with the heartbeat that one that reads tables again needs to begin with."""
        try:
            self.beat()
        finally:
            self.let_run()
        self.wait_until_running()

    def left_stopped(self) -> str | None:
        """To which state a command brings the connector back that has stopped it; None if it is not stopped by one."""
        if not is_stopped(self.connect.state(self.names.connector)):
            return None
        noted = control_topics.last_note(
            self.settings.log, self.names, control_notes.STOPPED, control_notes.BROUGHT_BACK
        )
        before = (noted or {}).get(BEFORE)
        return before if before in (PAUSED, RUNNING) else None

    def bring_back(self) -> bool:
        """Let a connector run that a command has stopped which ended before it let it run again; whether there was one.

        One that was paused before is paused again. Only `holding` makes sure that the command has ended.
        """
        before = self.left_stopped()
        if before == PAUSED:
            self.pause_again()
        elif before == RUNNING:
            self.go_on()
        return before is not None

    def note(self, kind: str, data: Mapping[str, Any]) -> None:
        """Keep a note about the source; raises LogUnavailable."""
        control_topics.note(self.settings.log, self.names, kind, data)

    def wait_until_running(self) -> None:
        """Return once the connector and its task run; raises ConnectError, or SourceProblem if changes are lost."""
        try:
            wait_until_running(self.connect, self.source, self.names)
        except ConnectorFailed as failed:
            lost = self.lost_changes(failed.cause)
            if lost is None:
                raise
            raise SourceProblem(self.source.name, lost) from failed

    def lost_changes(self, error: str) -> str | None:
        """What it means that a connector failed with this error, and what helps; None if no changes are missing."""
        why = self.engine.why_lost(error)
        return None if why is None else self.engine.lost_changes(self.source.name, self.names, why)

    def beat(self) -> None:
        """Write a heartbeat, which a connector that starts may need."""
        with self.open_database() as database:
            database.beat()

    def must_be_registered(self) -> None:
        """Raise SourceProblem if it has no connector."""
        if self.connect.config(self.names.connector) is None:
            raise SourceProblem(self.source.name, "it has no connector: run headwater sources apply")

    def has_captured_all(self, timeout_s: float | None = None) -> bool:
        """Whether the connector has captured all that the database has logged until now; waits for a time if it runs.

        Otherwise it would bring rows that are gone back to the topic, after they were swept, and others as they were.
        """
        if self._rests():
            return False
        with self.open_database() as database:
            place = database.place()
            database.beat()  # something to capture behind that place

            def has_all() -> bool:
                return is_after_snapshot(self.offset()) and database.has_captured(place, self.stored_statements)

            return is_reached(lambda: has_all() or self._rests(), timeout_s) and has_all()

    def _rests(self) -> bool:
        """Whether the connector captures nothing until somebody does something about it."""
        state = self.connect.state(self.names.connector)
        return state is None or state.state in RESTING

    def stored_statements(self) -> Collection[str]:
        """The GTIDs of the statements that the connector has read and stored; raises LogUnavailable."""
        statements, _ = read_statements(self.settings.log, self.source)
        return {each.position.transaction_id for each in statements if each.position.transaction_id}


PAUSED, RUNNING = "PAUSED", "RUNNING"
RESTING: Final = frozenset({PAUSED, "STOPPED", "FAILED"})
"""States that do not end by themselves; one that is not assigned to a worker yet soon runs."""
BEFORE = "before"
"""In a note of a connector that is stopped: to which of these states it is brought back."""


def is_stopped(state: ConnectorState | None) -> bool:
    """Whether it has no task, and gets none until it is resumed."""
    return state is not None and state.connector == "STOPPED"
