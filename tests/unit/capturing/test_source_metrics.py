"""What is measured of captured databases."""

from __future__ import annotations

from typing import Any

from eventlog.capturing.control_topics import Snapshot
from eventlog.capturing.source_metrics import SourceMetrics
from eventlog.capturing.source_status import SourceStatus


def samples(*found: SourceStatus) -> dict[str, list[tuple[dict[str, str], float]]]:
    metrics: Any = SourceMetrics()
    metrics._found = found
    return {each.name: [(s.labels, s.value) for s in each.samples] for each in metrics.collect()}


def test_a_snapshot_is_measured_with_the_table_that_it_reads() -> None:
    found = samples(
        SourceStatus("crm", snapshot=Snapshot("initial", "IN_PROGRESS", "public.customers", 1_204)),
        SourceStatus("erp", snapshot=Snapshot("incremental", "COMPLETED", "public.orders")),
        SourceStatus("new"),
    )
    assert found["headwater_source_snapshot_running"] == [
        ({"source": each}, n) for each, n in (("crm", 1), ("erp", 0), ("new", 0))
    ]
    assert found["headwater_source_snapshot_rows"] == [({"source": "crm", "table": "public.customers"}, 1_204)]
