"""Makes the archive of Spark's classes: a session folds and streams briefly while its JVM records loaded classes."""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from headwater.eventlog.envelope import Envelope, encode
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import EVENTS
from headwater.projections.registry import ViewRegistry
from headwater.projections.spark.patch_sql import patch_records
from headwater.projections.spark.session import SparkSettings, end, start_session
from headwater.projections.spark.setup import local
from headwater.projections.spark.setup.java import locate_java
from headwater.projections.table.expressions import literal
from headwater.projections.table.view import TableView

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

DUMP_S: Final = 900.0
"""All of it takes half a minute, and took four and a half where others kept both cores busy."""
EXERCISED: Final = ("listings",)
"""The sample whose views are folded while classes are recorded."""


def make_archive() -> Path | None:
    """Make the archive if it is missing, in about half a minute; returns it.

    None, with a warning, if this installation is not writable, or if its Java cannot make one.
    """
    stem = local.spark_stem()
    if archive := local.find_archive(local.CLASSES, stem, "jsa"):
        return archive
    log.info("making an archive of Spark's classes, which halves Spark's start time")
    try:
        local.clear_archives(local.CLASSES)
    except OSError as error:
        log.warning("cannot make an archive of Spark's classes, so Spark starts slower: %s", error)
        return None
    part_file = local.CLASSES / f"{os.getpid()}.part"
    recording = (f"-XX:ArchiveClassesAtExit={part_file}", local.SILENT)
    session = start_session(SparkSettings(java=recording), name="prepare", threads=4)
    try:
        _exercise(session)
    finally:
        end(session, DUMP_S)
    if not part_file.exists():
        log.warning(
            "cannot make an archive of Spark's classes, so Spark starts slower: '%s' does not support it", locate_java()
        )
        return None
    return local.keep_archive(part_file, stem, "jsa")


def _exercise(session: SparkSession) -> None:
    """Fold and stream a little, without a server, so that the needed classes are loaded."""
    views = ViewRegistry.load(EXERCISED).of_kind(TableView)
    session.sparkContext.parallelize(range(4), 4).map(str).collect()
    patch_records(_records(session.range(1000)), views, LogSettings()).rdd.count()
    with TemporaryDirectory(prefix="headwater-") as folder:
        Path(folder, "rows.json").write_text('{"id": 1}\n')
        rows = session.readStream.schema("id bigint").json(folder)
        records = patch_records(_records(rows), views, LogSettings())
        checkpoint = Path(folder, "checkpoint").as_uri()
        query = records.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True)
        query.start().awaitTermination()
    # opening Kafka's clients needs no server: without it, each start would load 1,500 classes of theirs from jars
    jvm: Any = session._jvm
    options, partitions = jvm.java.util.HashMap(), jvm.java.util.ArrayList()
    options.put("bootstrap.servers", "127.0.0.1:1")
    for part in ("key", "value"):
        for way in ("Serializer", "Deserializer"):
            options.put(f"{part}.{way.lower()}", f"org.apache.kafka.common.serialization.ByteArray{way}")
    partitions.add(jvm.org.apache.kafka.common.TopicPartition(EVENTS, 0))
    consumer = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(options)
    consumer.assign(partitions)
    consumer.poll(jvm.java.time.Duration.ofMillis(100))
    for client in (
        consumer,
        jvm.org.apache.kafka.clients.producer.KafkaProducer(options),
        jvm.org.apache.kafka.clients.admin.AdminClient.create(options),
    ):
        client.close()


def _records(numbers: DataFrame) -> DataFrame:
    """Records in the form of Kafka's source; no view can read them, but trying to is enough."""
    event = Envelope("thing/1/1", "thing.done", "thing/1", datetime.now(UTC), {"done": True}, sequence=1)
    return numbers.selectExpr(
        f"{literal(LogSettings().topic(EVENTS))} as topic",
        f"cast({literal(event.id)} as binary) as key",
        f"cast({literal(encode(event).decode())} as binary) as value",
        "0 as partition",
        "id as offset",
        "current_timestamp() as timestamp",
    )
