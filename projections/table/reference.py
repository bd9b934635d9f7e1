"""Folds a view in plain Python: the definition of a declaration's semantics, against which every engine is checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from msgspec import structs

from headwater.eventlog.source_positions import source_id
from headwater.eventlog.topics import EVENTS
from headwater.projections.table.declared_view import DeclaredView
from headwater.projections.table.event_data import current_data, is_partial, problem, with_json_texts
from headwater.projections.table.expressions import Source
from headwater.projections.table.item_lists import items_of
from headwater.projections.table.items import lists_read
from headwater.projections.table.monoids import State
from headwater.projections.table.patch import Patch, Place
from headwater.projections.table.shown import DELETED
from headwater.projections.table.view import TableView


def lift(view: TableView, source: Source) -> list[Patch]:
    """The patches that one event makes of a view's rows, in order.

    None if the view does not handle it, or cannot read it: then it becomes a dead letter (see `event_data.problem`).
    """
    effect = view.plan.lift_of(source.envelope.type)
    if effect is None or (effect.event is None and source.topic != EVENTS):
        return []
    if problem([view.plan], source.envelope) is not None or is_partial(effect, source.envelope):
        return []
    data = with_json_texts(effect.event, current_data(effect.event, source.envelope))
    lists = lists_read(data, effect.items, effect.event)
    source = replace(source, envelope=structs.replace(source.envelope, data=data), lists=lists)
    fields = {field.name: field for field in view.layout.fields}
    place = source.position
    return [
        Patch(
            str(row.key.evaluate(each)),
            source_id(source.topic, place.partition),
            Place(place.offset, number + each.index),
            {name: fields[name].canonical(read.evaluate(each)) for name, read in row.brings.items()},
        )
        for number, row in enumerate(effect.rows)
        for each in ([source] if effect.through is None else items_of(source, effect.through))
        if row.condition is None or row.condition.evaluate(each)
    ]


def is_deleted(row: State) -> bool:
    """Whether the row is deleted."""
    return bool(row.get(DELETED))


def finish(view: DeclaredView, key: str, row: State) -> dict[str, Any]:
    """The visible columns of a row, the key first."""
    return {view.key_name: key} | {name: shown.value(row) for name, shown in view.layout.shown.items()}


def states(view: TableView, sources: Iterable[Source]) -> dict[str, State]:
    """The state of every row after `sources`, including deleted rows, by key."""
    rows: dict[str, State] = {}
    for source in sources:
        for patch in view.layout.with_groups(lift(view, source), rows):
            view.layout.combine(rows.setdefault(patch.key, {}), patch.fields)
    return rows


def remaining(sources: Iterable[Source], tombstones: Mapping[tuple[int, str], int]) -> list[Source]:
    """The events that no later tombstone erases, which a replay folds.

    tombstones: the offset of the last one, by partition and key.
    """
    return [
        each
        for each in sources
        if each.position.offset > tombstones.get((each.position.partition, each.envelope.id), -1)
    ]


def fold(view: TableView, sources: Iterable[Source]) -> dict[str, dict[str, Any]]:
    """Every visible row after `sources`, by key."""
    return {key: finish(view, key, row) for key, row in states(view, sources).items() if not is_deleted(row)}
