"""A view's declaration as Spark SQL: the key of an event's row, and the state fields that the event brings."""

from __future__ import annotations

from dataclasses import dataclass

from commands.declaring.aggregate import Event
from projections.spark.events import LogSchema, unchanged, unreadable
from projections.table.folds.fold import EVERY, Case
from projections.table.items import ItemField, items_spark, single_item
from projections.table.rows import is_row
from projections.table.view import TableView, fields_read, item_kinds, required_fields


@dataclass(frozen=True, slots=True)
class Lifted:
    """The effect of one kind of event on a row of a view, as Spark SQL over the parsed log.

    key: of the row. fields: by state field, in the layout's order; unchanged fields are absent. event: its class (None:
    any that the view does not name). required: fields of `data` that must not be null. unreadable: the
    condition that the event cannot be read (None: all can). condition: whether the event
    counts (None: always). items: the list whose items make one patch each, and are read by key, fields and condition as
    `item` and `i` (None: one patch). An event without a list has one item, which is null.
    """

    key: str
    fields: dict[str, str]
    event: type[Event] | None
    required: tuple[str | ItemField, ...]
    unreadable: str | None
    condition: str | None = None
    items: str | None = None


def lift(view: TableView, event: type[Event] | None, schema: LogSchema) -> Lifted:
    """The effect of `event` (None: any that the view does not name) on its row. `reference.lift` defines it."""
    case: Case = EVERY if event is None else event
    if event is not None and is_row(event):
        return _lifted_row(view, event, schema)
    condition, found = view.condition(case), view.list_of(case)
    items = None
    if view.each:
        items = single_item(item_kinds(view)) if found is None else items_spark(found, item_kinds(view))
    required = required_fields(view, event) if event else ()
    return Lifted(
        key=view.key_expression(case).spark(event, schema.parsed),
        fields={name: read.spark(event, schema.parsed) for name, read in view.layout.lifted(case).items()},
        event=event,
        required=required,
        unreadable=None if event is None else unreadable(event, required, schema.parsed),
        condition=None if condition is None else f"coalesce({condition.spark(event, schema.parsed)}, false)",
        items=items,
    )


def _lifted_row(view: TableView, event: type[Event], schema: LogSchema) -> Lifted:
    names = fields_read(view, event)
    lacks = unchanged(event, names)
    return Lifted(
        key=view.key_expression(event).spark(event, schema.parsed),
        fields={name: read.spark(event, schema.parsed) for name, read in view.layout.lifted(event).items()},
        event=event,
        required=names,
        unreadable=unreadable(event, names, schema.parsed),
        condition=None if lacks is None else f"not {lacks}",
    )


def lifts(view: TableView, schema: LogSchema) -> dict[str | None, Lifted]:
    """Every kind of event that the view handles, by type; None stands for all others, if it handles all events."""
    found: dict[str | None, Lifted] = {name: lift(view, event, schema) for name, event in view.events.items()}
    return found | {None: lift(view, None, schema)} if view.handles_every else found
