"""A view folded in plain Python: the meaning of a declaration, and the oracle that every engine is checked against."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from projections.expressions import Source
from projections.folds import EVERY, Case, Column, Edge, Ratio
from projections.monoids import Pick, State, ordering_key
from projections.view import DELETED, TableView, lifted_cases


def lift(view: TableView, source: Source) -> State | None:
    """The patch that one event makes of its row: state fields by name; None where the view does not handle it."""
    case: Case | None = view.events.get(source.envelope.type)
    if case is None:
        if not view.handles_every:
            return None
        case = EVERY
    order = (
        source.envelope.sequence
        if view.per_stream
        else ordering_key(source.timestamp_ms, source.position.partition, source.position.offset)
    )
    patch: State = {}
    for name, read in lifted_cases(view, case).items():
        if isinstance(read, tuple):
            patch[name] = [{"v": part.evaluate(source), "n": number} for number, part in read]
        else:
            patch[name] = read.evaluate(source)
    for monoid in view.layout.monoids:
        if isinstance(monoid, Pick) and any(field.name in patch for field in monoid.values):
            patch[monoid.order.name] = order
    return patch


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
        patch = lift(view, source)
        if patch is not None:
            combine(view, rows.setdefault(view.key_of(source.envelope.data, source.envelope), {}), patch)
    return {key: finish(view, key, row) for key, row in rows.items() if not is_deleted(row)}


def _show(view: TableView, column: Column, row: State) -> Any:
    state_of = view.layout.state_of
    match column:
        case Ratio():
            total, number = row.get(state_of[id(column.numerator)]), row.get(state_of[id(column.denominator)])
            return total / number if total is not None and number else None
        case Edge():
            held = [int(key) for key in row.get(state_of[id(column.of)]) or {}]
            return (max if column.highest else min)(held, default=None)
        case _:
            return row.get(state_of[id(column)])
