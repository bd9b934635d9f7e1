"""Runs the query of one generation for a rebuild, until another process continues it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError

from headwater.eventlog.kafka.heartbeats import beating
from headwater.eventlog.settings import LogSettings
from headwater.projections.errors import StreamQueryFailed
from headwater.projections.generations.rebuild.engine import Waits
from headwater.projections.generations.registry.state_files import write_report
from headwater.projections.kinds import stream_view
from headwater.projections.spark.session import uninterrupted
from headwater.projections.spark.stream_queries.checkpoint import Checkpoint
from headwater.projections.spark.stream_queries.continuing import missing
from headwater.projections.spark.stream_queries.failures import reason
from headwater.projections.spark.stream_queries.progress_sender import progress_sender
from headwater.projections.spark.stream_queries.query import TRIGGER_S, StreamQuery, stream_session
from headwater.projections.spark.stream_queries.running_query import RunningQuery
from headwater.projections.stores.store import Target
from headwater.projections.stream.declaring.view import StreamView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STUCK_S: Final = 300.0
"""If a query has neither begun nor ended a batch for so long, and Spark runs no task, something is missing."""
PLANNING_S: Final = 10.0
"""A batch may begin with so long without tasks; until then nobody need ask for them."""
STOP_S: Final = 10.0
"""How long to wait for the end of a batch before the query is stopped."""
BATCHES: Final = 2
"""The first reads all records, and moves the watermark at its end; the second sends the rows that are final then. If
owners of `events` are down, no heartbeat causes the second: then Spark makes one without records if it sends rows."""


@contextmanager
def running(session: SparkSession, settings: LogSettings, target: Target, *, anew: bool) -> Iterator[Waits]:
    """See StreamQueries.running."""
    view = stream_view(target.view)
    checkpoint = Checkpoint.of(settings, target.tag)
    with checkpoint.held() as is_ours:
        if not is_ours:
            raise StreamQueryFailed(target.tag, "another process runs it: wait until it has stopped")
        if anew:
            checkpoint.create()
            write_report(settings, target.tag, None)
        elif not checkpoint.exists:
            raise StreamQueryFailed(
                target.tag,
                f"its state {missing(settings)}: run `replay rebuild {view.name}`, which computes it again",
            )
        with _named(target.tag), progress_sender(settings) as progress, ExitStack() as heartbeats:
            heartbeats.enter_context(beating(settings, view.beaten, partitions=1))
            until = checkpoint.committed() + BATCHES
            own = stream_session(session, without_heartbeats=not view.beaten)
            query = StreamQuery(own, progress, view, target.tag, settings, checkpoint)
            with _started(query, settings) as watched:
                yield _computed(watched, target, checkpoint, until, lambda: _runs_tasks(own))
                heartbeats.close()  # with a batch per second, a slow machine is never between two batches
                watched.stop(STOP_S)


@contextmanager
def _started(query: StreamQuery, settings: LogSettings) -> Iterator[RunningQuery]:
    """A query that runs until the context ends: Spark would go on with it without what it needs here."""
    watched: RunningQuery | None = None
    try:
        with uninterrupted():
            watched = RunningQuery(query.start(TRIGGER_S), settings, query.tag)
        yield watched
    finally:
        if watched is not None:
            try:
                watched.look()
            finally:
                watched.stop()


def _computed(
    watched: RunningQuery, target: Target, checkpoint: Checkpoint, until: int, runs_tasks: Callable[[], bool]
) -> Waits:
    """Until the batch with this number has ended, or without heartbeats, until nothing is left to do.

    runs_tasks: whether Spark runs any. Raises StreamQueryFailed if the query fails before, or does nothing for STUCK_S.
    """
    idle = None if stream_view(target.view).beaten else watched.when_idle()
    begun, silent_s, looked = -1, 0.0, time.monotonic()
    while checkpoint.committed() < until and not (idle and idle.is_set()):
        if (cause := watched.failure()) is not None:
            raise StreamQueryFailed(target.tag, cause)
        last, begun = begun, checkpoint.begun()
        now = time.monotonic()
        silent_s += min(1.0, now - looked)  # other work may have come between two looks
        looked = now
        if begun > last or (silent_s > PLANNING_S and runs_tasks()):
            silent_s = 0.0
        elif silent_s > STUCK_S:
            raise StreamQueryFailed(target.tag, _stuck(watched, stream_view(target.view)))
        yield


def _stuck(watched: RunningQuery, view: StreamView) -> str:
    """Why a query does nothing, as far as that is known, and what to do."""
    minutes = f"{STUCK_S / 60:.0f} minutes"
    if watched.is_in_batch or not view.beaten:
        return (
            f"Spark has run no task for {minutes}: see its log; if SPARK_MASTER names a cluster, give this application "
            "executors, and run this again"
        )
    return (
        f"no record has come for {minutes}, not even a heartbeat of this process: let it write to the topic "
        f"{' and '.join(view.beaten)}, and run this again"
    )


def _runs_tasks(session: SparkSession) -> bool:
    """Whether a task of any query runs: one query may have to wait for the tasks of another."""
    tracker = session.sparkContext.statusTracker()
    found = (tracker.getStageInfo(each) for each in tracker.getActiveStageIds())
    return any(each is not None and each.numActiveTasks for each in found)


@contextmanager
def _named(tag: str) -> Iterator[None]:
    """If Spark's JVM ends, say whose query that stopped."""
    try:
        yield
    except Py4JError as error:
        raise StreamQueryFailed(tag, f"Spark does not answer: {reason(error)}") from error
