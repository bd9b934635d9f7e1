"""Kafka's records of a source, parsed: what Spark SQL its columns are, and which records cannot be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headwater.eventlog.envelope import SPEC_VERSION
from headwater.eventlog.heartbeats import PREFIX
from headwater.eventlog.topics import EVENTS
from headwater.projections.spark.events import LogSchema, parse_topic, unreadable
from headwater.projections.stream.declaring.sources import Events, Observed, StreamSource
from headwater.projections.table.expressions import identifier, literal
from headwater.projections.table.types import SPARK_TYPES, ColumnType, within_years

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TIME: Final = "observed"
_REPORTER: Final = "substring(document.subject, length(document.type) + 2)"


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
        each.type: unreadable(each, source.required(each), schema.parsed)
        + ("" if upcasts else f" or {schema.is_older(each.type, 'data_version')}")
        for each in source.classes
    }
    return Records(
        frame=parse_topic(records, schema, literal(EVENTS)),
        columns={
            **{name: _field("data", name, kind) for name, kind in source.fields.items()},
            **{name: name for name in ("id", "stream", "sequence")},
        },
        time="time",
        recorded="recorded",
        type=_current_type(source),
        document="record",
        reporter="stream",
        is_heartbeat="heartbeat",
        is_empty="tombstone",
        is_refused="refusal is not null",
        unreadable=unreadable_by_type,
    )


def _current_type(source: Events) -> str:
    """The type of an event, by its current name."""
    former = {name: each.type for each in source.classes for name in each.history.types if name != each.type}
    cases = " ".join(f"when {literal(name)} then {literal(current)}" for name, current in former.items())
    return f"(case `type` {cases} else `type` end)" if cases else "`type`"


def _observations(records: DataFrame, source: Observed) -> Records:
    raw = records.selectExpr(
        "cast(key as string) as key",
        "cast(value as string) as record",
        f"timestamp as {_TIME}",
        "`partition`",
        "`offset`",
    )
    parsed = raw.selectExpr("*", f"from_json(record, {literal(_ddl(source))}) as document")
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
            each.type: " or ".join(
                [
                    f"coalesce(document.dataversion, 0) not between 1 and {each.version}",
                    *(f"{fields[name]} is null" for name in source.required(each)),
                ]
            )
            for each in source.classes
        },
    )


def _field(data: str, name: str, kind: ColumnType) -> str:
    column = f"{data}.{identifier(name)}"
    return within_years(column) if kind is ColumnType.TIME else column


def _ddl(source: Observed) -> str:
    data = ", ".join(f"{identifier(name)}: {SPARK_TYPES[kind]}" for name, kind in source.fields.items())
    envelope = ("specversion", "id", "type", "subject", "recordedtime")
    members = [f"{name} string" for name in envelope]
    return ", ".join([*members, "dataversion bigint", *([f"data struct<{data}>"] if data else [])])
