"""The DataFrame of a source: Kafka's records as rows with the columns of the declared classes, behind a watermark."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from headwater.projections.spark.stream_queries.lateness import event_time, lateness_ms, milliseconds, watermark_delay
from headwater.projections.spark.stream_queries.records import Records, records_of
from headwater.projections.stream.declaring.sources import StreamSource
from headwater.projections.table.expressions import identifier, literal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TAKEN, AMENDING, DROPPED, UNREADABLE, FOREIGN = "taken", "amending", "dropped", "unreadable", "foreign"
"""What becomes of a record: taken in; taken in although late; dropped because late; dropped because it cannot be read;
and those that are not of the declared classes, such as heartbeats."""
COUNTED: Final = (TAKEN, AMENDING, DROPPED, UNREADABLE)

_VERDICT: Final = "_headwater_verdict"
"""A column with what becomes of a record; a field of a class may be called "verdict"."""
PARTITION, OFFSET, TIMESTAMP_MS, HEARTBEAT = (
    "_headwater_partition", "_headwater_offset", "_headwater_timestamp_ms", "_headwater_heartbeat",
)  # fmt: skip
PLACED: Final = (PARTITION, OFFSET, TIMESTAMP_MS, HEARTBEAT)
"""Columns with the place of a record in its topic, its time in Kafka, and whether it is a heartbeat."""
_BARRIER: Final = "spark_partition_id() >= 0"
"""Always true. Spark moves no filter across one that is not deterministic, so all records, heartbeats among them, reach
the watermark first, and move it when nothing else comes. A test reads the optimised plan. Unlike `rand()`, it is the
same in every batch: Spark would give each batch another seed, and compile the query anew."""


def source_frame(records: DataFrame, name: str, source: StreamSource, admitted: timedelta) -> DataFrame:
    """The rows of a source, from Kafka's records of its topic.

    admitted: how late a record may be. The numbers of records, by what became of them (COUNTED), are the metrics `name`
    of each batch.
    """
    read = judged(records, source, admitted)
    watermarked = read.withWatermark("time", watermark_delay(admitted)).where(_BARRIER)
    kept = _counted(watermarked, name).where(f"{_VERDICT} in ({literal(TAKEN)}, {literal(AMENDING)})")
    return kept.select(*source.columns)


def placed_frame(records: DataFrame, name: str, source: StreamSource) -> DataFrame:
    """The rows of a source as `source_frame` has them, and its heartbeats, both with the columns PLACED; no watermark.

    A record is in time if its source says so, as in other frames: that depends on the record alone.
    """
    read = judged(records, source, source.late_by, PLACED)
    return _counted(read, name).where(f"{_VERDICT} = {literal(TAKEN)} or {HEARTBEAT}")


def _counted(read: DataFrame, name: str) -> DataFrame:
    counts = [f"count_if({_VERDICT} = {literal(verdict)}) as {verdict}" for verdict in COUNTED]
    return read.observe(name, *_columns(counts))


def judged(
    records: DataFrame, source: StreamSource, admitted: timedelta, placed: Collection[str] = frozenset()
) -> DataFrame:
    """Every record with the columns of the source, and what becomes of it as `_VERDICT`; and these of PLACED."""
    # a query in real-time mode runs no Python
    read = records_of(records, source, upcasts=not (placed and records.isStreaming))
    columns = {
        **read.columns,
        **(_of_late(read) if source.is_of_late else {}),
        "time": event_time(read.time, read.recorded, read.is_heartbeat, datetime.now(UTC)),
        "recordedtime": read.recorded,
        "type": read.type,
        _VERDICT: _verdict(read, source, admitted),
        **{name: text for name, text in _placed(read).items() if name in placed},
    }
    return read.frame.selectExpr(*(f"{text} as {identifier(name)}" for name, text in columns.items()))


def _placed(read: Records) -> dict[str, str]:
    return {
        PARTITION: "cast(`partition` as int)",
        OFFSET: "`offset`",
        TIMESTAMP_MS: f"unix_millis({read.time})",
        HEARTBEAT: f"coalesce({read.is_heartbeat}, false)",
    }


def _of_late(read: Records) -> dict[str, str]:
    """What only sources of late records have."""
    return {
        "source": read.reporter,
        "late_s": f"{lateness_ms(read.time, read.recorded)} / 1000.0D",
        "data": f"get_json_object({read.document}, '$.data')",
    }


def _verdict(read: Records, source: StreamSource, admitted: timedelta) -> str:
    late = lateness_ms(read.time, read.recorded)
    known = ", ".join(literal(each) for each in source.types)
    unreadable = " or ".join(
        f"({read.type} = {literal(name)} and ({condition}))" for name, condition in read.unreadable.items()
    )
    early_enough, too_late = (FOREIGN, AMENDING) if source.is_of_late else (TAKEN, DROPPED)
    return (
        f"case when {read.is_heartbeat} or {read.is_empty} then '{FOREIGN}' "
        f"when {read.is_refused} then '{UNREADABLE}' "
        f"when coalesce({read.type}, '') not in ({known}) then '{FOREIGN}' "
        f"when {unreadable} then '{UNREADABLE}' "
        f"when {late} > {milliseconds(admitted)} then '{too_late}' "
        f"when {late} > {milliseconds(source.late_by)} then '{AMENDING}' else '{early_enough}' end"
    )


def _columns(texts: list[str]) -> list[Column]:
    from pyspark.sql.functions import expr  # noqa: PLC0415

    return [expr(text) for text in texts]
