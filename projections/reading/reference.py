"""Folds a view patch by patch, in memory: what every engine and store is checked against."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headwater.projections.reading.reader import lift
from headwater.projections.table.declared_view import DeclaredView
from headwater.projections.table.expressions import Source
from headwater.projections.table.layout import DELETED
from headwater.projections.table.monoids import State
from headwater.projections.table.view import TableView

__all__ = ["finish", "fold", "is_deleted", "lift", "remaining", "states"]


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
