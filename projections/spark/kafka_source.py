"""The log as a batch: a range of offsets, read by at least as many tasks as there are cores."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from eventlog.settings import LogSettings
from eventlog.topics import EVENTS
from projections.generations.engine import Ranges, offsets_in

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


def read_ranges(session: SparkSession, settings: LogSettings, ranges: Ranges) -> DataFrame:
    """The committed records of `events` in these offsets, in the form of Spark's Kafka source."""
    topic = settings.topic(EVENTS)
    assigned = [each for each, (start, end) in ranges.items() if end > start]
    reader = session.read.format("kafka").options(**connection(settings))
    reader = reader.option("assign", json.dumps({topic: assigned}))
    reader = reader.option("startingOffsets", json.dumps({topic: {str(each): ranges[each][0] for each in assigned}}))
    reader = reader.option("endingOffsets", json.dumps({topic: {str(each): ranges[each][1] for each in assigned}}))
    return (
        reader.options(**_SOURCE)
        .option("minPartitions", max(session.sparkContext.defaultParallelism, offsets_in(ranges) // TASK_EVENTS))
        .load()
    )
