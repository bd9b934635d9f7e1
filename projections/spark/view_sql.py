"""A view's declaration as Spark SQL: the key of an event's row, and the state fields that the event brings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headwater.commands.declaring.aggregate import Event
from headwater.projections.spark.events import LogSchema, unchanged, unreadable
from headwater.projections.stores.names import keeps_partitions, partition_text
from headwater.projections.table.expressions import literal
from headwater.projections.table.fold_plan import Lift, RowLift
from headwater.projections.table.items import Required, items_spark, single_item
from headwater.projections.table.rows import is_row
from headwater.projections.table.types import ColumnType, spark_stored
from headwater.projections.table.view import TableView


@dataclass(frozen=True, slots=True)
class LiftedRow:
    """The effect of one kind of event on one row, as Spark SQL over the parsed log.

    key: of the row.
    fields: by state field, in the layout's order; unchanged fields are absent.
    condition: whether the event counts (None: always).
    partitioned_by: the text that gives the partition of its patch, see `partition_text` (None: the patch's key).
    """

    key: str
    fields: dict[str, str]
    condition: str | None = None
    partitioned_by: str | None = None


@dataclass(frozen=True, slots=True)
class Lifted:
    """The effect of one kind of event on a view.

    rows: on each row that it changes, in their order.
    event: its class (None: any that the view does not name).
    required: fields of `data` that must not be null.
    unreadable: the condition that the event cannot be read (None: all can).
    items: the list whose items make one patch each, and are read by the one row as `item` and `i` (None: a patch per
    row). An event without a list has one item, which is null.
    """

    rows: tuple[LiftedRow, ...]
    event: type[Event] | None
    required: tuple[Required, ...]
    unreadable: str | None
    items: str | None = None


def lifts(view: TableView, schema: LogSchema) -> dict[str | None, Lifted]:
    """Every kind of event that the view handles, by type; None stands for all others, if it handles all events."""
    kinds, found = view.plan.items, view.plan.lifts.values()
    types = {field.name: field.type for field in view.layout.fields}
    return {
        None if each.event is None else each.event.type: _partitioned(view, _lifted(each, kinds, types, schema))
        for each in found
    }


def _partitioned(view: TableView, lifted: Lifted) -> Lifted:
    """The same, with what gives the partitions of patches; see `partition_text`."""
    if view.layout.retraction is not None:
        one = literal(partition_text(view, view.tag, ""))
        return replace(lifted, rows=tuple(replace(row, partitioned_by=one) for row in lifted.rows))
    if keeps_partitions(view):
        return replace(lifted, rows=tuple(replace(row, partitioned_by=row.key) for row in lifted.rows))
    return lifted


def _lifted(lift: Lift, kinds: Mapping[str, ColumnType], types: Mapping[str, ColumnType], schema: LogSchema) -> Lifted:
    """As Spark SQL; `reference.lift` defines it. kinds: of the items of `each`. types: of state fields."""
    event = lift.event
    rows = tuple(_lifted_row(row, event, types, schema) for row in lift.rows)
    if event is not None and is_row(event):
        lacks = unchanged(event, lift.fields)
        refused = unreadable(event, lift.fields, schema.parsed)
        known = tuple(replace(row, condition=None if lacks is None else f"not {lacks}") for row in rows)
        return Lifted(known, event, lift.fields, refused)
    items = None
    if kinds and len(rows) == 1:
        items = single_item(kinds) if lift.through is None else items_spark(lift.through, kinds)
    return Lifted(
        rows=rows,
        event=event,
        required=lift.required,
        unreadable=None if event is None else unreadable(event, lift.required, schema.parsed),
        items=items,
    )


def _lifted_row(
    row: RowLift, event: type[Event] | None, types: Mapping[str, ColumnType], schema: LogSchema
) -> LiftedRow:
    condition = row.condition
    return LiftedRow(
        key=row.key.spark(event, schema.parsed),
        fields={name: spark_stored(read.spark(event, schema.parsed), types[name]) for name, read in row.brings.items()},
        condition=None if condition is None else f"coalesce({condition.spark(event, schema.parsed)}, false)",
    )
