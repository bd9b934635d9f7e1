"""The parsed log: Kafka's records as columns that expressions read; each JSON document is parsed once.

Records of captured tables get the same columns as events (`captured_rows.py`). SQL reads events of current versions.
Older ones are upcast by a function of Python in the queries of stream views, and by the loaders of table views.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import orjson

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.history import NO_VERSION, History, newer_version
from headwater.eventlog.envelope import SPEC_VERSION
from headwater.eventlog.heartbeats import AMONG_ROWS, PREFIX
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import EVENTS
from headwater.eventlog.tracing.spans import SAMPLED
from headwater.projections.spark import captured_rows
from headwater.projections.spark.captured_rows import TableRead, Tables
from headwater.projections.table.event_data import lacking_columns
from headwater.projections.table.expressions import Field, from_json, identifier, literal
from headwater.projections.table.items import FittingField, ItemField, Required, missing_items
from headwater.projections.table.rows import CapturedRow
from headwater.projections.table.types import SPARK_TYPES, ColumnType, field_types
from headwater.projections.table.view import TableView

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ENVELOPE = ("specversion string", "id string", "type string", "subject string", "sequence bigint")

_TEXTS: Final = {ColumnType.TIME: ColumnType.TEXT}
_HEARTBEAT_ROW = f"startswith(key, {literal(PREFIX)}) and key = concat({literal(PREFIX)}, `partition`)"
_AMONG_ROWS = f"key = concat({literal(AMONG_ROWS)}, `partition`)"
IS_EVENT = f"topic = {literal(EVENTS)}"
_OBJECT_ROW = "startswith(ltrim(record), '{') and endswith(rtrim(record), '}')"


@dataclass(frozen=True, slots=True)
class LogSchema:
    """What some views need of the log, and as which types.

    events: the event classes that any of the views handles, by type, with those of rows.
    tables: what they read of captured tables and of other views.
    parsed: the type that each field of `data` is parsed as, by name. A field that two events declare differently is
    parsed as text; `Field.spark` casts it.
    older: by event type, the versions that recorded fields that are read in another way; empty if there are none.
    upcasts: whether these are upcast.
    recorded: whether the time of recording is read.
    traced: whether the trace contexts of events are read.
    """

    events: dict[str, type[Event]]
    parsed: dict[str, ColumnType]
    older: Mapping[str, frozenset[int]]
    tables: Tables
    upcasts: bool = False
    recorded: bool = False
    traced: bool = False

    @classmethod
    def of(cls, views: Sequence[TableView], *, traced: bool = False) -> LogSchema:
        """The schema for all of `views`. Times are parsed as texts: Spark reads others than `is_time` does."""
        events: dict[str, type[Event]] = {}
        read: dict[str, set[str]] = {}
        for view in views:
            for event in view.plan.events.values():
                events[event.type] = event
                read.setdefault(event.type, set()).update(view.plan.lifts[event].fields)
        plan = cls._of_fields(events, read)
        parsed = {name: _TEXTS.get(kind, kind) for name, kind in plan.parsed.items()}
        return replace(plan, parsed=parsed, traced=traced)

    @classmethod
    def of_events(cls, classes: Sequence[type[Event]], *, upcasts: bool) -> LogSchema:
        """The schema for all fields of these events, with their time of recording."""
        events = {event.type: event for event in classes}
        fields = cls._of_fields(events, {name: set(field_types(event)) for name, event in events.items()})
        return replace(fields, recorded=True, upcasts=upcasts and bool(fields.older))

    @classmethod
    def _of_fields(cls, events: dict[str, type[Event]], read: Mapping[str, set[str]]) -> LogSchema:
        """read: the fields that are read of each event."""
        kinds: dict[str, set[ColumnType]] = {}
        for event_type, names in read.items():
            for name in names:
                kinds.setdefault(name, set()).add(field_types(events[event_type])[name])
        parsed = {name: kind.pop() if len(kind) == 1 else ColumnType.TEXT for name, kind in sorted(kinds.items())}
        older = {name: event.history.changed(read[name]) for name, event in sorted(events.items())}
        tables = {
            event.table.topic(): TableRead(event.table, tuple(sorted(read[name])))
            for name, event in events.items()
            if issubclass(event, CapturedRow) and not event.deleted
        }
        return cls(events, parsed, {name: versions for name, versions in older.items() if versions}, tables)

    @property
    def data_ddl(self) -> str:
        """The schema of an event's data in Spark's syntax; fields that no view reads are skipped."""
        return ", ".join(f"{identifier(name)}: {SPARK_TYPES[kind]}" for name, kind in self.parsed.items())

    @property
    def ddl(self) -> str:
        """The schema of a record's document, likewise."""
        version = ("dataversion bigint",) if self.events else ()
        recorded = ("recordedtime string",) if self.recorded or self.traced else ()
        traced = ("traceparent string",) if self.traced else ()
        return ", ".join(
            (*ENVELOPE, *version, *recorded, *traced, *((f"data struct<{self.data_ddl}>",) if self.parsed else ()))
        )

    def is_older(self, event_type: str, version: str) -> str:
        """Spark SQL of the condition that a version of an event has to be upcast; "false" if none has."""
        listed = ", ".join(map(str, sorted(self.older.get(event_type, ()))))
        return f"{version} in ({listed})" if listed else "false"


