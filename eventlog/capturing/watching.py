"""Restarts connectors that failed, once their databases answer, and lets them read tables and rows that were missed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from headwater.eventlog.capturing.errors import CaptureError, ConnectError, ConnectUnavailable, SourceProblem
from headwater.eventlog.capturing.kafka_connect import ConnectorState
from headwater.eventlog.capturing.operating import Operator
from headwater.eventlog.capturing.sweeping import IncompleteRows
from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.programs.backoff import RETRY_FOREVER, Backoff

EVERY_S: Final = 1.0
RESTARTS: Final = Backoff(first_s=1.0, max_s=60.0, limit=None, limit_at_first=None)
"""Between restarts of one connector; it begins again once the connector has run for `stable_s`."""
CHECKS: Final = RETRY_FOREVER
"""Between checks of a database that does not answer: more often, so that capturing continues soon after it is back."""

LOST_S: Final = 10.0
"""Between looks at whether a connector that runs skips changes: the log of the database may pass its place soon."""
INCOMPLETE_S: Final = 30.0
"""Between looks for rows that lack values: the connector is stopped for some seconds before it reads them again."""
STEP_S: Final = 60.0
"""At least between two restarts that keep a connector from skipping changes: statements may come again and again."""
CAPTURED_S: Final = 5.0
"""How long a look waits for a connector to capture all before it is told to read tables: there are other sources."""
ABSENT_S: Final = 30.0
"""How long a connector is absent before it is named: a worker that starts does not know its connectors at first."""

log = logging.getLogger(__name__)


@dataclass
class SourceWatch:
    """What the watch does about one source, and what it has done.

    clock: seconds that never go back.
    rows: those that lack values, as far as they are known.
    restarts: since it last ran steadily.
    checks: that failed in a row.
    due: when to restart it; None if it has not failed.
    since: when it was first seen running; None if it does not run.
    absent: when it was first found not to be registered; None if it is.
    next_look: when to look whether it skips changes.
    next_step: before then, it is not restarted so that it does not.
    lost: why it does, or why that is not known; None if it does not.
    next_rows: when to look for rows that lack values.
    incomplete: what was found out about these, and what helps.
    reported: problems that are not solved yet.
    """

    operator: Operator
    clock: Callable[[], float]
    rows: IncompleteRows
    restarts: int = 0
    checks: int = 0
    due: float | None = None
    since: float | None = None
    absent: float | None = None
    next_look: float = 0.0
    next_step: float = 0.0
    lost: str | None = None
    next_rows: float = 0.0
    incomplete: str | None = None
    reported: set[str] = field(default_factory=set)

    def look(self, state: ConnectorState | None) -> None:
        """Do what the state of the connector asks for; raises ConnectError."""
        now = self.clock()
        if state is None:
            self.since = self.due = None
            self.absent = now if self.absent is None else self.absent
            if now - self.absent >= ABSENT_S:
                self.report("it has no connector: run headwater sources apply")
            return
        self.absent = None
        if state.is_running:
            self._note_running(now)
            return
        self.since = None
        if state.state == "FAILED":
            self._handle_failure(state)
        elif state.state in ("PAUSED", "STOPPED"):
            self._forget()
            if state.state == "STOPPED" and now >= self.next_look:
                self.next_look = now + LOST_S
                self.lost = self._warn_anew(_why(self._bring_back), self.lost)

    def report(self, *problems: str) -> None:
        """Log each problem that is new."""
        for problem in problems:
            if problem not in self.reported:
                self.reported.add(problem)
                self._log(logging.WARNING, problem)

    def lose_connect(self) -> None:
        """Kafka Connect does not say how the connector is, which may not run any more."""
        self.since = self.absent = None

    def _note_running(self, now: float) -> None:
        self.due = None
        self.since = now if self.since is None else self.since
        if now - self.since >= RESTARTS.stable_s:
            if self.restarts or self.reported:
                self._log(logging.INFO, "its connector runs")
            self._forget()
        if now >= self.next_look:
            self.next_look = now + LOST_S
            self.lost = self._warn_anew(_why(self._look_for_lost), self.lost)
        if now >= self.next_rows:
            self.next_rows = now + INCOMPLETE_S
            incomplete = _why(lambda: self.operator.read_incomplete(self.rows, CAPTURED_S))
            self.incomplete = self._warn_anew(incomplete, self.incomplete)
            if self.rows.is_behind:
                self.next_rows = now

    def _look_for_lost(self) -> Sequence[str]:
        """Name what a connector that runs skips. It is left running: what it captures is right, but not all.

        Tables that it should have read are read if they were named by the look before, too: a command that was about to
        do that has ended.
        """
        lost = self.operator.find_uncaptured()
        if lost is not None and lost == self.lost and self.operator.read_late(CAPTURED_S):
            self._log(logging.INFO, "its connector reads tables again")
        elif self.clock() >= self.next_step and self.operator.step_over_statements():
            self.next_step = self.clock() + STEP_S
            self._log(logging.INFO, "its connector goes on behind the last statement")
        return () if lost is None else (lost,)

    def _bring_back(self) -> Sequence[str]:
        """Let a connector run that a command has left stopped, which has ended, or this watch itself, as it was
        interrupted by a server that went away."""
        if self.operator.bring_back_if_left():
            self._log(logging.WARNING, "its connector was left stopped, and goes on")
        return ()

    def _handle_failure(self, state: ConnectorState) -> None:
        operator = self.operator
        if (lost := operator.lost_changes(state.error)) is not None:
            self.report(lost)
            return
        if self.due is None:
            self.report(f"its connector failed ({state.error}): it is restarted until it runs")
            self.due = self.clock() + RESTARTS.wait_s(self.restarts)
        if self.clock() < self.due:
            return
        try:
            self.report(*operator.prepare_restart())
            is_registered = operator.connect.restart_failed(operator.names.connector)
            self.due, self.checks = None, 0
            if is_registered:
                self.restarts += 1
                self._log(logging.INFO, f"restart {self.restarts} of its connector")
        except (CaptureError, LogUnavailable) as error:
            self.due = self.clock() + CHECKS.wait_s(self.checks)
            self.checks += 1
            # Connect may answer the next look and hang in the next restart, so this is not Connect that is away
            self.report(*(error.problems if isinstance(error, SourceProblem) else [str(error)]))

    def _warn_anew(self, problem: str | None, before: str | None) -> str | None:
        """Log what a look has found, unless the look before has found the same; returns it."""
        if problem is not None and problem != before:
            self._log(logging.WARNING, problem)
        return problem

    def _forget(self) -> None:
        """Forget the earlier problems, because they are solved."""
        self.restarts = self.checks = 0
        self.due = None
        self.reported.clear()

    def _log(self, level: int, text: str) -> None:
        log.log(level, 'source "%s": %s', self.operator.source.name, text)


class Watcher:
    """Restarts the connector of each source, or its task, if it failed. A paused one is left alone, and one that was
    stopped, unless by a command that has ended and left it so.

    Each distinct problem is logged once until the connector runs steadily again. A source that lost changes is named,
    and never restarted. clock: seconds that never go back.
    """

    def __init__(self, operators: Sequence[Operator], clock: Callable[[], float] = time.monotonic) -> None:
        self._watches = [
            SourceWatch(operator, clock, IncompleteRows(operator.control.log, operator.names)) for operator in operators
        ]
        self._connect_is_away = False

    def run(self, wait: Callable[[float], bool]) -> None:
        """Look every EVERY_S until `wait`, which is given these seconds, returns True: it is time to end."""
        log.info("watching %s", ", ".join(watch.operator.source.name for watch in self._watches))
        while True:
            self.look()
            if wait(EVERY_S):
                return

    def look(self) -> None:
        """Look at each source once, and restart what is due; a server that does not answer is logged, not raised."""
        for watch in self._watches:
            try:
                state = watch.operator.state()
                if self._connect_is_away:
                    self._connect_is_away = False
                    log.info("Kafka Connect answers again")
                watch.look(state)
            except ConnectUnavailable as error:
                # all sources have the same Connect, so it is named once
                for other in self._watches:
                    other.lose_connect()
                if not self._connect_is_away:
                    self._connect_is_away = True
                    log.warning("%s", error)
                return
            except ConnectError as error:
                watch.lose_connect()
                watch.report(str(error))


def _why(act: Callable[[], Sequence[str]]) -> str | None:
    """The problems that it finds, or why it fails; None if there are none. Raises ConnectError."""
    try:
        problems = act()
    except ConnectError:
        raise
    except SourceProblem as error:
        problems = error.problems
    except LogUnavailable as error:
        return str(error)
    return "; ".join(problems) or None
