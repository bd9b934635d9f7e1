"""What is measured of the live query, by Spark's reports of its progress."""

from __future__ import annotations

from headwater.eventlog.programs.metrics import REGISTRY
from headwater.projections.spark.live import note_batch


def values() -> list[float]:
    names = ("headwater_live_batches_total", "headwater_live_records_total", "headwater_live_batch_seconds")
    return [REGISTRY.get_sample_value(name) or 0.0 for name in names]


def test_each_batch_counts_once_however_often_its_report_is_read() -> None:
    batches, records, _ = values()
    ended = note_batch(None, -1)
    for number, rows in ((4, 10), (4, 10), (5, 7)):
        report = {"batchId": number, "numInputRows": rows, "durationMs": {"triggerExecution": 1500}}
        ended = note_batch(report, ended)
    assert values() == [batches + 2, records + 17, 1.5]
    note_batch({"batchId": 6, "numInputRows": 0, "durationMs": {}}, ended)
    assert values() == [batches + 3, records + 17, 0.0]
