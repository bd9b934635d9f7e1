"""The log as a batch: a range of offsets, read by at least as many tasks as there are cores."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from headwater.eventlog.settings import LogSettings
from headwater.eventlog.source_positions import topic_and_partition
from headwater.projections.generations.rebuild.engine import Ranges, offsets_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SOURCE: Final[Mapping[str, str]] = {
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


def connection(settings: LogSettings) -> dict[str, str]:
    """Options of Spark's Kafka source and sink: the address, and the security settings."""
    config = {"bootstrap.servers": settings.bootstrap, **settings.security.for_java()}
    return {f"kafka.{name}": value for name, value in config.items()}


def by_topic(settings: LogSettings, offsets: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """An offset per source, in the form of Spark's Kafka source: by topic and partition."""
    found: dict[str, dict[str, int]] = {}
    for source, offset in offsets.items():
        topic, partition = topic_and_partition(source)
        found.setdefault(settings.topic(topic), {})[str(partition)] = offset
    return found


def read_ranges(session: SparkSession, settings: LogSettings, ranges: Ranges) -> DataFrame:
    """The committed records in these offsets, in the form of Spark's Kafka source."""
    assigned = {source: part for source, part in ranges.items() if part[1] > part[0]}
    starts = by_topic(settings, {source: start for source, (start, _) in assigned.items()})
    ends = by_topic(settings, {source: end for source, (_, end) in assigned.items()})
    partitions = {topic: [int(each) for each in parts] for topic, parts in starts.items()}
    reader = session.read.format("kafka").options(**connection(settings)).option("assign", json.dumps(partitions))
    reader = reader.option("startingOffsets", json.dumps(starts)).option("endingOffsets", json.dumps(ends))
    return (
        reader.options(**_SOURCE)
        .option("minPartitions", max(session.sparkContext.defaultParallelism, offsets_in(ranges) // TASK_EVENTS))
        .load()
    )
