"""A running query: whether it failed, and what its batches say."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headwater.eventlog.settings import LogSettings
from headwater.projections.generations.registry.state_files import StreamReport, note_start, write_report
from headwater.projections.spark.stream_queries.batch_spans import record_batch
from headwater.projections.spark.stream_queries.failures import reason, refuses_state
from headwater.projections.spark.stream_queries.frames import AMENDING, COUNTED, DROPPED, UNREADABLE

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

LOOK_S: Final = 0.02
HELD_S: Final = 60.0
"""After so long, and a batch, an attempt to run a query has held: until then, what stopped the last one may stop it."""


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
        return [each for each in recent if each["batchId"] > self._batch]

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
    metrics = [each for each in progress["observedMetrics"].values() if all(name in each for name in COUNTED)]
    counts = {name: sum(each[name] for each in metrics) for name in (AMENDING, DROPPED, UNREADABLE)}
    operators = progress["stateOperators"]
    return replace(
        report,
        batch=progress["batchId"],
        batch_s=round(progress["durationMs"].get("triggerExecution", 0) / 1000, 3),
        records=report.records + progress["numInputRows"],
        amending=report.amending + counts[AMENDING],
        dropped=report.dropped + counts[DROPPED],
        unreadable=report.unreadable + counts[UNREADABLE],
        lost=report.lost + sum(each["numRowsDroppedByWatermark"] for each in operators),
        state_rows=sum(each["numRowsTotal"] for each in operators),
        state_bytes=sum(each["memoryUsedBytes"] for each in operators),
        watermark=progress["eventTime"].get("watermark", ""),
        starting=False,
    )
