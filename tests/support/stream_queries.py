"""Runs the query of a stream view over records in given batches, from files in place of Kafka."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row

from headwater.eventlog.envelope import partition_of
from headwater.projections.spark.stream_queries.checkpoint import damaged_file
from headwater.projections.spark.stream_queries.frames import COUNTED
from headwater.projections.spark.stream_queries.output import numbered, row_texts
from headwater.projections.spark.stream_queries.query import NO_DATA_BATCHES, computed, output_mode, stream_session
from headwater.projections.spark.stream_queries.running_query import RunningQuery
from headwater.projections.stream.sources import StreamSource
from headwater.projections.stream.view import BATCH, StreamView
from headwater.projections.table.layout import DELETED
from headwater.projections.testing.streams import read_batches, write_batch
from tests.support.spark_rows import SETTINGS, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TAG = "gates@1.g1"
IDLE_S = 300.0
"""On a busy machine, each batch takes many seconds."""


@dataclass
class Ran:
    """What came of a run.

    rows: the last values of each key, and in `batch_of` the number of their batch. sent: keys in the order of their
    records. plan: Spark's optimised one. compiled: per batch, how many classes Spark has compiled since it started.
    state_rows: per batch, how many rows its state has then.
    """

    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    batch_of: dict[str, int] = field(default_factory=dict)
    sent: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    dropped_by_watermark: int = 0
    plan: str = ""
    compiled: list[int] = field(default_factory=list)
    state_rows: list[int] = field(default_factory=list)

    @property
    def left(self) -> dict[str, dict[str, Any]]:
        """The rows that are not deleted."""
        return {key: row for key, row in self.rows.items() if DELETED not in row}


def run(
    view: StreamView, batches: Sequence[Sequence[Row]], folder: Path, partitions: int = 1, *, until_idle: bool = False
) -> Ran:
    """Run the view's query over these batches, one after another, and then stop it.

    partitions: of its state. until_idle: as a rebuild without heartbeats runs it.
    """
    records, ran = folder / "records", Ran()
    for number, batch in enumerate(batches):
        write_batch(records, batch, number)
    own = stream_session(session())
    own.conf.set("spark.sql.shuffle.partitions", partitions)
    if until_idle:
        own.conf.set(NO_DATA_BATCHES, "true")

    def read(_: str, source: StreamSource) -> DataFrame:
        frame = read_batches(own, records)
        return frame if len(view.topics) == 1 else frame.where(frame.topic == SETTINGS.topic(source.topic))

    rows = computed(view, read)

    def take(batch: DataFrame, number: int) -> None:
        for made in numbered(batch, number, SETTINGS).collect():
            document, key = json.loads(made.value), made.key.removeprefix(f"{TAG}/")
            assert made.partition == partition_of(key, SETTINGS.patch_partitions)
            assert document["b"] == document["c"].pop(BATCH) == number
            ran.rows[key], ran.batch_of[key] = document["c"], number
            ran.sent.append(key)
        ran.compiled.append(classes_compiled())

    texts = row_texts(rows, view, TAG, SETTINGS)
    writer = texts.writeStream.outputMode(output_mode(view)).foreachBatch(take)
    writer = writer.trigger(processingTime="50 milliseconds") if until_idle else writer.trigger(availableNow=True)
    query = writer.option("checkpointLocation", (folder / "checkpoint").as_uri()).start()
    try:
        if until_idle:
            assert RunningQuery(query, replace(SETTINGS, state=folder), TAG).when_idle().wait(IDLE_S)
        else:
            query.awaitTermination()
        for progress in query.recentProgress:
            for metrics in progress["observedMetrics"].values():
                ran.counts += Counter({name: metrics[name] for name in COUNTED})
            ran.state_rows.append(sum(each["numRowsTotal"] for each in progress["stateOperators"]))
            ran.dropped_by_watermark += sum(each["numRowsDroppedByWatermark"] for each in progress["stateOperators"])
        jvm: Any = query
        ran.plan = jvm._jsq.streamingQuery().lastExecution().optimizedPlan().toString()
    finally:
        query.stop()
    assert damaged_file(folder / "checkpoint") is None, "or a view would be computed again at each start"
    return ran


def stored_state(folder: Path, *, batch: int) -> DataFrame:
    """The state of the query that ran in `folder`, of its last stateful operator: rows of `key` and `value`.

    batch: as of the end of this one.
    """
    reader = session().read.format("statestore").options(batchId=batch)
    return reader.load((folder / "checkpoint").as_uri())


def classes_compiled() -> int:
    """How many classes Spark has compiled in this JVM."""
    jvm: Any = session()
    return int(jvm._jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME().getCount())
