"""The layout of a row: its state fields, how two states combine and differ, and how visible columns are computed.

Computed columns are sent to executors with a store's writer, so each is a small frozen value without its view.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any, Final, Protocol

from headwater.projections.table.declared import storage_word
from headwater.projections.table.json_text import SINGLE, JsonTexts
from headwater.projections.table.monoids import Monoid, State, StateField, estimate
from headwater.projections.table.patch import Patch, Retraction, contribution_key
from headwater.projections.table.types import ColumnType

DELETED: Final = "_deleted"
"""State field that says whether a row, or a part of a row, is deleted."""


def unsigned(value: Any) -> Any:
    """The value, and 0.0 for -0.0: some stores sort it before 0.0, some do not have it."""
    return value + 0.0 if value.__class__ is float else value


class Shown(Protocol):
    """How a visible column is computed from the state fields of its row."""

    def value(self, state: State) -> Any:
        """The column's value in Python."""


@storage_word("Itself")
@dataclass(frozen=True, slots=True)
class Itself:
    """A state field, unchanged. It is stored under the column's own name, so nothing is computed."""

    field: str

    def value(self, state: State) -> Any:
        return unsigned(state.get(self.field))


@storage_word("Quotient")
@dataclass(frozen=True, slots=True)
class Quotient:
    """One sum over another; null if the second is 0 or absent."""

    numerator: str
    denominator: str

    def value(self, state: State) -> Any:
        sums = (state.get(name) for name in (self.numerator, self.denominator))
        total, number = (Decimal(number) if isinstance(number, str) else number for number in sums)
        if total is None or not number:
            return None
        if isinstance(total, Decimal) or isinstance(number, Decimal):
            return float(Fraction(total) / Fraction(number))
        return unsigned(total / number)


@storage_word("Edge")
@dataclass(frozen=True, slots=True)
class Edge:
    """The lowest or highest value of this type in a tally; null if it is empty."""

    field: str
    highest: bool
    kind: ColumnType = ColumnType.INTEGER

    def value(self, state: State) -> Any:
        held = [key for key, number in (state.get(self.field) or {}).items() if number > 0]
        edge = max if self.highest else min
        if self.kind is ColumnType.INTEGER:
            return edge(map(int, held), default=None)
        if self.kind is ColumnType.FLOAT:
            return unsigned(edge(map(float, held), default=None))
        return edge(held, key=Decimal if self.kind.is_decimal else None, default=None)


@storage_word("Held")
@dataclass(frozen=True, slots=True)
class Held:
    """The number of different values in a tally."""

    field: str

    def value(self, state: State) -> Any:
        return sum(number > 0 for number in (state.get(self.field) or {}).values())


@storage_word("Number")
@dataclass(frozen=True, slots=True)
class Number:
    """The number of entries."""

    field: str

    def value(self, state: State) -> Any:
        return len(state.get(self.field) or ())


@storage_word("Estimate")
@dataclass(frozen=True, slots=True)
class Estimate:
    """The approximate number of different values in a sketch."""

    field: str

    def value(self, state: State) -> Any:
        return estimate(state.get(self.field))


@storage_word("Values")
@dataclass(frozen=True, slots=True)
class Values:
    """The entries as a list, in their order: objects with these names, or plain values if there are no names.

    best_first: in reverse order. Entries that are marked as deleted are left out.
    """

    field: str
    names: tuple[str, ...]
    best_first: bool = False

    def value(self, state: State) -> Any:
        entries = [entry for entry in state.get(self.field) or () if not entry.get(DELETED)]
        if self.best_first:
            entries.reverse()
        if not self.names:
            return [unsigned(entry.get(SINGLE)) for entry in entries]
        return [{name: unsigned(entry.get(name)) for name in self.names} for entry in entries]


@dataclass(frozen=True)
class Layout:
    """The layout of a row.

    monoids: the groups of state fields. shown: how each visible column is computed. types: of the visible columns.
    json_texts: the state fields whose texts Spark writes in another form than Python. retraction: of a view over rows
    of captured tables, whose changes take back what the rows contributed before.
    """

    monoids: tuple[Monoid, ...]
    shown: Mapping[str, Shown]
    types: Mapping[str, ColumnType]
    json_texts: JsonTexts = field(default_factory=dict)
    retraction: Retraction | None = None

    @cached_property
    def fields(self) -> tuple[StateField, ...]:
        """Every state field, in a fixed order."""
        return tuple(state_field for monoid in self.monoids for state_field in monoid.fields)

    @cached_property
    def derived(self) -> dict[str, Shown]:
        """The visible columns that are not state fields."""
        return {name: shown for name, shown in self.shown.items() if not isinstance(shown, Itself)}

    @cached_property
    def marks_deleted(self) -> bool:
        """Whether a state field says that a row is deleted."""
        return any(field.name == DELETED for field in self.fields)

    def patched_key(self, topic: str, key: str) -> str:
        """The key of the patches of a captured row. topic: of its table. key: the row's."""
        return key if self.retraction is None else contribution_key(topic, key)

    def with_groups(self, patches: list[Patch], rows: Mapping[str, State]) -> list[Patch]:
        """The patches, behind those of the groups that they change if they are of contributions; rows: as before."""
        return patches if self.retraction is None else [*self.retraction.patches(patches, rows), *patches]

    def combine(self, row: State, patch: State) -> None:
        """Combine a patch into a row, in place."""
        for monoid in self.monoids:
            monoid.combine(row, patch)


Differing = tuple[State | None, State | None]
"""The values of the fields in which two states of a row differ, in each; None: there is no such row."""


def difference(
    ours: State | None,
    theirs: State | None,
    ignored: Set[str] = frozenset(),
    *,
    forgets_deleted: bool = False,
) -> Differing | None:
    """How two states differ; None if they are equal.

    ignored: fields that do not count. forgets_deleted: the log may no longer have a row that was
    deleted, as that of a captured table does once its topic is compacted.
    """
    if ours is None or theirs is None:
        present = theirs if ours is None else ours
        is_same = present is None or (forgets_deleted and bool(present.get(DELETED)))
        return None if is_same else (ours, theirs)
    if ours == theirs:
        return None
    every = sorted({*ours, *theirs} - ignored)
    names = [name for name in every if ours.get(name) != theirs.get(name)]
    return ({name: ours.get(name) for name in names}, {name: theirs.get(name) for name in names}) if names else None
