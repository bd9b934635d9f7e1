"""A running query: whether it failed, and what its batches say."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from projections.spark.streams.frames import AMENDING, DROPPED, UNREADABLE
from projections.spark.streams.runs import reason

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

REPORT_BATCHES: Final = 120
"""Batches between two reports of a query that has nothing special to say."""


class Watched:
    """One running query, and what it has counted since its start. tag: of its generation."""

    def __init__(self, query: StreamingQuery, tag: str) -> None:
        self._query, self._tag = query, tag
        self._batch, self._reported = -1, 0
        self.counts: dict[str, int] = {}
        self.latest: dict[str, Any] = {}

    def look(self) -> bool:
        """Take in the batches that ended since the last look; returns whether there were any."""
        found = [each for each in self._query.recentProgress if each["batchId"] > self._batch]
        for each in found:
            self._batch, self.latest = each["batchId"], each
            for metrics in each["observedMetrics"].values():
                for name, number in metrics.asDict().items():
                    self.counts[name] = self.counts.get(name, 0) + number
            self._report(each)
        return bool(found)

    def failure(self) -> str | None:
        """Why it ended; None while it runs."""
        error = self._query.exception()
        if error is not None:
            return reason(error)
        return None if self._query.isActive else "it has stopped"

    def stop(self) -> None:
        """Stop it."""
        self._query.stop()

    def _report(self, progress: Any) -> None:
        lost = sum(each["numRowsDroppedByWatermark"] for each in progress["stateOperators"])
        if lost:
            log.error(
                "%s: Spark dropped %d rows behind its watermark that the rule of lateness admits", self._tag, lost
            )
        metrics = [each.asDict() for each in progress["observedMetrics"].values()]
        said = {name: sum(each.get(name, 0) for each in metrics) for name in (AMENDING, DROPPED, UNREADABLE)}
        self._reported += 1
        if any(said.values()) or self._reported >= REPORT_BATCHES:
            self._reported = 0
            rows = sum(each["numRowsTotal"] for each in progress["stateOperators"])
            log.info(
                "%s batch %d: %d records, %d late and amending, %d late and dropped, %d unreadable; %d rows of state",
                self._tag, progress["batchId"], progress["numInputRows"], *said.values(), rows,
            )  # fmt: skip
