"""What is measured of captured databases."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.eventlog.capturing import source_status
from headwater.eventlog.capturing.control_topics import Snapshot
from headwater.eventlog.capturing.source_status import SourceMetrics, SourceStatus


def samples(*found: SourceStatus) -> dict[str, list[tuple[dict[str, str], float]]]:
    metrics: Any = SourceMetrics()
    metrics._found = found
    return {metric.name: [(s.labels, s.value) for s in metric.samples] for metric in metrics.collect()}


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


def test_a_source_that_cannot_be_looked_at_is_not_healthy_and_is_looked_at_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def status_of(_: object) -> SourceStatus:
        found = looks.pop(0)
        if isinstance(found, SourceStatus):
            return found
        raise found

    runs = SourceStatus("crm", "RUNNING")
    looks: list[SourceStatus | Exception] = [runs, ZeroDivisionError("no server says this"), runs]
    monkeypatch.setattr(source_status, "status_of", status_of)
    operator: Any = SimpleNamespace(source=SimpleNamespace(name="crm"))
    metrics, healthy = SourceMetrics([operator]), list[float]()

    def wait(_: float) -> bool:
        found = next(span for span in metrics.collect() if span.name == "headwater_source_healthy")
        healthy.extend(sample.value for sample in found.samples)
        return not looks

    with caplog.at_level(logging.ERROR):
        metrics.run(wait)
    assert healthy == [1, 0, 1]
    assert "ZeroDivisionError: no server says this" in caplog.text
