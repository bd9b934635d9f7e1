"""The live query: turns every event into the patches of all views that handle it, in real-time mode.

It is at-least-once, and loaders remove duplicates: after a failure it continues from Spark's checkpoint, or from safe
offsets that the caller knows, and repeats some patches.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import StreamingQueryException

from headwater.eventlog.limits import MAX_RECORD_BYTES
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.source_positions import topic_and_partition
from headwater.projections.errors import LiveQueryFailed
from headwater.projections.generations.rebuild.engine import Ranges, offsets_in
from headwater.projections.generations.registry.sources import sources
from headwater.projections.metrics import LIVE_BATCH_SECONDS, LIVE_BATCHES, LIVE_RECORDS
from headwater.projections.spark.patch_sql import patch_records, sendable
from headwater.projections.table.view import TableView

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_RANGES_SOURCE: Final[Mapping[str, str]] = {
    "kafka.isolation.level": "read_committed",
    "kafka.max.poll.records": "5000",
    # at the end of a partition, the reader has requested more before it stops, and waits for the answer
    "kafka.fetch.max.wait.ms": "10",
    "kafka.max.partition.fetch.bytes": str(8 * 1024 * 1024),
    "kafka.fetch.max.bytes": str(32 * 1024 * 1024),
    "kafka.receive.buffer.bytes": str(1024 * 1024),
    "failOnDataLoss": "true",
}
TASK_EVENTS: Final = 250_000
"""Offsets per task at most: progress is reported per task."""
log = logging.getLogger(__name__)
_LOOK_S: Final = 1
SPARE_THREADS = 2
"""Threads of a local session in addition to one per source."""
_LIVE_SOURCE: Final[Mapping[str, str]] = {
    "kafka.isolation.level": "read_committed",
    # the broker keeps the fetch of an idle reader for this time, and answers it at once if something comes; a batch
    # cannot end sooner
    "kafka.fetch.max.wait.ms": "500",
    "kafka.max.poll.records": "5000",
    # offsets are missing after compaction and at the end of transactions, and Spark skips these; it fails only if
    # the log starts later than it should, because continuing would lose events silently
    "failOnDataLoss": "true",
}
EARLIEST: Final = -2
"""What Spark calls the first offset."""
NEVER: Final = 2**31 - 1
SINK: Final[Mapping[str, str]] = {
    "kafka.acks": "all",
    "kafka.enable.idempotence": "true",
    "kafka.linger.ms": "2",
    "kafka.batch.size": str(128 * 1024),
    "kafka.max.request.size": str(MAX_RECORD_BYTES),
    # no limit: the producer would send the records after an expired batch, and loaders would skip the gap; so a
    # partition without a leader delays the query, and is written in order afterwards
    "kafka.delivery.timeout.ms": str(NEVER),
    "kafka.retries": str(NEVER),
    # idempotence keeps the order of up to five
    "kafka.max.in.flight.requests.per.connection": "5",
}


def connection(settings: LogSettings) -> dict[str, str]:
    """Options of Spark's Kafka source and sink: the address, and the security settings."""
    config = {"bootstrap.servers": settings.bootstrap, **settings.security.for_java()}
    return {f"kafka.{name}": value for name, value in config.items()}


