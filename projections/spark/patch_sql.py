"""The SQL of the live query: from one event to the records of `patches` and `dead-letters`."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import indent
from typing import TYPE_CHECKING, Final

from headwater.eventlog.letters import VALUE_BYTES
from headwater.eventlog.limits import MAX_ENTRY_BYTES
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import DEAD_LETTERS, EVENTS, PATCHES
from headwater.projections.loading.decoding import DECIDED, OLDER, TOO_LARGE, TRACEPARENT
from headwater.projections.loading.older_events import RECORD_KEY, RECORD_VALUE
from headwater.projections.spark.events import (
    IS_EVENT,
    LogSchema,
    is_type,
    own_topic,
    parse,
    parsing,
    unchanged,
    unreadable,
    unreadable_reason,
)
from headwater.projections.stores.names import keeps_partitions, partition_text
from headwater.projections.table.expressions import identifier, literal
from headwater.projections.table.fold_plan import Lift, RowLift
from headwater.projections.table.folds.fold import EVERY
from headwater.projections.table.items import INDEX, ITEM, Required, item_type, items_spark
from headwater.projections.table.rows import is_row
from headwater.projections.table.types import spark_stored
from headwater.projections.table.view import TableView
from headwater.projections.view import View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


SOURCE: Final = "concat(topic, '/', `partition`)"
"""The source of a captured row."""
SHOWN_KEY: Final = 1_000
"""Characters."""
IS_MADE: Final = "made is not null"
MADE: Final = ("made.topic as topic", "made.key as key", "made.value as value", "made.`partition`")
_SIZE: Final = "octet_length(key) + octet_length(value)"
_LARGE: Final = f"{_SIZE} > {MAX_ENTRY_BYTES}"
SENDABLE: Final = (
    "topic",
    f"if({_LARGE}, left(key, {SHOWN_KEY}), key) as key",
    f"if({_LARGE}, concat('{{\"{TOO_LARGE}\":', {_SIZE}, '}}'), value) as value",
    "`partition`",
)

_RECORD: Final = "struct<topic: string, key: string, value: string, `partition`: int>"


def patch_records(
    records: DataFrame, views: Sequence[TableView], settings: LogSettings, *, traced: bool = False
) -> DataFrame:
    """The output of Kafka's records of the views' topics: `topic, key, value, partition`.

    traced: whether patches of events whose traces are sampled carry their context.
    """
    schema = LogSchema.of(views, traced=traced)
    return exploded(parse(records, schema, settings), records_of_event(views, schema, settings))


def exploded(frame: DataFrame, output: str) -> DataFrame:
    """A row per output record: `topic, key, value, partition`.

    output: Spark SQL of the array of the output records of one row of `frame`; those that are null are left out. It
    is a column first: Spark interprets the expressions of a generator, and compiles those of columns.
    """
    rows = frame.selectExpr(f"{output} as listed").selectExpr("explode(listed) as made").where(IS_MADE)
    return rows.selectExpr(*MADE)


def sendable(made: DataFrame) -> DataFrame:
    """The same records; one that is too large for Kafka is replaced by its size.

    Otherwise the query would fail repeatedly; a loader makes the replacement a dead letter.
    """
    return made.selectExpr(*SENDABLE)


def live_sql(view: TableView, settings: LogSettings) -> str:
    """What the live query computes for one view, as a statement of Spark SQL over Kafka's columns of `records`.

    It is for people: `patch_records` and `sendable` build the same query step by step.
    """
    schema = LogSchema.of([view])
    steps: list[Sequence[str]] = [
        *parsing(schema, own_topic(settings)),
        [f"{records_of_event([view], schema, settings)} as listed"],
        ["explode(listed) as made"],
        MADE,
    ]
    named = [f"step_{number} as (\n{_select(step, number)}\n)" for number, step in enumerate(steps, 1)]
    return f"with {', '.join(named)}\n{_select(SENDABLE, len(steps) + 1)}\n"


def _select(columns: Sequence[str], number: int) -> str:
    """The step with this number, of the one before it."""
    before = f"step_{number - 1}" if number > 1 else "records"
    where = f"\nwhere {IS_MADE}" if columns is MADE else ""
    listed = ",\n".join(indent(column.strip(), "  ") for column in columns)
    return f"select\n{listed}\nfrom {before}{where}"


def records_of_event(views: Sequence[TableView], schema: LogSchema, settings: LogSettings) -> str:
    """Spark SQL of the array of output records of one record; some are null."""
    branches = "\n".join(
        f"  when {is_type('type', schema.events[name].history.types)} then {_of_type(name, views, schema, settings)}"
        for name in sorted(schema.events)
    )
    rest = _of_type(None, views, schema, settings)
    if schema.tables:
        rest = f"if({IS_EVENT}, {rest}, null)"
    by_type = f"case\n{branches}\n  else {rest}\nend" if branches else rest
    progress = progress_records("`partition`", views, settings)
    if schema.tables:
        reading = {topic: [view for view in views if topic in view.topics] for topic in schema.tables}
        of_tables = " ".join(
            f"when {literal(topic)} then {progress_records(SOURCE, own, settings)}" for topic, own in reading.items()
        )
        progress = f"case topic when {literal(EVENTS)} then {progress} {of_tables} end"
    return (
        f"case\nwhen tombstone then null\nwhen heartbeat then {progress}\n"
        f"when refusal is not null then array({_dead_letter('refusal', settings)})\nelse {by_type}\nend"
    )


def _of_type(event_type: str | None, views: Sequence[TableView], schema: LogSchema, settings: LogSettings) -> str:
    """The array for an event of this type (None: a type that no view names), of any version."""
    current = _of_current(event_type, views, schema, settings)
    if event_type is None or not schema.older.get(event_type):
        return current
    # an older version is handed on to each partition of `patches`, see `older_events`
    tags = ", ".join(literal(view.tag) for view in views if event_type in view.plan.events)
    record = f"{_base64('cast(key as binary)')} as {RECORD_KEY}, {_base64('value')} as {RECORD_VALUE}"
    value = f"to_json(struct({_head('`partition`', schema, f'array({tags}) as v')}, {record}))"
    older = _in_every_partition(f"concat('{OLDER}/', `partition`)", value, settings)
    others = [view for view in views if event_type not in view.plan.events and view.plan.handles_every]
    if others:
        older = f"concat({older}, {_of_current(None, others, schema, settings)})"
    return f"if({schema.is_older(event_type, 'data_version')}, {older}, {current})"


def _of_current(event_type: str | None, views: Sequence[TableView], schema: LogSchema, settings: LogSettings) -> str:
    """Likewise, of a version that is read as it was recorded."""
    of_rows = event_type is not None and is_row(schema.events[event_type])
    single, by_item, required = list[str](), list[str](), set[Required]()
    event = None
    for view in views:
        named = view.plan.events.get(event_type or "")
        lift = view.plan.lifts.get(EVERY if named is None else named)
        if lift is None or (named is None and of_rows):
            continue
        items = _items(view, lift)
        needed = lift.fields if of_rows else lift.required
        refused = None if lift.event is None else unreadable(lift.event, needed, schema.parsed)
        for number, row in enumerate(lift.rows):
            patch = _patch(view, lift, row, str(number) if items is None else INDEX, schema, settings)
            if items is not None:
                patch = f"transform({items}, ({ITEM}, {INDEX}) -> {patch})"
            readable = f"if({refused}, null, {patch})" if refused else patch
            (single if items is None else by_item).append(readable)
        if lift.event is not None:
            event, required = lift.event, required | set(needed)
    if event is not None and (required or not of_rows):
        names = sorted(required, key=str)
        letter = _dead_letter(unreadable_reason(event, names, schema.parsed), settings)
        single.append(f"if({unreadable(event, names, schema.parsed)}, {letter}, null)")
    if not single and not by_item:
        return f"cast(null as array<{_RECORD}>)"
    arrays = [
        *([f"array({', '.join(single)})"] if single else []),
        *(f"coalesce({entries}, array())" for entries in by_item),
    ]
    return arrays[0] if len(arrays) == 1 else f"concat({', '.join(arrays)})"


def _items(view: TableView, lift: Lift) -> str | None:
    """The list whose items make a patch each; None: the event makes a patch per row.

    An event without a list has one item, which is null.
    """
    kinds = view.plan.items
    if not kinds or len(lift.rows) != 1 or is_row(lift.event):
        return None
    no_list = f"array(cast(null as {item_type(kinds)}))"
    return no_list if lift.through is None else items_spark(lift.through, kinds)


def _patch(view: TableView, lift: Lift, row: RowLift, number: str, schema: LogSchema, settings: LogSettings) -> str:
    """What one kind of event changes in one row. number: Spark SQL of the patch's number in the event."""
    event, types = lift.event, {field.name: field.type for field in view.layout.fields}
    row_key = row.key.spark(event, schema.parsed)
    key = f"concat({literal(view.tag + '/')}, {row_key})"
    read = {name: spark_stored(mapped.spark(event, schema.parsed), types[name]) for name, mapped in row.brings.items()}
    fields = ", ".join(f"{text} as {identifier(name)}" for name, text in read.items())
    source = SOURCE if is_row(event) else "`partition`"
    value = f"to_json(struct({_head(source, schema, f'{number} as i')}, struct({fields}) as c))"
    partitioned_by = row_key if keeps_partitions(view) else key
    if view.layout.retraction is not None:
        partitioned_by = literal(partition_text(view, view.tag, ""))
    patch = output_record(PATCHES, key, value, partition_sql(partitioned_by, settings), settings)
    condition = None if row.condition is None else f"coalesce({row.condition.spark(event, schema.parsed)}, false)"
    if event is not None and is_row(event):
        lacks = unchanged(event, lift.fields)
        condition = None if lacks is None else f"not {lacks}"
    return patch if condition is None else f"if({condition}, {patch}, null)"


