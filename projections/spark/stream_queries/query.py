"""The query of one generation of a stream view: from its sources to the records of `patches`, in micro-batches."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer
from pyspark.errors import PySparkException

from headwater.eventlog.errors import EventLogError
from headwater.eventlog.kafka.client import client_config, translated
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.times import now_ms
from headwater.eventlog.topics import PATCHES
from headwater.projections.errors import StreamQueryFailed, ViewDeclarationError
from headwater.projections.loading.decoding import PROGRESS
from headwater.projections.spark.live import SINK, connection
from headwater.projections.spark.session import SparkSettings
from headwater.projections.spark.stream_queries.checkpoint import STATE_PROVIDER, Checkpoint
from headwater.projections.spark.stream_queries.failures import reason
from headwater.projections.spark.stream_queries.frames import source_frame
from headwater.projections.spark.stream_queries.output import numbered, returned, row_texts
from headwater.projections.spark.stream_queries.query_checks import check_repeatable, check_sealed
from headwater.projections.stream.sources import StreamSource
from headwater.projections.stream.view import StreamView

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PRODUCER: Final = {"enable.idempotence": True, "linger.ms": 1, "message.timeout.ms": 60_000}
_SOURCE: Final[Mapping[str, str]] = {
    "startingOffsets": "earliest",
    "kafka.isolation.level": "read_committed",
    "kafka.max.poll.records": "5000",
    # at the end of a batch, the reader has requested more before it stops, and waits for the answer
    "kafka.fetch.max.wait.ms": "10",
    # Spark would go on with what is left, and rows would silently lack the rest
    "failOnDataLoss": "true",
}
NO_DATA_BATCHES: Final = "spark.sql.streaming.noDataMicroBatches.enabled"
_SESSION: Final[Mapping[str, str]] = {
    "spark.sql.streaming.stateStore.providerClass": STATE_PROVIDER,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # no rowChecksum: of a changelog that lacks its end, with its .crc, all rows that are left are whole
    # heartbeats come, so a batch without records is never needed to close windows
    NO_DATA_BATCHES: "false",
}
TRIGGER_S: Final = 0.5
"""Seconds between the starts of two batches, at least."""
READERS_PER_CORE: Final = 2
"""Tasks that read a source in a batch, if it has so many partitions. A task per partition is a task for a few records:
with 64 partitions it took 1.9 s of processor time per batch, and with 4 tasks 0.9 s. More than one, because partitions
may differ in size."""
Read = Callable[[str, StreamSource], "DataFrame"]
"""Kafka's records of a source, by its name in the view."""


class ProgressSender:
    """Sends the progress of all queries of a process, whose batches end in threads of their own."""

    def __init__(self, settings: LogSettings) -> None:
        self._settings = settings
        self._producer: Producer | None = None
        self._replacing = threading.Lock()
        self._sent: dict[str, Mapping[str, int]] = {}

    def send(self, tag: str, ends: Mapping[str, int]) -> None:
        """Say to every partition of `patches` that all rows of records before `ends` are in it already.

        tag: of the generation. ends: an offset by source; those that were sent already are not sent again. Raises
        EventLogError.
        """
        sent = self._sent.get(tag, {})
        due = {source: end for source, end in ends.items() if end and sent.get(source) != end}
        if not due:
            return
        with self._replacing:
            if self._producer is None:
                self._producer = Producer(client_config(self._settings, **PRODUCER))
            producer = self._producer
        try:
            with translated("sending progress", 0):
                self._send(producer, tag, due)
        except EventLogError:
            with self._replacing:
                if self._producer is producer:  # after some errors it refuses everything
                    self._producer = None
            raise
        self._sent[tag] = {**sent, **due}

    def _send(self, producer: Producer, tag: str, ends: Mapping[str, int]) -> None:
        failed: list[KafkaError] = []

        def report(error: KafkaError | None, _: object) -> None:
            if error is not None:
                failed.append(error)

        topic, sent_ms = self._settings.topic(PATCHES), now_ms()
        for source, end in ends.items():
            value = json.dumps({"p": source, "o": end - 1, "t": sent_ms, "v": [tag]})
            for partition in range(self._settings.patch_partitions):
                producer.produce(topic, value, PROGRESS + source.encode(), partition, report)
        producer.flush()
        if failed:
            raise KafkaException(failed[0])

    def close(self) -> None:
        """Send nothing more: after its next batch, a query sends again what was not sent."""
        if self._producer is not None:
            self._producer.purge()
            self._producer.close()


