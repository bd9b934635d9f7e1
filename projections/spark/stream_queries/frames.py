"""The DataFrame of a source: Kafka's records as rows with the columns of the declared classes, behind a watermark.

An observation or event is late if `recordedtime - time` is more than the source's `late_after`, live and in any replay.
Spark drops rows by its watermark, which depends on how records fall into batches. So the watermark waits so long that
it never passes an admitted record:

- A batch reads everything that can be read when it begins. So a record of a later batch could be read after every
  record of earlier batches, and was recorded at most READABLE_WITHIN before it could be read.
- No record's time is more than MAX_AHEAD after its recording: the API refuses such times, and `event_time` limits
  those of other records.

An event can be read when its transaction ends, which begins right after the decisions and is aborted by Kafka after
10 s, or by the next owner; then its command is decided again. Of several sources, the slowest watermark counts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from headwater.commands.declaring.observation import MAX_AHEAD
from headwater.eventlog.envelope import SPEC_VERSION
from headwater.eventlog.heartbeats import PREFIX
from headwater.eventlog.topics import EVENTS
from headwater.projections.spark.events import LogSchema, parse_topic, unreadable
from headwater.projections.stream.sources import Events, Observed, StreamSource
from headwater.projections.table.expressions import identifier, literal
from headwater.projections.table.types import SPARK_TYPES, ColumnType, within_years

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

READABLE_WITHIN: Final = timedelta(seconds=60)
"""From a record's recording until it can be read: how long a producer tries or a handler decides, how long a
transaction takes, and how far clocks differ."""
_MILLISECOND: Final = timedelta(milliseconds=1)
_NEVER: Final = "9999-01-01 00:00:00"
_TIME: Final = "observed"
_REPORTER: Final = "substring(document.subject, length(document.type) + 2)"
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


def milliseconds(time: timedelta) -> int:
    """A duration in whole milliseconds."""
    return time // _MILLISECOND


def watermark_delay(admitted: timedelta) -> str:
    """The delay of Spark's watermark for a source whose records are admitted up to so late."""
    return f"{milliseconds(admitted + MAX_AHEAD + READABLE_WITHIN)} milliseconds"


def event_time(time: str, recorded: str, is_heartbeat: str, started: datetime) -> str:
    """Spark SQL of the time of a record: at most MAX_AHEAD after it was recorded, and never null.

    A tombstone, or a record that is no event, has no time of recording; the watermark must not follow it into the
    future. Unlike `started`, `current_timestamp()` would be another
    number in the code of each batch, and Spark would compile the query each time. Heartbeats have no time of recording,
    and no limit.
    """
    ahead = f"interval {milliseconds(MAX_AHEAD)} milliseconds"
    unknown = f"if({is_heartbeat}, timestamp'{_NEVER}', timestamp_millis({int(started.timestamp() * 1000)}))"
    return f"least({time}, coalesce({recorded}, {unknown}) + {ahead})"


def lateness_ms(time: str, recorded: str) -> str:
    """Spark SQL of how much later than its time a record was recorded; 0 if that is not known."""
    return f"coalesce(unix_millis({recorded}) - unix_millis({time}), 0)"


@dataclass(frozen=True)
class Records:
    """Parsed records, and Spark SQL over them.

    columns: of the source, by name, without the times and the type.
    time: of Kafka's record, never null.
    recorded: when it was accepted; null if that is not known.
    document: the whole record, as text.
    reporter: who reported it, or the stream of an event.
    is_empty: whether it has no value.
    is_refused: whether it is no document of any type.
    unreadable: by type, whether a record of that type cannot be read.
    """

    frame: DataFrame
    columns: Mapping[str, str]
    time: str
    recorded: str
    type: str
    document: str
    reporter: str
    is_heartbeat: str
    is_empty: str
    is_refused: str
    unreadable: Mapping[str, str]


def records_of(records: DataFrame, source: StreamSource, *, upcasts: bool) -> Records:
    """The records of a source's topic. upcasts: whether older versions of events are; else they cannot be read."""
    match source:
        case Events():
            return _events(records, source, upcasts)
        case Observed():
            return _observations(records, source)
        case _:
            raise TypeError(f"{source!r} has no topic that is known here")


