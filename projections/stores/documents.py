"""Rows as documents, for stores that combine in Python: what is shown, what is kept, what has been applied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from projections.folds import Column, Edge, Ratio
from projections.monoids import State
from projections.stores.store import Patch, Place
from projections.types import ColumnType
from projections.view import DELETED, TableView

Guard = dict[int, Place]
"""The highest place applied to one row, by source partition."""


@dataclass(frozen=True)
class Shown:
    """How a visible column follows from state fields: itself (one field), a ratio (two), or the edge of a tally."""

    name: str
    fields: tuple[str, ...]
    highest: bool | None = None
    """Of a tally's edge; None for the others."""

    def value(self, state: State) -> Any:
        """The column's value; equal to that of `projections.reference.finish`."""
        if self.highest is not None:
            held = [int(value) for value, number in (state.get(self.fields[0]) or {}).items() if number > 0]
            return (max if self.highest else min)(held, default=None)
        if len(self.fields) == 2:
            total, number = (state.get(field) for field in self.fields)
            return total / number if total is not None and number else None
        return state.get(self.fields[0])


@dataclass(frozen=True)
class DocumentForm:
    """What of a view a document needs; unlike the view itself it can be pickled to executors.

    kinds: the type of every state field. columns: what is shown beside the key.
    """

    key_name: str
    kinds: Mapping[str, ColumnType]
    columns: tuple[Shown, ...]

    @classmethod
    def of(cls, view: TableView) -> DocumentForm:
        """The form of a view's documents."""
        kinds = {field.name: field.type for field in view.layout.fields}
        return cls(view.key_name, kinds, tuple(_shown(view, name, column) for name, column in view.columns.items()))

    def show(self, key: str, state: State) -> dict[str, Any]:
        """The visible columns, the key first."""
        return {self.key_name: key} | {column.name: column.value(state) for column in self.columns}

    def from_arrow(self, row: Mapping[str, Any]) -> tuple[str, State]:
        """The key and state of a row that the bulk job folded."""
        return row[self.key_name], {name: _from_arrow(row[name], kind) for name, kind in self.kinds.items()}


def is_deleted(state: State) -> bool:
    """Whether the row is out of sight."""
    return bool(state.get(DELETED))


def take_unguarded(guard: Guard, patches: Iterable[Patch]) -> list[Patch]:
    """The patches that a row has not yet; the guard takes them in."""
    fresh = []
    for patch in patches:
        seen = guard.get(patch.source)
        if seen is None or patch.place > seen:
            guard[patch.source] = patch.place
            fresh.append(patch)
    return fresh


def guard_to_json(guard: Guard) -> dict[str, list[int]]:
    """`{"<source partition>": [offset, number]}`."""
    return {str(source): list(place) for source, place in guard.items()}


def guard_from_json(found: Mapping[str, list[int]] | None) -> Guard:
    """The guard in this JSON; empty where there is none."""
    return {int(source): Place(*place) for source, place in (found or {}).items()}


def by_key(patches: Iterable[Patch]) -> dict[str, list[Patch]]:
    """The patches of each row, in order."""
    rows: dict[str, list[Patch]] = {}
    for patch in patches:
        rows.setdefault(patch.key, []).append(patch)
    return rows


def _shown(view: TableView, name: str, column: Column) -> Shown:
    state_of = view.layout.state_of
    match column:
        case Ratio():
            return Shown(name, (state_of[id(column.numerator)], state_of[id(column.denominator)]))
        case Edge():
            return Shown(name, (state_of[id(column.of)],), column.highest)
        case _:
            return Shown(name, (state_of[id(column)],))


def _from_arrow(value: Any, kind: ColumnType) -> Any:
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case list() if kind is ColumnType.COUNTS:
            return {str(each["v"]): each["n"] for each in value if each["n"]}
        case {"lat": None} | {"lon": None}:
            return None
        case _:
            return value
