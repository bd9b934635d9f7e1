"""What loaders measure, and the processes of the read side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headwater.eventlog.programs.metrics import counter, gauge, seconds
from headwater.projections.supervision.process import State
from headwater.projections.supervision.supervised import Supervisor

READ_PATCHES: Final = counter("loader_patches", "Patches that a loader has read.", ["store"])
LOADED_ROWS: Final = counter(
    "loader_rows", "Rows that a loader has written; a row counts once per batch.", ["store", "view"]
)
BATCH_SECONDS: Final = seconds("loader_batch_seconds", "How long a store took to apply a batch.", ["store"])
LETTERS: Final = counter("loader_dead_letters", "Patches that became dead letters.", ["store"])
STORE_WAITS: Final = counter(
    "loader_store_waits", "Calls that were repeated, because the store did not answer.", ["store"]
)
LIVE_RECORDS: Final = counter("live_records", "Records that the live query has read, counted when a batch ends.")
LIVE_BATCHES: Final = counter("live_batches", "Batches of the live query that have ended.")
LIVE_BATCH_SECONDS: Final = gauge("live_batch_seconds", "How long the last batch of the live query took.")


class PartMetrics(Collector):
    """The processes that a supervisor keeps alive."""

    def __init__(self, supervisor: Supervisor | None = None) -> None:
        """supervisor: None: none is known, only the names of metrics are."""
        self._supervisor = supervisor

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        up = GaugeMetricFamily("headwater_part_up", "1 if a part of the read side is healthy, else 0.", labels=["part"])
        restarts = CounterMetricFamily(
            "headwater_part_restarts", "Restarts of a part of the read side.", labels=["part"]
        )
        for status in self._supervisor.status() if self._supervisor else ():
            up.add_metric([status.name], float(status.state is State.HEALTHY))
            restarts.add_metric([status.name], status.restarts)
        yield up
        yield restarts
