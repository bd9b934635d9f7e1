"""The DataFrame of a source: Kafka's records as rows with the columns of the declared classes, behind a watermark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from commands.declaring.observation import Observation
from eventlog.envelope import SPEC_VERSION
from eventlog.heartbeats import PREFIX
from projections.spark.streams.lateness import event_time, lateness_ms, milliseconds, watermark_delay
from projections.stream.late import LateObserved
from projections.stream.sources import Observed
from projections.table.expressions import identifier, literal
from projections.table.types import SPARK_TYPES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TAKEN, AMENDING, DROPPED, UNREADABLE, FOREIGN = "taken", "amending", "dropped", "unreadable", "foreign"
"""What becomes of a record: taken in; taken in although late; dropped because late; dropped because it cannot be read;
and those that are no observation of the declared classes, such as heartbeats."""
COUNTED: Final = (TAKEN, AMENDING, DROPPED, UNREADABLE)

_HEARTBEAT: Final = f"startswith(key, {literal(PREFIX)})"
_OF_LATE: Final = {
    "late_s": f"{lateness_ms('observed', 'recorded')} / 1000.0D",
    "data": "get_json_object(record, '$.data')",
}
"""What only sources of late observations have."""
_BARRIER: Final = "spark_partition_id() >= 0"
"""Always true. Spark moves no filter across one that is not deterministic, so all records, heartbeats among them, reach
the watermark first, and move it when nothing else comes. A test reads the optimised plan. Unlike `rand()`, it is the
same in every batch: Spark would give each batch another seed, and compile the query anew."""


def source_frame(records: DataFrame, name: str, source: Observed, admitted: timedelta) -> DataFrame:
    """The rows of a source, from Kafka's records of its topic.

    admitted: how late a record may be. The numbers of records, by what became of them (COUNTED), are the metrics `name`
    of each batch.
    """
    read = judged(records, source, admitted)
    watermarked = read.withWatermark("time", watermark_delay(admitted)).where(_BARRIER)
    counts = [f"count_if(verdict = {literal(verdict)}) as {verdict}" for verdict in COUNTED]
    counted = watermarked.observe(name, *_columns(counts))
    kept = counted.where(f"verdict in ({literal(TAKEN)}, {literal(AMENDING)})")
    return kept.select(*source.columns)


def judged(records: DataFrame, source: Observed, admitted: timedelta) -> DataFrame:
    """Every record with the columns of the source, and what becomes of it as `verdict`."""
    raw = records.selectExpr("cast(key as string) as key", "cast(value as string) as record", "timestamp as observed")
    parsed = raw.selectExpr("key", "record", "observed", f"from_json(record, {literal(_ddl(source))}) as document")
    timed = parsed.selectExpr("*", "try_cast(document.recordedtime as timestamp) as recorded")
    columns = {
        **{name: f"document.data.{identifier(name)}" for name in source.fields},
        "id": "document.id",
        "source": "substring(document.subject, length(document.type) + 2)",
        "time": event_time("observed", "recorded", _HEARTBEAT, datetime.now(UTC)),
        "recordedtime": "recorded",
        "type": "document.type",
        "verdict": _verdict(source, admitted),
        **(_OF_LATE if isinstance(source, LateObserved) else {}),
    }
    return timed.selectExpr(*(f"{text} as {identifier(name)}" for name, text in columns.items()))


def _ddl(source: Observed) -> str:
    data = ", ".join(f"{identifier(name)}: {SPARK_TYPES[kind]}" for name, kind in source.fields.items())
    envelope = ("specversion", "id", "type", "subject", "recordedtime")
    members = [f"{name} string" for name in envelope]
    return ", ".join([*members, "dataversion bigint", *([f"data struct<{data}>"] if data else [])])


def _verdict(source: Observed, admitted: timedelta) -> str:
    late = lateness_ms("observed", "recorded")
    known = ", ".join(literal(each) for each in source.types)
    unreadable = " or ".join(_unreadable(kind, source) for kind in source.classes)
    early_enough, too_late = (FOREIGN, AMENDING) if isinstance(source, LateObserved) else (TAKEN, DROPPED)
    return (
        f"case when {_HEARTBEAT} or record is null then '{FOREIGN}' "
        f"when coalesce(document.specversion, '') <> '{SPEC_VERSION}' then '{UNREADABLE}' "
        f"when coalesce(document.type, '') not in ({known}) then '{FOREIGN}' "
        f"when {unreadable} then '{UNREADABLE}' "
        f"when {late} > {milliseconds(admitted)} then '{too_late}' "
        f"when {late} > {milliseconds(source.late_by)} then '{AMENDING}' else '{early_enough}' end"
    )


def _unreadable(kind: type[Observation], source: Observed) -> str:
    """The condition that a record of this class cannot be read."""
    lacking = [f"document.data.{identifier(name)} is null" for name in source.required(kind)]
    version = f"coalesce(document.dataversion, 0) not between 1 and {kind.version}"
    return f"(document.type = {literal(kind.type)} and ({' or '.join([version, *lacking])}))"


def _columns(texts: list[str]) -> list[Column]:
    from pyspark.sql.functions import expr  # noqa: PLC0415

    return [expr(text) for text in texts]