@dataclass(frozen=True)
class StreamQuery:
    """What runs for one generation. session: see `stream_session`. tag: of its patches."""

    session: SparkSession
    progress: ProgressSender
    view: StreamView
    tag: str
    settings: LogSettings
    checkpoint: Checkpoint

    def start(self, trigger_s: float) -> StreamingQuery:
        """Start the query at its checkpoint; a batch begins every `trigger_s` seconds if there are records.

        A batch reads all that there is: with a limit, one partition could run ahead of another, and the watermark with
        it. Raises ViewDeclarationError, and StreamQueryFailed if Spark refuses to start it.
        """
        rows = computed(self.view, lambda _, source: kafka_records(self.session, self.settings, source))

        def write(batch: DataFrame, number: int) -> None:
            records = numbered(batch, number, self.settings)
            records.write.format("kafka").mode("append").options(**connection(self.settings), **SINK).save()
            self.progress.send(self.tag, self.checkpoint.ends(number, self.settings))

        texts = row_texts(rows, self.view, self.tag, self.settings)
        writer = texts.writeStream.outputMode(output_mode(self.view)).queryName(self.tag)
        writer = writer.trigger(processingTime=f"{trigger_s * 1000:.0f} milliseconds")
        writer = writer.option("checkpointLocation", self.checkpoint.location)
        try:
            return writer.foreachBatch(write).start()
        except PySparkException as error:
            raise StreamQueryFailed(self.tag, reason(error)) from error


def stream_session(session: SparkSession, *, without_heartbeats: bool = False) -> SparkSession:
    """A session of the same application with the settings of stream queries; Spark keeps a part of it for ever.

    without_heartbeats: if no records come, rows that are final after a batch are sent in one without records.
    """
    own = session.newSession()
    for name, value in _SESSION.items():
        own.conf.set(name, value)
    if without_heartbeats:
        own.conf.set(NO_DATA_BATCHES, "true")
    return own


def computed(view: StreamView, read: Read) -> DataFrame:
    """The rows that the query of `view` returns; raises ViewDeclarationError with what to change.

    Nothing is read.
    """
    frames = {
        name: source_frame(read(name, source), name, source, view.admitted(source))
        for name, source in view.sources.items()
    }
    rows = returned(view, frames)
    check_repeatable(view, rows)
    check_sealed(view, rows)
    # Spark would find out when the query starts that it cannot run this as a stream
    frame: Any = rows
    jvm = frame.sparkSession._jvm
    streaming = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    mode = jvm.org.apache.spark.sql.streaming.OutputMode
    try:
        streaming.checkForStreaming(
            frame._jdf.queryExecution().analyzed(), mode.Append() if view.final else mode.Update()
        )
    except PySparkException as error:
        hint = "" if view.final else "; session windows and joins of streams need final=True"
        raise ViewDeclarationError(
            view.name, f"Spark cannot run its query as a stream: {reason(error)}{hint}"
        ) from error
    return rows


def output_mode(view: StreamView) -> str:
    """Spark's output mode: each change of a row, or a row once when it is final."""
    return "append" if view.final else "update"


def kafka_records(session: SparkSession, settings: LogSettings, source: StreamSource) -> DataFrame:
    """The records of a source, as a stream; few tasks read them, however many partitions the topic has."""
    reader = session.readStream.format("kafka").options(**connection(settings), **_SOURCE)
    partitions = json.dumps({settings.topic(source.topic): list(range(settings.partitions))})
    records = reader.option("assign", partitions).load()
    if not SparkSettings(session.sparkContext.master or "").is_local:
        return records  # executors may come later, so nobody knows how many tasks can run at once
    return records.coalesce(READERS_PER_CORE * (os.cpu_count() or 2))
