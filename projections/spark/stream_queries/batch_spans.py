"""The spans of the batches of stream views; Spark does not hand on the trace contexts of the records that they read."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from headwater.eventlog.envelope import timestamp_ms
from headwater.eventlog.tracing import spans
from headwater.eventlog.tracing.spans import MS, origin_of_batch


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
