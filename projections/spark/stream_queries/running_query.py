"""A running query: whether it failed, what its batches say, and the run of one until a rebuild has what it needs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headwater.eventlog.envelope import timestamp_ms
from headwater.eventlog.kafka.heartbeats import beating
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.tracing import spans
from headwater.eventlog.tracing.spans import MS, origin_of_batch
from headwater.projections.errors import StreamQueryFailed
from headwater.projections.generations.rebuild.engine import Waits
from headwater.projections.generations.registry.state_files import StreamReport, note_start, write_report
from headwater.projections.kinds import stream_view
from headwater.projections.spark.session import uninterrupted
from headwater.projections.spark.stream_queries.checkpoint import Checkpoint, missing
from headwater.projections.spark.stream_queries.failures import reason, refuses_state
from headwater.projections.spark.stream_queries.frames import AMENDING, COUNTED, DROPPED, UNREADABLE
from headwater.projections.spark.stream_queries.query import TRIGGER_S, ProgressSender, StreamQuery, stream_session
from headwater.projections.stores.store import Target
from headwater.projections.stream.view import StreamView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)
LOOK_S: Final = 0.02
HELD_S: Final = 60.0
"""After so long, and a batch, an attempt to run a query has held: until then, what stopped the last one may stop it."""
STUCK_S: Final = 300.0
"""If a query has neither begun nor ended a batch for so long, and Spark runs no task, something is missing."""
PLANNING_S: Final = 10.0
"""A batch may begin with so long without tasks; until then nobody need ask for them."""
STOP_S: Final = 10.0
"""How long to wait for the end of a batch before the query is stopped."""
BATCHES: Final = 2
"""The first reads all records, and moves the watermark at its end; the second sends the rows that are final then. If
owners of `events` are down, no heartbeat causes the second: then Spark makes one without records if it sends rows."""


def record_batch(tag: str, progress: Any) -> None:
    """Record the span of a batch that has ended, if it has read records and is sampled; loads of its rows are below it.

    tag: of the generation. progress: what Spark says of the batch.
    """
    if not spans.is_on() or not progress["numInputRows"]:
        return
    number = progress["batchId"]
    if (context := origin_of_batch(tag, number)) is None:
        return
    view, began_ns = tag.partition("@")[0], timestamp_ms(datetime.fromisoformat(progress["timestamp"])) * MS
    facts = {"headwater.view": view, "headwater.batch": number, "headwater.records": progress["numInputRows"]}
    span = spans.first(f"batch {view}", context, "internal", facts, began_ns=began_ns)
    if span is not None:
        span.end(at_ns=began_ns + progress["durationMs"].get("triggerExecution", 0) * MS)


class RunningQuery:
    """One attempt to run a query. tag: of its generation, whose report goes on from what is known.

    pause_s: between two batches. has_batches: whether it works in short batches. One in real-time mode has started when
    its first batch begins. now: a clock in seconds.
    """

    def __init__(
        self,
        query: StreamingQuery,
        settings: LogSettings,
        tag: str,
        *,
        pause_s: float = 0.0,
        has_batches: bool = True,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._query, self._settings, self._tag, self._has_batches, self._now = query, settings, tag, has_batches, now
        self._report = note_start(settings, tag)
        self._held_from = now() + HELD_S + pause_s
        self._batch = -1
        self.refuses_state = False
        """Whether it ended because Spark cannot read its checkpoint."""

    def look(self) -> None:
        """Take in the batches that ended since the last look."""
        before = self._report
        if before.starting and not self._has_batches and self.is_in_batch:
            self._report = replace(before, starting=False)
        for progress in self._new():
            self._batch = progress["batchId"]
            if self._has_batches:
                record_batch(self._tag, progress)
            self._report = reported(self._report, progress)
        if self.has_held:
            self._report = replace(self._report, failure="")
        if self._report != before:
            self._log(before, self._report)
            write_report(self._settings, self._tag, self._report)

    @property
    def has_held(self) -> bool:
        """Whether the query works, as of the last look: earlier failures are over."""
        return not self._report.starting and self._now() >= self._held_from

    def _new(self) -> list[Any]:
        """The progress of new batches. Spark keeps that of 100, and to convert all of it takes a tenth of a second."""
        last: Any = self._query.lastProgress
        if last is None or last["batchId"] <= self._batch:
            return []
        if last["batchId"] == self._batch + 1:
            return [last]
        recent: list[Any] = self._query.recentProgress
        return [progress for progress in recent if progress["batchId"] > self._batch]

    def failure(self) -> str | None:
        """Why it ended; None while it runs."""
        error = self._query.exception()
        if error is None and self._query.isActive:
            return None
        cause = "it has stopped" if error is None else reason(error)
        self.refuses_state = error is not None and refuses_state(error)
        self._report = replace(self._report, starting=False, failure=cause)
        write_report(self._settings, self._tag, self._report)
        return cause

    def when_idle(self) -> threading.Event:
        """Set as soon as it has looked for records, and has none to read and no rows to send."""
        idle = threading.Event()

        def wait() -> None:
            try:
                self._query.processAllAvailable()
            except (PySparkException, Py4JError) as error:
                log.debug("%s: not idle: %s", self._tag, error)  # `failure` says why
            else:
                idle.set()

        threading.Thread(target=wait, name=f"{self._tag} until idle", daemon=True).start()
        return idle

    def stop(self, within_s: float = 0.0) -> None:
        """Stop it, between two batches if there is such a moment within `within_s` seconds.

        A batch that it interrupts is repeated when the query continues.
        """
        until = time.monotonic() + within_s
        try:
            while time.monotonic() < until and self.is_in_batch:
                time.sleep(LOOK_S)
        finally:
            self._query.stop()

    @property
    def is_in_batch(self) -> bool:
        """Whether it reads, computes or writes."""
        status: Any = self._query.status
        return bool(self._query.isActive and status["isTriggerActive"])

    def _log(self, before: StreamReport, after: StreamReport) -> None:
        if after.lost > before.lost:
            number = after.lost - before.lost
            log.error("%s: Spark dropped %d rows that the rule of lateness admits", self._tag, number)
        counted = (AMENDING, DROPPED, UNREADABLE)
        if any(getattr(after, name) > getattr(before, name) for name in counted):
            log.info("%s: %s", self._tag, after.text())


def reported(report: StreamReport, progress: Mapping[str, Any]) -> StreamReport:
    """`report` with one more batch, from Spark's progress of it."""
    # a query may observe numbers of its own
    metrics = [metrics for metrics in progress["observedMetrics"].values() if all(name in metrics for name in COUNTED)]
    counts = {name: sum(metric[name] for metric in metrics) for name in (AMENDING, DROPPED, UNREADABLE)}
    operators = progress["stateOperators"]
    return replace(
        report,
        batch=progress["batchId"],
        batch_s=round(progress["durationMs"].get("triggerExecution", 0) / 1000, 3),
        records=report.records + progress["numInputRows"],
        amending=report.amending + counts[AMENDING],
        dropped=report.dropped + counts[DROPPED],
        unreadable=report.unreadable + counts[UNREADABLE],
        lost=report.lost + sum(operator["numRowsDroppedByWatermark"] for operator in operators),
        state_rows=sum(operator["numRowsTotal"] for operator in operators),
        state_bytes=sum(operator["memoryUsedBytes"] for operator in operators),
        watermark=progress["eventTime"].get("watermark", ""),
        starting=False,
    )


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
        with _named(target.tag), closing(ProgressSender(settings)) as progress, ExitStack() as heartbeats:
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
    stages = (tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds())
    return any(stage is not None and stage.numActiveTasks for stage in stages)


@contextmanager
def _named(tag: str) -> Iterator[None]:
    """If Spark's JVM ends, say whose query that stopped."""
    try:
        yield
    except Py4JError as error:
        raise StreamQueryFailed(tag, f"Spark does not answer: {reason(error)}") from error