def _events(records: DataFrame, source: Events, upcasts: bool) -> Records:
    schema = LogSchema.of_events(source.classes, upcasts=upcasts)
    unreadable_by_type = {
        cls.type: unreadable(cls, source.required(cls), schema.parsed)
        + ("" if upcasts else f" or {schema.is_older(cls.type, 'data_version')}")
        for cls in source.classes
    }
    former = {name: cls.type for cls in source.classes for name in cls.history.types if name != cls.type}
    cases = " ".join(f"when {literal(name)} then {literal(current)}" for name, current in former.items())
    return Records(
        frame=parse_topic(records, schema, literal(EVENTS)),
        columns={
            **{name: _field("data", name, kind) for name, kind in source.fields.items()},
            **{name: name for name in ("id", "stream", "sequence")},
        },
        time="time",
        recorded="recorded",
        type=f"(case `type` {cases} else `type` end)" if cases else "`type`",
        document="record",
        reporter="stream",
        is_heartbeat="heartbeat",
        is_empty="tombstone",
        is_refused="refusal is not null",
        unreadable=unreadable_by_type,
    )


def _observations(records: DataFrame, source: Observed) -> Records:
    raw = records.selectExpr(
        "cast(key as string) as key",
        "cast(value as string) as record",
        f"timestamp as {_TIME}",
        "`partition`",
        "`offset`",
    )
    data = ", ".join(f"{identifier(name)}: {SPARK_TYPES[kind]}" for name, kind in source.fields.items())
    members = [f"{name} string" for name in ("specversion", "id", "type", "subject", "recordedtime")]
    ddl = ", ".join([*members, "dataversion bigint", *([f"data struct<{data}>"] if data else [])])
    parsed = raw.selectExpr("*", f"from_json(record, {literal(ddl)}) as document")
    fields = {name: _field("document.data", name, kind) for name, kind in source.fields.items()}
    return Records(
        frame=parsed.selectExpr("*", "try_cast(document.recordedtime as timestamp) as recorded"),
        columns={
            **fields,
            "id": "document.id",
            "source": _REPORTER,
        },
        time=_TIME,
        recorded="recorded",
        type="document.type",
        document="record",
        reporter=_REPORTER,
        is_heartbeat=f"startswith(key, {literal(PREFIX)})",
        is_empty="record is null",
        is_refused=f"coalesce(document.specversion, '') <> '{SPEC_VERSION}'",
        unreadable={
            cls.type: " or ".join(
                [
                    f"coalesce(document.dataversion, 0) not between 1 and {cls.version}",
                    *(f"{fields[name]} is null" for name in source.required(cls)),
                ]
            )
            for cls in source.classes
        },
    )


def _field(data: str, name: str, kind: ColumnType) -> str:
    column = f"{data}.{identifier(name)}"
    return within_years(column) if kind is ColumnType.TIME else column


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
    from pyspark.sql.functions import expr  # noqa: PLC0415

    counts = (expr(f"count_if({_VERDICT} = {literal(verdict)}) as {verdict}") for verdict in COUNTED)
    return read.observe(name, *counts)


def judged(
    records: DataFrame, source: StreamSource, admitted: timedelta, placed: Collection[str] = frozenset()
) -> DataFrame:
    """Every record with the columns of the source, and what becomes of it as `_VERDICT`; and these of PLACED."""
    # a query in real-time mode runs no Python
    read = records_of(records, source, upcasts=not (placed and records.isStreaming))
    places = {
        PARTITION: "cast(`partition` as int)",
        OFFSET: "`offset`",
        TIMESTAMP_MS: f"unix_millis({read.time})",
        HEARTBEAT: f"coalesce({read.is_heartbeat}, false)",
    }
    of_late = {
        "source": read.reporter,
        "late_s": f"{lateness_ms(read.time, read.recorded)} / 1000.0D",
        "data": f"get_json_object({read.document}, '$.data')",
    }
    columns = {
        **read.columns,
        **(of_late if source.is_of_late else {}),
        "time": event_time(read.time, read.recorded, read.is_heartbeat, datetime.now(UTC)),
        "recordedtime": read.recorded,
        "type": read.type,
        _VERDICT: _verdict(read, source, admitted),
        **{name: text for name, text in places.items() if name in placed},
    }
    return read.frame.selectExpr(*(f"{text} as {identifier(name)}" for name, text in columns.items()))


def _verdict(read: Records, source: StreamSource, admitted: timedelta) -> str:
    late = lateness_ms(read.time, read.recorded)
    known = ", ".join(literal(type_) for type_ in source.types)
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
