"""Rows as documents, for stores that combine in Python: visible columns, state fields, and the guard."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from headwater.projections.limits import BULK_ROWS
from headwater.projections.table.layout import DELETED, Shown
from headwater.projections.table.monoids import State, row_value
from headwater.projections.table.patch import Patch, Place
from headwater.projections.table.types import ColumnType
from headwater.projections.view import View

if TYPE_CHECKING:
    import pyarrow as pa

ALIKE: Final = frozenset(
    {
        ColumnType.TEXT,
        ColumnType.INTEGER,
        ColumnType.FLOAT,
        ColumnType.BOOLEAN,
        ColumnType.JSON,
        ColumnType.DATE,
        ColumnType.UUID,
    }
)
"""Types whose values are the same in rows and in Arrow, as those of decimals are."""
Guard = dict[str, Place]
"""The highest place that was applied to one row, by source partition."""


@dataclass(frozen=True)
class DocumentForm:
    """What documents need of a view; unlike a view, it can be pickled to executors.

    kinds: the type of every state field. columns: the visible columns besides the key, by name. exact: the type of each
    of them that has decimals or dates.
    """

    key_name: str
    kinds: Mapping[str, ColumnType]
    columns: Mapping[str, Shown]
    exact: Mapping[str, ColumnType]

    @classmethod
    def of(cls, view: View) -> DocumentForm:
        """The form of a view's documents."""
        kinds = {field.name: field.type for field in view.layout.fields}
        shown, types = view.layout.shown, view.layout.types
        exact = {name: types[name] for name in shown if types[name] is ColumnType.DATE or types[name].is_decimal}
        return cls(view.key_name, kinds, dict(shown), exact)

    def show(self, key: str, state: State) -> dict[str, Any]:
        """The visible columns, the key first."""
        row = {self.key_name: key}
        for name, shown in self.columns.items():
            row[name] = shown.value(state)
        return row

    def from_arrow(self, row: dict[str, Any]) -> tuple[str, State]:
        """The key and state of a row that the bulk job folded; the row becomes the state."""
        key = row.pop(self.key_name)
        for name, kind in self._converted:
            row[name] = row_value(row[name], kind)
        return key, row

    def chunks(self, rows: Iterable[pa.RecordBatch]) -> Iterator[list[tuple[str, State]]]:
        """The rows that the bulk job folded, as many at a time as a store writes in one request."""
        folded = (self.from_arrow(row) for batch in rows for row in batch.to_pylist())
        while chunk := list(islice(folded, BULK_ROWS)):
            yield chunk

    @cached_property
    def _converted(self) -> Sequence[tuple[str, ColumnType]]:
        """The state fields that have another form in Arrow: a call for each field of each row would cost more."""
        return [(name, kind) for name, kind in self.kinds.items() if kind not in ALIKE and not kind.is_decimal]


def is_deleted(state: State) -> bool:
    """Whether the row is deleted."""
    return bool(state.get(DELETED))


def take_new_patches(guard: Guard, patches: Iterable[Patch]) -> list[Patch]:
    """The patches that a row does not have yet; the guard is updated.

    A batch of a stream view, or a record, may be repeated, and then brings the same rows: they are taken again.
    """
    fresh = []
    for patch in patches:
        seen = guard.get(patch.source)
        if seen is None or patch.place > seen or (patch.is_whole and patch.place == seen):
            guard[patch.source] = patch.place
            fresh.append(patch)
    return fresh


def by_key(patches: Iterable[Patch]) -> dict[str, list[Patch]]:
    """The patches of each row, in order."""
    rows: dict[str, list[Patch]] = {}
    for patch in patches:
        rows.setdefault(patch.key, []).append(patch)
    return rows
