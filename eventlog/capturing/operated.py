"""What an operator works on: a source of a deployment, with its connector, its database, and the topics between them.

One command at a time works with a connector that is stopped, by a lock in the database of its source. While rows are
swept or a connector is told what to read, nothing may be captured. The server frees the lock as soon as the command has
ended, however it has, and a note says in which state the command found the connector. So a connector that was left
stopped is known from one that is worked with, and from one that somebody else has stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import asdict
from typing import Any, Final, Self

from headwater.eventlog.capturing.control_topics import ControlTopics
from headwater.eventlog.capturing.database import Database, Server
from headwater.eventlog.capturing.declaring import Captured, Source
from headwater.eventlog.capturing.errors import ConnectError, ConnectorFailed, SourceProblem
from headwater.eventlog.capturing.kafka_connect import ConnectorState, KafkaConnect, is_after_snapshot
from headwater.eventlog.capturing.naming import SourceNames
from headwater.eventlog.capturing.schema_history import read_statements
from headwater.eventlog.capturing.settings import SourceSettings, engine_of

BUSY: Final = "another command works with its connector: wait until that has ended, then run this again"
NOTED_S: Final = 10.0
"""How long nothing is read again of a source of which no server is noted."""
HOLD_S: Final = 60.0
"""How long a command waits for the one before it."""
RUNNING_S: Final = 180.0
"""How long a connector may take to run, or to stop: as long as a server of the local stack may take to start."""
CAPTURED_S: Final = 30.0
"""How long a connector may take to capture what the database has logged already."""
POLL_S: Final = 0.1
PAUSED, RUNNING = "PAUSED", "RUNNING"
RESTING: Final = frozenset({PAUSED, "STOPPED", "FAILED"})
"""States that do not end by themselves; one that is not assigned to a worker yet soon runs."""


class Operated:
    """A source of a deployment; closes `connect` at its end. report: called with a line per thing done."""

    def __init__(
        self, source: Source, settings: SourceSettings, connect: KafkaConnect, report: Callable[[str], None]
    ) -> None:
        self.source, self.settings, self.connect, self.report = source, settings, connect, report
        self.names = SourceNames.of(source, settings.log.environment)
        self.engine = engine_of(source)
        self.control = ControlTopics(settings.log, self.names)
        self._holding: Database | None = None
        self.ahead_s = 0.0
        """How far the clock that times heartbeats was ahead of the one of this process, when somebody looked."""
        self._server: Server | None = None
        """Which server was captured, as noted last."""
        self._server_read_s = float("-inf")
        self._depth, self._opened = 0, ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.control.close()
        self.connect.close()

    @contextmanager
    def open_database(self) -> Iterator[Database]:
        """Connect to the source's database; raises SourceProblem with what helps if that fails, or if this is another
        database than was captured so far, and LogUnavailable."""
        with self._reach_database() as database:
            now = database.identity()
            is_old = time.monotonic() - self._server_read_s > NOTED_S
            if now is not None and (is_old if self._server is None else now.differs(self._server)):
                # another command may have noted since which server is captured
                self._server, self._server_read_s = self.control.notes().server, time.monotonic()
            if now is not None and self._server is not None and (why := now.differs(self._server)):
                raise SourceProblem(
                    self.source.name,
                    f"{self.source.database} is the address of another database than is captured ({why}): correct it. "
                    "If the captured one is gone for good, changes are missing: run headwater sources remove "
                    f"--replaced {self.source.name}, then apply, which reads all tables again, then sweep, which "
                    "deletes rows that the database does not have",
                )
            yield database

    def _reach_database(self) -> AbstractContextManager[Database]:
        """The same, whichever database it is."""
        return self.engine.open(self.source, self.names, self.settings.database, self.offset)

    def state(self) -> ConnectorState | None:
        """The state of the connector; None if there is none."""
        return self.connect.state(self.names.connector)

    def offset(self) -> Mapping[str, Any] | None:
        """Where the connector goes on after a restart; None if it has stored nothing."""
        return self.connect.offset(self.names.connector)

    @contextmanager
    def taken(self, timeout_s: float | None = None) -> Iterator[bool]:
        """Have the source's lock for the block; whether it was free within this time (None: HOLD_S).

        A command of this process that has it already has it still. Raises SourceProblem.
        """
        if self._holding is None:
            with ExitStack() as opening:
                database = opening.enter_context(self.open_database())
                if is_reached(database.hold, HOLD_S if timeout_s is None else timeout_s):
                    self._holding, self._opened = database, opening.pop_all()
        if self._holding is None:
            yield False
            return
        self._depth += 1
        try:
            yield True
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._holding = None
                with suppress(SourceProblem):  # the lock ends with its connection, however that ends
                    self._opened.close()

    @contextmanager
    def holding(self, timeout_s: float | None = None) -> Iterator[None]:
        """Let no other command stop the connector, or let it run, within the block.

        timeout_s: how long to wait for such a command; None: HOLD_S. Raises SourceProblem if it has not ended by then.
        """
        with self.taken(timeout_s) as is_held:
            if not is_held:
                raise SourceProblem(self.source.name, BUSY)
            yield

    def check_held(self) -> None:
        """Raise SourceProblem if this process has lost the lock: then the connector may run again."""
        if self._holding is None or not self._holding.still_holds():
            raise SourceProblem(self.source.name, f"the connection that held its connector stopped was lost; {BUSY}")

    def stop(self) -> None:
        """Stop the connector, and return once its task is gone. `go_on`, `let_run` or `pause_again` bring it back."""
        state = self.state()
        if state is not None and not is_stopped(state):
            self.control.note("stopped", before=PAUSED if state.connector == PAUSED else RUNNING)
        self.connect.stop(self.names.connector)
        self.wait_until_stopped()
        with suppress(SourceProblem), self.open_database() as database:  # the database may not answer
            if (past := database.past_statements(self.stored_statements)) is not None:
                self.connect.change_offset(self.names.connector, lambda _: past)

    def let_run(self) -> None:
        """Let a connector run that is stopped or paused."""
        self.connect.resume(self.names.connector)
        self.control.note("brought-back")

    def go_on(self) -> None:
        """Let a stopped connector run, with the heartbeat that one that reads tables again needs to begin with."""
        try:
            with self.open_database() as database:
                database.beat()
        finally:
            self.let_run()
        self.wait_until_running()

    def left_stopped(self) -> str | None:
        """To which state a command brings the connector back that has stopped it; None if it is not stopped by one."""
        before = self.control.notes().before if is_stopped(self.state()) else None
        return before if before in (PAUSED, RUNNING) else None

    def bring_back(self) -> bool:
        """Let a connector run that a command has stopped which ended before it let it run again; whether there was one.

        One that was paused before is paused again. Only `holding` makes sure that the command has ended.
        """
        before = self.left_stopped()
        if before == PAUSED:
            self.connect.pause(self.names.connector)
            self.control.note("brought-back")
        elif before == RUNNING:
            self.go_on()
        return before is not None

    def wait_until(self, wanted: str, is_reached: Callable[[ConnectorState | None], bool]) -> None:
        """Return once the connector is in a state; raises ConnectError if it is not after RUNNING_S, or fails."""
        deadline = time.monotonic() + RUNNING_S
        while not is_reached(state := self.state()):
            if state is not None and state.state == "FAILED" and wanted == RUNNING:
                raise ConnectorFailed(self.source.name, state.error)
            if time.monotonic() > deadline:
                state_text = f"{state.connector}, and its task {state.task or 'absent'}" if state else "not registered"
                raise ConnectError(
                    f'the connector of source "{self.source.name}" is {state_text}, not {wanted}, '
                    f"after {RUNNING_S:.0f} s: see the log of Kafka Connect"
                )
            time.sleep(POLL_S)

    def wait_until_stopped(self) -> None:
        """Return once the connector's task is gone; raises ConnectError."""
        self.wait_until("STOPPED", lambda state: is_stopped(state) and state is not None and not state.task)

    def wait_until_running(self) -> None:
        """Return once the connector and its task run; raises ConnectError, or SourceProblem if changes are lost."""
        try:
            self.wait_until(RUNNING, lambda state: state is not None and state.is_running)
        except ConnectorFailed as failed:
            lost = self.lost_changes(failed.cause)
            if lost is None:
                raise
            raise SourceProblem(self.source.name, lost) from failed

    def lost_changes(self, error: str) -> str | None:
        """What it means that a connector failed with this error, and what helps; None if no changes are missing."""
        why = self.engine.why_lost(error)
        return None if why is None else self.engine.lost_changes(self.source.name, self.names, why)

    def lost(self, database: Database) -> str | None:
        """Why changes are missing that were not captured, and what helps; None if none are known to be."""
        if lost := database.lost():
            return lost
        why = self.why_skipped(database)
        return None if why is None else self.advice(why)

    def why_skipped(self, database: Database) -> str | None:
        """Why the connector skips changes, also if that was found earlier, because the database is not the one that it
        has captured so far; None if it does not. Raises SourceProblem or LogUnavailable.

        A standby that is promoted may lack the last changes, and a disk that is restored certainly does. The connector
        waits until the log of the database has reached its place, and skips what is written until then. What was found
        once is noted, because the log passes that place in the end.
        """
        notes = self.control.notes()
        if notes.skipped is not None:
            return notes.skipped
        was, now, why = notes.server, database.identity(), database.ahead()
        if why is None and was is not None and now is not None:
            if now.identifier == was.identifier and was.timeline and now.timeline not in (0, was.timeline):
                why = None if was.is_guarded else database.promoted(was.timeline)
            if why is None and now != was and now.timeline:
                self.control.note("server", **asdict(now))
        if why is not None:
            self.control.note("skipped-changes", reason=why)
        return why

    def note_server(self, database: Database) -> None:
        """Note which server is captured, if that is not noted yet; raises SourceProblem or LogUnavailable."""
        identity = database.identity()
        if identity is not None and identity != self.control.notes().server:
            self.control.note("server", **asdict(identity))

    def advice(self, why: str) -> str:
        """What it means that changes were skipped, and what helps."""
        return (
            f"changes are missing ({why}): run headwater sources remove {self.source.name}, then apply, which reads "
            "all tables again, then sweep, which deletes rows that the database does not have"
        )

    def must_be_registered(self) -> None:
        """Raise SourceProblem if it has no connector."""
        if self.connect.config(self.names.connector) is None:
            raise SourceProblem(self.source.name, "it has no connector: run headwater sources apply")

    def unchunked(self, database: Database, tables: Sequence[type[Captured]]) -> list[str]:
        """Those of these tables that cannot be read again while changes go on, each with what helps."""
        return [
            f'the rows of table "{table.table}" cannot be read again while changes go on, because {why}: run '
            f"headwater sources remove {self.source.name}, then apply, which reads all again, then sweep"
            for table in tables
            if (why := database.unchunked(table))
        ]

    def has_captured_all(self, timeout_s: float | None = None) -> bool:
        """Whether the connector has captured all that the database has logged until now; waits for a time if it runs.

        Otherwise it would bring rows that are gone back to the topic, after they were swept, and others as they were.
        """

        def rests() -> bool:
            """Whether the connector captures nothing until somebody does something about it."""
            state = self.state()
            return state is None or state.state in RESTING

        if rests():
            return False
        with self.open_database() as database:
            place = database.place()
            database.beat()  # something to capture behind that place

            def has_all() -> bool:
                return is_after_snapshot(self.offset()) and database.has_captured(place, self.stored_statements)

            return is_reached(lambda: has_all() or rests(), timeout_s) and has_all()

    def stored_statements(self) -> Collection[str]:
        """The GTIDs of the statements that the connector has read and stored; raises LogUnavailable."""
        statements, _ = read_statements(self.control.log, self.source)
        return {statement.position.transaction_id for statement in statements if statement.position.transaction_id}


def is_stopped(state: ConnectorState | None) -> bool:
    """Whether it has no task, and gets none until it is resumed."""
    return state is not None and state.connector == "STOPPED"


def is_reached(condition: Callable[[], bool], timeout_s: float | None = None) -> bool:
    """Whether this becomes true within this time; None: CAPTURED_S."""
    deadline = time.monotonic() + (CAPTURED_S if timeout_s is None else timeout_s)
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True
