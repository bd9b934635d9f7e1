"""What is measured of captured databases, by the process that watches them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headwater.eventlog.capturing.operating import Operator
from headwater.eventlog.capturing.source_status import SourceStatus, status_of

log = logging.getLogger(__name__)

LOOK_S: Final = 10.0
"""Seconds between two looks at a source, which ask its database, Connect and the log."""
MEASURED: Final[Mapping[str, tuple[str, Callable[[SourceStatus], float | None]]]] = {
    "healthy": ("1 if changes are captured and nothing needs attention, else 0.", lambda each: float(each.is_healthy)),
    "lag_bytes": ("Log of a database that is not captured yet.", lambda each: each.lag_bytes),
    "lag_seconds": ("Since when all of a database was captured.", lambda each: each.lag_s),
    "retained_bytes": ("Log that a database keeps for its source.", lambda each: each.retained_bytes),
    "limit_bytes": ("Log that a database keeps at most.", lambda each: each.limit_bytes),
    "snapshot_running": (
        "1 while rows of a snapshot are still to be read, else 0.",
        lambda each: float(each.snapshot is not None and each.snapshot.is_running),
    ),
    "problems": ("Problems that `headwater sources status` shows.", lambda each: len(each.problems)),
}


class SourceMetrics(Collector):
    """Looks at sources again and again; a server that does not answer is one of their problems."""

    def __init__(self, operators: Iterable[Operator] = ()) -> None:
        self._operators = list(operators)
        self._found: Sequence[SourceStatus] = ()

    def run(self, wait: Callable[[float], bool]) -> None:
        """Look until `wait` returns true; it is given seconds to wait."""
        while True:
            self.look()
            if wait(LOOK_S):
                return

    def look(self) -> None:
        """Look once."""
        self._found = [_found(each) for each in self._operators]

    def collect(self) -> Iterator[Metric]:
        for name, (what, measured) in MEASURED.items():
            made = GaugeMetricFamily(f"headwater_source_{name}", what, labels=["source"])
            for each in self._found:
                if (value := measured(each)) is not None:
                    made.add_metric([each.source], value)
            yield made
        rows = GaugeMetricFamily(
            "headwater_source_snapshot_rows",
            "Rows that the last snapshot has read of a table, as far as the connector has reported.",
            labels=["source", "table"],
        )
        for each in self._found:
            if each.snapshot is not None and each.snapshot.rows is not None:
                rows.add_metric([each.source, each.snapshot.table], each.snapshot.rows)
        yield rows


def _found(operator: Operator) -> SourceStatus:
    """The status of a source; one that cannot be looked at is not healthy."""
    try:
        return status_of(operator)
    except Exception:  # without this thread, the last look would be shown for ever
        log.exception('cannot measure source "%s"', operator.source.name)
        return SourceStatus(operator.source.name, problems=["it cannot be measured: see the log"])
