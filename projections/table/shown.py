"""The visible columns of a row: how each is computed from state fields.

These are sent to executors with a store's writer, so each is a small frozen value that does not refer to its view.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, Protocol

from headwater.projections.table.declared import storage_word
from headwater.projections.table.monoids.monoid import State
from headwater.projections.table.monoids.sketches import estimate
from headwater.projections.table.types import ColumnType

DELETED: Final = "_deleted"
"""State field that says whether a row, or a part of a row, is deleted."""
SINGLE: Final = "_value"
"""Field of an entry that has one value without a name."""


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
        return state.get(self.field)


@storage_word("Quotient")
@dataclass(frozen=True, slots=True)
class Quotient:
    """One sum over another; null if the second is 0 or absent."""

    numerator: str
    denominator: str

    def value(self, state: State) -> Any:
        total, number = (_number(state.get(name)) for name in (self.numerator, self.denominator))
        if total is None or not number:
            return None
        if isinstance(total, Decimal) or isinstance(number, Decimal):
            return float(Fraction(total) / Fraction(number))
        return total / number


def _number(total: int | str | None) -> int | Decimal | None:
    """A sum in the form of rows, as a number."""
    return Decimal(total) if isinstance(total, str) else total


@storage_word("Edge")
@dataclass(frozen=True, slots=True)
class Edge:
    """The lowest or highest number in a tally; null if it is empty."""

    field: str
    highest: bool

    def value(self, state: State) -> Any:
        held = [int(key) for key, number in (state.get(self.field) or {}).items() if number > 0]
        return (max if self.highest else min)(held, default=None)


@storage_word("KeptEdge")
@dataclass(frozen=True, slots=True)
class KeptEdge:
    """The lowest or highest value of this type in a tally; null if it is empty."""

    field: str
    highest: bool
    kind: ColumnType

    def value(self, state: State) -> Any:
        held = [key for key, number in (state.get(self.field) or {}).items() if number > 0]
        edge = max if self.highest else min
        if self.kind is ColumnType.INTEGER:
            return edge(map(int, held), default=None)
        if self.kind is ColumnType.FLOAT:
            return edge(map(float, held), default=None)
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
        entries = [each for each in state.get(self.field) or () if not each.get(DELETED)]
        if self.best_first:
            entries.reverse()
        if not self.names:
            return [each.get(SINGLE) for each in entries]
        return [{name: each.get(name) for name in self.names} for each in entries]
