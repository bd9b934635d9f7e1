"""All stream views of a deployment in one Spark application: a query for each live generation."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headwater.eventlog.programs.backoff import Backoff
from headwater.eventlog.settings import LogSettings
from headwater.projections.errors import LiveQueryFailed, StoreUnavailable
from headwater.projections.generations.registry.database import QueryLocks
from headwater.projections.generations.registry.state_files import note_failure, recomputed
from headwater.projections.kinds import stream_view
from headwater.projections.spark.stream_queries.checkpoint import Checkpoint
from headwater.projections.spark.stream_queries.failures import reason
from headwater.projections.spark.stream_queries.query import TRIGGER_S, ProgressSender, StreamQuery, stream_session
from headwater.projections.spark.stream_queries.realtime import RealtimeQuery
from headwater.projections.spark.stream_queries.running_query import RunningQuery
from headwater.projections.stores.store import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

LOOK_S: Final = 0.5
SWEEP_S: Final = 300.0
RESTARTS: Final = Backoff(first_s=1.0, max_s=60.0, limit=None)
"""Of a query that fails: for ever, since what it waits for may come back, and a restart of all would not help it."""
HAND_OVER_S: Final = 5.0
"""How long the query of a rebuild may take to end after it has made its generation live."""
REFUSALS: Final = 4
"""After so many failures in a row, the checkpoint that Spark refuses is lost: a disk may be full for a moment."""
LOGGED_FAILURES: Final = 20
"""This many failures in a row are logged, and then every LOGGED_EVERY-th: about one per hour."""
LOGGED_EVERY: Final = 60

Start = Callable[[Target, Checkpoint], RunningQuery]
"""Starts the query of a generation."""
WhyLost = Callable[[Target], str | None]
"""Why the query of a generation with state cannot continue here; None if it can. See `continuing.why_lost`."""
Elsewhere = Callable[[], str | None]
"""Where another read side of the deployment keeps state; None if no other one runs."""


@dataclass
class _Run:
    """The query of one generation, running or waiting for its next attempt.

    failures: since an attempt has held. not_before: time of the next attempt, by the monotonic clock.
    holder: the process elsewhere that held the query at the last attempt.
    is_of_other_spark: whether another version of Spark has made the checkpoint. is_noted: whether that is over.
    """

    target: Target
    checkpoint: Checkpoint
    query: RunningQuery | None = None
    held: ExitStack = field(default_factory=ExitStack)
    failures: int = 0
    not_before: float = 0.0
    holder: str | None = None
    is_of_other_spark: bool = False
    is_noted: bool = False

    @property
    def is_logged(self) -> bool:
        """Whether its last failure and the attempt after it are logged."""
        return self.failures <= LOGGED_FAILURES or self.failures % LOGGED_EVERY == 0

    def note_spark(self) -> None:
        """Note that this version of Spark continues the query, once its attempt has held."""
        if not self.is_noted:
            self.is_noted, self.is_of_other_spark = True, False
            try:
                self.checkpoint.note_spark()
            except OSError as error:
                log.warning("cannot note which Spark runs %s: %s", self.target.tag, error)

    def stop(self) -> None:
        """Stop the query, and let another process have its checkpoint."""
        query, self.query = self.query, None
        try:
            if query is not None:
                query.stop()
        except Exception as error:  # noqa: BLE001 - the JVM may have ended; the next process finds the checkpoint free
            log.warning("the query of %s did not stop: %s", self.target.tag, error)
        finally:
            self.held.close()


class Streams:
    """Keeps a query running for each live generation; one that fails does not stop the others.

    live: the live generations; raises StoreUnavailable. start: starts a query. why_lost: looked at before. elsewhere:
    looked at if the state is lost. locks: held while queries run.
    """

    def __init__(
        self,
        settings: LogSettings,
        live: Callable[[], Sequence[Target]],
        start: Start,
        why_lost: WhyLost,
        elsewhere: Elsewhere,
        locks: QueryLocks,
        now: Callable[[], float],
    ) -> None:
        self._settings, self._live, self._start, self._now = settings, live, start, now
        self._why_lost, self._elsewhere, self._locks = why_lost, elsewhere, locks
        self._runs: dict[str, _Run] = {}

    def step(self) -> None:
        """Stop the queries of generations that are no longer live, and start those that should run."""
        try:
            wanted = {target.tag: target for target in self._live()}
        except StoreUnavailable as error:
            log.warning("keeping the known generations: %s", error)
            wanted = {tag: run.target for tag, run in self._runs.items()}
        for tag in self._runs.keys() - wanted.keys():
            log.info("%s is no longer live: its query ends", tag)
            self._runs.pop(tag).stop()
        try:
            taken = self._locks.taken()  # by other processes since PostgreSQL was unavailable; until then, nobody can
        except StoreUnavailable as error:
            log.warning("queries go on, and their locks are taken again later: %s", error)
            taken = {}
        for tag in taken.keys() & self._runs.keys():
            self._failed(tag, self._runs[tag], _held_by(taken[tag]))
        for tag, target in wanted.items():
            run = self._runs.setdefault(tag, _Run(target, Checkpoint.of(self._settings, tag)))
            if run.query is not None:
                self._look(tag, run, run.query)
            elif self._now() >= run.not_before:
                self._try_to_start(tag, run)

    def stop(self) -> None:
        """Stop all queries."""
        for run in self._runs.values():
            run.stop()
        self._runs.clear()

    @property
    def running(self) -> Mapping[str, RunningQuery]:
        """The running queries by tag."""
        return {tag: run.query for tag, run in self._runs.items() if run.query is not None}

    def _try_to_start(self, tag: str, run: _Run) -> None:
        try:
            if not run.held.enter_context(run.checkpoint.held()):
                run.held.close()  # a rebuild has just made it live, and still runs its query
                return
            if (holder := self._locks.hold(tag)) is not None:
                run.held.close()
                if holder == run.holder:
                    self._failed(tag, run, _held_by(holder))
                else:  # a rebuild elsewhere may have just made it live; whoever holds it for longer is named
                    run.holder, run.not_before = holder, self._now() + HAND_OVER_S
                return
            run.held.callback(self._locks.release, tag)
            run.holder = None
            if (lost := self._why_lost(run.target)) is not None:
                self._lost(tag, run, lost)
                return
            committed, run.is_of_other_spark = run.checkpoint.committed(), run.checkpoint.is_of_other_spark()
            run.query = self._start(run.target, run.checkpoint)
        except Exception as error:  # noqa: BLE001 - what a user's query, Spark or a disk raises must not stop the others
            self._failed(tag, run, reason(error))
        else:
            level = logging.INFO if run.is_logged else logging.DEBUG
            log.log(level, "the query of %s continues after batch %d", tag, committed)

    def _look(self, tag: str, run: _Run, query: RunningQuery) -> None:
        try:
            query.look()
            cause = query.failure()
        except Exception as error:  # noqa: BLE001 - for example, Spark's JVM has ended
            cause = reason(error)
        if cause is not None and run.failures + 1 >= REFUSALS and (query.refuses_state or run.is_of_other_spark):
            self._lost(tag, run, f"cannot be read by Spark ({cause})")
        elif cause is not None:
            self._failed(tag, run, cause)
        elif query.has_held:
            run.failures = 0
            run.note_spark()

    def _lost(self, tag: str, run: _Run, lost: str) -> None:
        """The view is computed again, unless another read side may have the state: each would undo what the other one
        has computed."""
        if (place := self._elsewhere()) is not None:
            self._failed(tag, run, f"its state {lost}; another read side runs with {place}: stop one of the two")
        else:
            self._failed(tag, run, f"its state {lost}: {recomputed(run.target.view.name)}", lost)

    def _failed(self, tag: str, run: _Run, cause: str, state_lost: str = "") -> None:
        run.stop()
        note_failure(self._settings, tag, cause, state_lost)
        pause_s = RESTARTS.wait_s(run.failures)
        run.failures += 1
        run.not_before = self._now() + pause_s
        if run.is_logged:
            log.error(
                "the query of %s failed (%d in a row), trying again in %.0f s: %s", tag, run.failures, pause_s, cause
            )


def _held_by(holder: str) -> str:
    return f"another process runs it ({holder}): let one read side run at a time"


def trigger_s(views: int, cores: int) -> float:
    """Seconds between the starts of two batches of a query: a batch costs much even if it has few records."""
    return TRIGGER_S * max(1.0, views / cores)


@contextmanager
def starter(
    session: SparkSession, settings: LogSettings, every_s: float, applied: Callable[[Target], Mapping[str, int]]
) -> Iterator[Start]:
    """Starts queries on Spark; a batch of each begins every `every_s` seconds, or as seldom as its view says, if there
    are records. All of them share a session, and what sends their progress until the context ends.

    applied: by source, how far all stores have a real-time view; its query begins there. Raises StoreUnavailable.
    """
    batches = stream_session(session)
    with closing(ProgressSender(settings)) as progress:

        def start(target: Target, checkpoint: Checkpoint) -> RunningQuery:
            view = stream_view(target.view)
            if view.realtime:
                realtime = RealtimeQuery(session, view, settings, checkpoint).start(applied(target))
                return RunningQuery(realtime, settings, target.tag, has_batches=False)
            pause_s = max(every_s, view.every_s)
            query = StreamQuery(batches, progress, view, target.tag, settings, checkpoint).start(pause_s)
            return RunningQuery(query, settings, target.tag, pause_s=pause_s)

        yield start


def run_streams(
    streams: Streams,
    stop: threading.Event,
    has_died: Callable[[], bool],
    on_running: Callable[[], None],
    sweep: Callable[[], None],
) -> None:
    """Keep the queries running until `stop` is set.

    has_died: whether Spark's JVM has ended. on_running: called once, after the queries were started. sweep: called now
    and then, to delete the checkpoints of generations that are gone. Raises LiveQueryFailed if Spark has ended.
    """
    swept = time.monotonic()
    try:
        streams.step()
        on_running()
        while not stop.wait(LOOK_S):
            if has_died():
                raise LiveQueryFailed("Spark's JVM has ended")
            streams.step()
            if time.monotonic() - swept >= SWEEP_S:
                sweep()
                swept = time.monotonic()
    finally:
        streams.stop()