def by_topic(settings: LogSettings, offsets: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """An offset per source, in the form of Spark's Kafka source: by topic and partition."""
    positions: dict[str, dict[str, int]] = {}
    for source, offset in offsets.items():
        topic, partition = topic_and_partition(source)
        positions.setdefault(settings.topic(topic), {})[str(partition)] = offset
    return positions


def read_ranges(session: SparkSession, settings: LogSettings, ranges: Ranges) -> DataFrame:
    """The committed records in these offsets, in the form of Spark's Kafka source."""
    assigned = {source: part for source, part in ranges.items() if part[1] > part[0]}
    starts = by_topic(settings, {source: start for source, (start, _) in assigned.items()})
    ends = by_topic(settings, {source: end for source, (_, end) in assigned.items()})
    partitions = {topic: [int(part) for part in parts] for topic, parts in starts.items()}
    reader = session.read.format("kafka").options(**connection(settings)).option("assign", json.dumps(partitions))
    reader = reader.option("startingOffsets", json.dumps(starts)).option("endingOffsets", json.dumps(ends))
    return (
        reader.options(**_RANGES_SOURCE)
        .option("minPartitions", max(session.sparkContext.defaultParallelism, offsets_in(ranges) // TASK_EVENTS))
        .load()
    )


def checkpoint_directory(settings: LogSettings, views: Sequence[TableView], cluster_id: str) -> Path:
    """The folder for the offsets of a live query of these views; other views or another layout have another folder."""
    parts = sorted(f"{view.tag} {view.fingerprint}" for view in views)
    parts += [str(settings.partitions), str(settings.patch_partitions)]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return settings.state.absolute() / "checkpoints" / cluster_id / settings.environment / "live" / digest


def run_live(
    session: SparkSession,
    views: Sequence[TableView],
    settings: LogSettings,
    *,
    checkpoint: Path,
    starting_offsets: Mapping[str, int] | None = None,
    on_running: Callable[[], None] = lambda: None,
    batch: str = "10 minutes",
    traced: bool = False,
) -> None:
    """Turn events into patches until the query is stopped; raises LiveQueryFailed if it fails.

    checkpoint: see `checkpoint_directory`. starting_offsets: by source, where to begin if there is no checkpoint
    (None: the earliest). on_running: called once, when the first batch reads events. batch: how often the
    query stores its offsets; it pauses shortly then, and repeats at most this much after a failure.
    traced: see `patch_records`.
    """
    query = start_live(
        session, views, settings, checkpoint=checkpoint, starting_offsets=starting_offsets, batch=batch, traced=traced
    )
    log.info(
        "live query over %d views starts at %s", len(views), checkpoint if checkpoint.exists() else starting_offsets
    )
    running, ended, tracker = False, -1, session.sparkContext.statusTracker()
    started, readers = time.monotonic(), len(sources(views, settings))
    try:
        while not _ended(query, _LOOK_S if running else _LOOK_S / 10):
            stages = [] if running else [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            if any(stage is not None and stage.numActiveTasks >= readers for stage in stages):
                running = True  # a reader is running for every source
                log.info("live query is running after %.1f s", time.monotonic() - started)
                on_running()
            ended = note_batch(query.lastProgress, ended)
    except StreamingQueryException as error:
        raise LiveQueryFailed(str(error)) from error


def note_batch(progress: Mapping[str, Any] | None, ended: int) -> int:
    """Log and measure the batch of Spark's last report, unless it is `ended`, the last one so far; returns its number.

    progress: None if there is none yet.
    """
    if progress is None or progress["batchId"] == ended:
        return ended
    took_s = progress["durationMs"].get("triggerExecution", 0) / 1000
    log.info("batch %d: %d events in %.1f s", progress["batchId"], progress["numInputRows"], took_s)
    LIVE_BATCHES.inc()
    LIVE_RECORDS.inc(progress["numInputRows"])
    LIVE_BATCH_SECONDS.set(took_s)
    return int(progress["batchId"])


def _ended(query: StreamingQuery, timeout_s: float) -> bool:
    """Wait for the query's end, which raises if it failed; Spark's own annotation allows whole seconds only."""
    return bool(query.awaitTermination(timeout_s))  # type: ignore[arg-type]


def start_live(
    session: SparkSession,
    views: Sequence[TableView],
    settings: LogSettings,
    *,
    checkpoint: Path,
    starting_offsets: Mapping[str, int] | None = None,
    batch: str = "10 minutes",
    traced: bool = False,
) -> StreamingQuery:
    """Start the query and return it; see `run_live`."""
    begins = {source: (starting_offsets or {}).get(source, EARLIEST) for source in sources(views, settings)}
    records = sendable(patch_records(read_live(session, settings, begins), views, settings, traced=traced))
    return start_realtime(records, "live", settings, checkpoint.as_uri(), batch)


def read_live(session: SparkSession, settings: LogSettings, starting_offsets: Mapping[str, int]) -> DataFrame:
    """Kafka's records of these sources, from an offset of each on."""
    offsets = by_topic(settings, starting_offsets)
    reader = session.readStream.format("kafka").options(**connection(settings))
    reader = reader.option("subscribe", ",".join(offsets)).option("startingOffsets", json.dumps(offsets))
    return reader.options(**_LIVE_SOURCE).load()


def start_realtime(made: DataFrame, name: str, settings: LogSettings, checkpoint: str, batch: str) -> StreamingQuery:
    """Start to write these output records to Kafka in real-time mode. checkpoint: its URI. batch: see `run_live`."""
    writer = made.writeStream.format("kafka").outputMode("update").queryName(name)
    writer = writer.trigger(realTime=batch)  # type: ignore[call-overload]
    writer = writer.option("checkpointLocation", checkpoint).options(**connection(settings))
    query: StreamingQuery = writer.options(**SINK).start()
    return query
