"""A view folded in plain Python: the meaning of a declaration, and the oracle that every engine is checked against."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import orjson

from projections.expressions import Source
from projections.folds import EVERY, Case, Column, Edge, Ratio
from projections.monoids import Pick, State, ordering_key
from projections.reading import current_data, row_of
from projections.types import ColumnType
from projections.view import DELETED, TableView, lifted_cases


def lift(view: TableView, source: Source) -> State | None:
    """The patch that one event makes of its row: state fields by name.

    None where the view does not handle it, or cannot read it: then it becomes a dead letter (see `reading.problem`).
    """
    event = view.events.get(source.envelope.type)
    if row_of(view, source.envelope) is None:
        return None
    case: Case = EVERY if event is None else event
    source = replace(source, envelope=replace(source.envelope, data=current_data(event, source.envelope)))
    order = (
        source.envelope.sequence
        if view.per_stream
        else ordering_key(source.timestamp_ms, source.position.partition, source.position.offset)
    )
    patch: State = {}
    for name, read in lifted_cases(view, case).items():
        if isinstance(read, tuple):
            held = [(number, part.evaluate(source)) for number, part in read]
            patch[name] = [{"v": value, "n": number} for number, value in held if value is not None]
        else:
            patch[name] = read.evaluate(source)
    for each in view.layout.fields:
        if each.name in patch:
            patch[each.name] = canonical(patch[each.name], each.type)
    for monoid in view.layout.monoids:
        if isinstance(monoid, Pick) and any(field.name in patch for field in monoid.values):
            patch[monoid.order.name] = order
    return patch


def canonical(value: Any, kind: ColumnType) -> Any:
    """`value`, as JSON has it, in the one form that state fields keep: times in milliseconds, JSON as text."""
    match value:
        case str() if kind is ColumnType.TIME:
            time = datetime.fromisoformat(value)
            time = time if time.tzinfo else time.replace(tzinfo=UTC)
            return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case int() if kind is ColumnType.FLOAT:
            return float(value)
        case dict() | list() | bool() | int() | float() if kind is ColumnType.JSON:
            return orjson.dumps(value).decode()
        case _:
            return value


def combine(view: TableView, row: State, patch: State) -> None:
    """Put a patch into a row, in place."""
    for monoid in view.layout.monoids:
        monoid.combine(row, patch)


def is_deleted(row: State) -> bool:
    """Whether the row is out of sight."""
    return bool(row.get(DELETED))


def finish(view: TableView, key: str, row: State) -> dict[str, Any]:
    """The visible columns of a row, the key first."""
    return {view.key_name: key} | {name: _show(view, column, row) for name, column in view.columns.items()}


def fold(view: TableView, sources: Iterable[Source]) -> dict[str, dict[str, Any]]:
    """Every visible row after `sources`, by key."""
    rows: dict[str, State] = {}
    for source in sources:
        patch, key = lift(view, source), row_of(view, source.envelope)
        if patch is not None and key is not None:
            combine(view, rows.setdefault(key, {}), patch)
    return {key: finish(view, key, row) for key, row in rows.items() if not is_deleted(row)}


def _show(view: TableView, column: Column, row: State) -> Any:
    state_of = view.layout.state_of
    match column:
        case Ratio():
            total, number = row.get(state_of[id(column.numerator)]), row.get(state_of[id(column.denominator)])
            return total / number if total is not None and number else None
        case Edge():
            tally = row.get(state_of[id(column.of)]) or {}
            held = [int(key) for key, number in tally.items() if number > 0]
            return (max if column.highest else min)(held, default=None)
        case _:
            return row.get(state_of[id(column)])