REFUSAL = f"""
case
  when not is_text then 'not an event: the record is not UTF-8 text'
  when document.specversion is null then 'not an event: malformed JSON, or no "specversion"'
  when not is_object then 'not an event: the record is not one JSON object'
  when document.specversion <> '{SPEC_VERSION}'
    then 'not an event: "specversion" is not "{SPEC_VERSION}"'
  when coalesce(document.id, '') = '' then 'not an event: "id" is missing'
  when coalesce(document.type, '') = '' then 'not an event: "type" is missing'
  when coalesce(document.subject, '') = '' then 'not an event: "subject" is missing'
  when coalesce(document.sequence, 0) < 1
    then 'not an event: "sequence" is missing, or less than 1'
end"""
"""Why a record is not an event (null: it is one). Heartbeats and tombstones are not events, but no error either."""


def parse(records: DataFrame, schema: LogSchema, settings: LogSettings) -> DataFrame:
    """Kafka's records of several topics as events; see `parse_topic`."""
    return parse_topic(records, schema, own_topic(settings))


def own_topic(settings: LogSettings) -> str:
    """Spark SQL of a record's topic without the environment."""
    return f"substring(topic, {len(settings.topic('')) + 1})"


def parse_topic(records: DataFrame, schema: LogSchema, topic: str) -> DataFrame:
    """Kafka's records as events: `id, type, stream, sequence, time, partition, offset, record, timestamp_ms, data`.

    topic: Spark SQL of the topic without the environment.

    `data` has the fields of each event's current version; `data_version` is the recorded version; `recorded` is when it
    was recorded, if the schema has that. Further columns are Kafka's `topic` (without the environment), `key` (text)
    and `value` (bytes), whether it is a `tombstone` of an event or a `heartbeat`, and `refusal`: why the record is not
    an event. If a captured table is read, `unfit` and `unchanged` are the names of columns without a value.
    """
    *steps, last = parsing(schema, topic)
    for columns in steps:
        records = records.selectExpr(*columns)
    if schema.upcasts:
        from pyspark.sql.functions import expr, udf  # noqa: PLC0415

        upcast = udf(upcaster({name: schema.events[name].history for name in schema.older}), "string", useArrow=False)
        records = records.withColumn(UPCAST, upcast(expr(f"if({_is_older(schema)}, record, null)")))
    return records.selectExpr(*last)


UPCAST: Final = "upcast"
"""A column: the data of an older version in the form of the current one, as text; null if it cannot be upcast."""


def _is_older(schema: LogSchema) -> str:
    """Spark SQL of the condition that a record has to be upcast."""
    version = "document.dataversion"
    return " or ".join(
        f"({is_type('document.type', schema.events[name].history.types)} and {schema.is_older(name, version)})"
        for name in schema.older
    )


def upcaster(histories: Mapping[str, History]) -> Callable[[str | None], str | None]:
    """The function that upcasts records of these events; of others, and those that cannot be upcast, it makes null."""
    by_type = {name: history for history in histories.values() for name in history.types}

    def upcast(record: str | None) -> str | None:
        if record is None:
            return None
        try:
            document = orjson.loads(record)
            data = by_type[document["type"]].upcast(document["dataversion"], document["data"])
            return orjson.dumps(data).decode()
        except (ValueError, TypeError, KeyError, AttributeError):
            return None

    return upcast


def parsing(schema: LogSchema, topic: str) -> Iterator[Sequence[str]]:
    """The steps of `parse_topic`: the columns that each selects from those of the step before."""
    yield (
        f"{topic} as topic",
        "cast(key as string) as key",
        "value",
        "cast(value as string) as record",
        "`partition`",
        "`offset`",
        "timestamp as time",
    )
    views = ", ".join(literal(topic) for topic, read in schema.tables.items() if read.is_of_view)
    heartbeat = f"if(topic in ({views}), {_AMONG_ROWS}, {_HEARTBEAT_ROW})" if views else _HEARTBEAT_ROW
    record = f"if({IS_EVENT}, record, null)" if schema.tables else "record"
    # checks of the whole text are made here, so that the text is not copied on with the document
    yield (
        "*",
        f"{heartbeat} as heartbeat",
        "is_valid_utf8(record) as is_text",
        f"{_OBJECT_ROW} as is_object",
        f"{IS_EVENT} and value is null as tombstone",
        f"{from_json(record, schema.ddl)} as document",
        *(captured_rows.parsed_change(schema.tables) if schema.tables else ()),
    )
    if schema.tables:
        yield "*", captured_rows.row_texts(schema.tables)
        yield "*", captured_rows.row_values(schema.tables, schema.parsed)
        yield "*", captured_rows.row_lacks(schema.tables)
    data = "document.data"
    if schema.upcasts:
        parsed_upcast = from_json(UPCAST, f"struct<{schema.data_ddl}>")
        data = f"if({_is_older(schema)}, {parsed_upcast}, document.data)"
    columns = OF_ALL | _of_events(schema, data)
    if schema.tables:
        rows = captured_rows.columns(schema.tables, with_data=bool(schema.parsed))
        columns |= {name: f"if({IS_EVENT}, {columns.get(name, 'null')}, {value})" for name, value in rows.items()}
    yield [f"{value} as {identifier(name)}" for name, value in columns.items()]


