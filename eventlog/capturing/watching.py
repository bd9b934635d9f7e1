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
class _Watched:
    """A source and what was done about it.

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

    def report(self, *problems: str) -> None:
        """Log each problem that is new."""
        for problem in problems:
            if problem not in self.reported:
                self.reported.add(problem)
                log.warning('source "%s": %s', self.operator.source.name, problem)

    def warn_anew(self, found: str | None, before: str | None) -> str | None:
        """Log what a look has found, unless the look before has found the same; returns it."""
        if found is not None and found != before:
            log.warning('source "%s": %s', self.operator.source.name, found)
        return found

    def forget(self) -> None:
        """Forget the earlier problems, because they are solved."""
        self.restarts = self.checks = 0
        self.due = None
        self.reported.clear()


class Watcher:
    """Restarts the connector of each source, or its task, if it failed. A paused one is left alone, and one that was
    stopped, unless by a command that has ended and left it so.

    Each distinct problem is logged once until the connector runs steadily again. A source that lost changes is named,
    and never restarted. clock: seconds that never go back.
    """

    def __init__(self, operators: Sequence[Operator], clock: Callable[[], float] = time.monotonic) -> None:
        self._watched = [_Watched(each, IncompleteRows(each.control.log, each.names)) for each in operators]
        self._clock = clock
        self._connect_is_away = False

    def run(self, wait: Callable[[float], bool]) -> None:
        """Look every EVERY_S until `wait`, which is given these seconds, returns True: it is time to end."""
        log.info("watching %s", ", ".join(each.operator.source.name for each in self._watched))
        while True:
            self.look()
            if wait(EVERY_S):
                return

    def look(self) -> None:
        """Look at each source once, and restart what is due; a server that does not answer is logged, not raised."""
        for watched in self._watched:
            try:
                self._look_at(watched)
            except ConnectUnavailable as error:
                # all sources have the same Connect, so it is named once; what ran may not run any more
                for other in self._watched:
                    other.since = other.absent = None
                if not self._connect_is_away:
                    self._connect_is_away = True
                    log.warning("%s", error)
                return
            except ConnectError as error:
                watched.since = watched.absent = None
                watched.report(str(error))

    def _look_at(self, watched: _Watched) -> None:
        state, now = watched.operator.state(), self._clock()
        if self._connect_is_away:
            self._connect_is_away = False
            log.info("Kafka Connect answers again")
        if state is None:
            watched.since = watched.due = None
            watched.absent = now if watched.absent is None else watched.absent
            if now - watched.absent >= ABSENT_S:
                watched.report("it has no connector: run headwater sources apply")
            return
        watched.absent = None
        if state.is_running:
            self._note_running(watched, now)
            return
        watched.since = None
        if state.state == "FAILED":
            self._handle_failure(watched, state)
        elif state.state in ("PAUSED", "STOPPED"):
            watched.forget()
            if state.state == "STOPPED" and now >= watched.next_look:
                watched.next_look = now + LOST_S
                watched.lost = watched.warn_anew(_why(lambda: self._bring_back(watched)), watched.lost)

    def _note_running(self, watched: _Watched, now: float) -> None:
        operator = watched.operator
        watched.due = None
        watched.since = now if watched.since is None else watched.since
        if now - watched.since >= RESTARTS.stable_s:
            if watched.restarts or watched.reported:
                log.info('source "%s": its connector runs', operator.source.name)
            watched.forget()
        if now >= watched.next_look:
            watched.next_look = now + LOST_S
            watched.lost = watched.warn_anew(_why(lambda: self._look_for_lost(watched)), watched.lost)
        if now >= watched.next_rows:
            watched.next_rows = now + INCOMPLETE_S
            found = _why(lambda: operator.read_incomplete(watched.rows, CAPTURED_S))
            watched.incomplete = watched.warn_anew(found, watched.incomplete)
            if watched.rows.is_behind:
                watched.next_rows = now

    def _look_for_lost(self, watched: _Watched) -> Sequence[str]:
        """Name what a connector that runs skips. It is left running: what it captures is right, but not all.

        Tables that it should have read are read if they were named by the look before, too: a command that was about to
        do that has ended.
        """
        operator = watched.operator
        lost = operator.find_uncaptured()
        if lost is not None and lost == watched.lost and operator.read_late(CAPTURED_S):
            log.info('source "%s": its connector reads tables again', operator.source.name)
        elif self._clock() >= watched.next_step and operator.step_over_statements():
            watched.next_step = self._clock() + STEP_S
            log.info('source "%s": its connector goes on behind the last statement', operator.source.name)
        return () if lost is None else (lost,)

    def _bring_back(self, watched: _Watched) -> Sequence[str]:
        """Let a connector run that a command has left stopped, which has ended, or this watch itself, as it was
        interrupted by a server that went away."""
        if watched.operator.bring_back_if_left():
            log.warning('source "%s": its connector was left stopped, and goes on', watched.operator.source.name)
        return ()

    def _handle_failure(self, watched: _Watched, state: ConnectorState) -> None:
        operator = watched.operator
        if (lost := operator.lost_changes(state.error)) is not None:
            watched.report(lost)
            return
        if watched.due is None:
            watched.report(f"its connector failed ({state.error}): it is restarted until it runs")
            watched.due = self._clock() + RESTARTS.wait_s(watched.restarts)
        if self._clock() < watched.due:
            return
        try:
            watched.report(*operator.prepare_restart())
            is_registered = operator.connect.restart_failed(operator.names.connector)
            watched.due, watched.checks = None, 0
            if is_registered:
                watched.restarts += 1
                log.info('source "%s": restart %d of its connector', operator.source.name, watched.restarts)
        except (CaptureError, LogUnavailable) as error:
            watched.due = self._clock() + CHECKS.wait_s(watched.checks)
            watched.checks += 1
            # Connect may answer the next look and hang in the next restart, so this is not Connect that is away
            watched.report(*(error.problems if isinstance(error, SourceProblem) else [str(error)]))


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
