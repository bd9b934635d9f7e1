"""What is measured of the live query, by Spark's reports of its progress."""

from __future__ import annotations

from headwater.eventlog.programs.metrics import REGISTRY
from headwater.projections.spark.live import EndedBatches


def values() -> list[float]:
    names = ("headwater_live_batches_total", "headwater_live_records_total", "headwater_live_batch_seconds")
    return [REGISTRY.get_sample_value(name) or 0.0 for name in names]


def test_each_batch_counts_once_however_often_its_report_is_read() -> None:
    batches, records, _ = values()
    ended = EndedBatches()
    ended.note(None)
    for number, rows in ((4, 10), (4, 10), (5, 7)):
        ended.note({"batchId": number, "numInputRows": rows, "durationMs": {"triggerExecution": 1500}})
    assert values() == [batches + 2, records + 17, 1.5]
    ended.note({"batchId": 6, "numInputRows": 0, "durationMs": {}})
    assert values() == [batches + 3, records + 17, 0.0]