_SAMPLED: Final = f"if(instr('{SAMPLED}', right(document.traceparent, 1)) > 0, document.traceparent, null)"
"""The trace context of an event, if it says that its trace is recorded."""


OF_ALL: Final = {
    "topic": "topic",
    "key": "key",
    "value": "value",
    "record": "record",
    "partition": "cast(`partition` as bigint)",
    "offset": "`offset`",
    "time": "time",
    "timestamp_ms": "unix_millis(time)",
    "tombstone": "tombstone",
    "heartbeat": "heartbeat",
}
"""The columns that all records have."""


def _of_events(schema: LogSchema, data: str) -> dict[str, str]:
    version = "coalesce(document.dataversion, 0)"
    if schema.upcasts:  # 0 if it cannot be upcast
        version = f"if({_is_older(schema)} and {UPCAST} is null, 0, {version})"
    return {
        "refusal": REFUSAL,
        "id": "document.id",
        "type": "document.type",
        "stream": "document.subject",
        "sequence": "document.sequence",
        **({"data_version": version} if schema.events else {}),
        **({"recorded": "try_cast(document.recordedtime as timestamp)"} if schema.recorded else {}),
        **({"traceparent": _SAMPLED, "decided": "document.recordedtime"} if schema.traced else {}),
        **({"data": data} if schema.parsed else {}),
    }


def is_type(column: str, types: Sequence[str]) -> str:
    """Spark SQL of the condition that a column has one of the types under which an event was recorded."""
    if len(types) == 1:
        return f"{column} = {literal(types[0])}"
    return f"{column} in ({', '.join(map(literal, types))})"


def unreadable(event: type[Event], required: Sequence[Required], parsed: Mapping[str, ColumnType]) -> str:
    """Spark SQL of the condition that an event cannot be read: unknown version, or a null in `required`."""
    if issubclass(event, CapturedRow):
        return f"arrays_overlap(unfit, {_array(required)})" if required else "false"
    known = "<> 1" if event.version == 1 else f"not between 1 and {event.version}"
    names = (_is_null(field, event, parsed) for field in required if not isinstance(field, ItemField))
    items = missing_items([field for field in required if isinstance(field, ItemField)])
    return " or ".join((f"data_version {known}", *names, *items))


def unreadable_reason(event: type[Event], required: Sequence[Required], parsed: Mapping[str, ColumnType]) -> str:
    """Spark SQL of the reason why an event cannot be read: its version, or the required fields that are null."""
    if issubclass(event, CapturedRow):
        names = f"array_join(array_intersect({_array(required)}, unfit), ', ')"
        return f"concat({literal(lacking_columns(event.type, ''))}, {names})"
    name, known = f'"{event.type}" ', event.version
    unsaid = literal(name + NO_VERSION)
    newer = f"concat({literal(name + 'has version ')}, data_version, {literal(', ' + newer_version(known))})"
    names = ", ".join(f"if({_is_null(field, event, parsed)}, {literal(str(field))}, null)" for field in required)
    before = literal(name + "lacks a field, or has it with another type: ")
    lacking = f"concat({before}, array_join(array({names}), ', '))"
    return f"case when data_version < 1 then {unsaid} when data_version > {known} then {newer} else {lacking} end"


def unchanged(event: type[Event], names: Sequence[str]) -> str | None:
    """Spark SQL of the condition that a record of a row lacks long values of these columns; None if none can."""
    return f"arrays_overlap(unchanged, {_array(names)})" if issubclass(event, CapturedRow) and names else None


def _array(names: Sequence[Required]) -> str:
    return f"array({', '.join(literal(str(name)) for name in names)})"


def _is_null(required: Required, event: type[Event], parsed: Mapping[str, ColumnType]) -> str:
    """Whether the event lacks a field. Another event may declare it otherwise: then it is cast, as for its value."""
    if isinstance(required, str):
        return f"{Field(required).spark(event, parsed)} is null"
    if isinstance(required, FittingField):
        column = Field(required.name).spark(event, parsed)
        return f"(data.{identifier(required.name)} is not null and {column} is null)"
    (condition,) = missing_items([required])
    return condition
