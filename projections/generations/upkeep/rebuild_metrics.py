"""What is measured of rebuilds, in whatever process they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headwater.projections.generations.registry.rebuild_progress import RebuildProgress

PLACE: Final = ("view", "phase")


class RebuildMetrics(Collector):
    """The progress of the rebuilds that run, as their processes note it in the registry."""

    def __init__(self, rebuilds: Callable[[], Sequence[RebuildProgress]] = tuple) -> None:
        """rebuilds: returns those that run; may raise StoreUnavailable."""
        self._rebuilds = rebuilds
        self._found: Sequence[RebuildProgress] = ()

    def look(self) -> None:
        """Read their progress; raises StoreUnavailable."""
        self._found = self._rebuilds()

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        done = GaugeMetricFamily(
            "headwater_rebuild_done",
            "What a phase of a rebuild has done: events, or patches to catch up.",
            labels=PLACE,
        )
        total = GaugeMetricFamily("headwater_rebuild_total", "What it has to do; 0 if it counts nothing.", labels=PLACE)
        changed = GaugeMetricFamily(
            "headwater_rebuild_changed_timestamp_seconds", "When a rebuild last made progress.", labels=PLACE
        )
        for each in self._found:
            place = (each.view, each.phase)
            done.add_metric(place, each.done)
            total.add_metric(place, each.total)
            changed.add_metric(place, each.changed_s)
        yield done
        yield total
        yield changed