def _in_every_partition(key: str, value: str, settings: LogSettings) -> str:
    """Spark SQL of the array of a record for each partition of `patches`."""
    partitions = range(settings.patch_partitions)
    return (
        f"array({', '.join(output_record(PATCHES, key, value, str(partition), settings) for partition in partitions)})"
    )


def _head(source: str, schema: LogSchema, which: str) -> str:
    """Spark SQL of the members that say what a patch is of. which: one more."""
    head = f"{source} as p, `offset` as o, {which}, timestamp_ms as t"
    if schema.traced:  # `to_json` leaves out what is null
        head += f", traceparent as {TRACEPARENT}, if(traceparent is null, null, decided) as {DECIDED}"
    return head


def partition_sql(key: str, settings: LogSettings) -> str:
    """The partition of `patches` by the CRC-32 of a text. key: an expression of it."""
    return f"cast(crc32(cast({key} as binary)) % {settings.patch_partitions} as int)"


def progress_records(source: str, views: Sequence[View], settings: LogSettings) -> str:
    """Spark SQL of the array of records that say how far a source is read, one per partition of `patches`.

    Only of these views: the live query of another version may have other progress.
    """
    tags = ", ".join(literal(view.tag) for view in views)
    value = f"to_json(struct({source} as p, `offset` as o, timestamp_ms as t, array({tags}) as v))"
    return _in_every_partition(f"concat('progress/', {source})", value, settings)


def _dead_letter(reason: str, settings: LogSettings) -> str:
    """The letter is the same each time it is written, so that a restart leaves one."""
    large = f"octet_length(value) > {VALUE_BYTES}"
    full_reason = (
        f"if({large}, concat({reason}, ' (value not kept: ', octet_length(value), ' bytes are too large)'), {reason})"
    )
    fields = (
        f"topic, `partition`, `offset`, {full_reason} as reason, time, "
        f"{_base64('cast(key as binary)')} as key, if({large}, null, {_base64('value')}) as value"
    )
    key = "concat(topic, '/', `partition`, '/', `offset`)"
    return output_record(DEAD_LETTERS, key, f"to_json(struct({fields}))", "0", settings)


def _base64(content: str) -> str:
    """Spark breaks the lines; a letter has one line."""
    return f"translate(base64({content}), '\\r\\n', '')"


def output_record(topic: str, key: str, value: str, partition: str, settings: LogSettings) -> str:
    """Spark SQL of one output record. partition: an expression of its number."""
    columns = f"{literal(settings.topic(topic))} as topic, {key} as key, {value} as value"
    return f"struct({columns}, {partition} as `partition`)"
