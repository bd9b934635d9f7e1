"""What a reader sees of a row: how each column follows from state fields, once for Python and once for PostgreSQL.

These go to executors with a store's writer, so each is a small frozen value and knows nothing of its view.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from projections.table.declared import storage_word
from projections.table.monoids.monoid import State
from projections.table.monoids.sketches import estimate

DELETED: Final = "_deleted"
"""State field that says whether a row, or a part of a row, is out of sight."""
SINGLE: Final = "_value"
"""Field of an entry that brings one value without a name."""


class Shown(Protocol):
    """How a visible column follows from the state fields of its row."""

    def value(self, state: State) -> Any:
        """The column's value in Python."""

    def sql(self, schema: str) -> str:
        """PostgreSQL: the column from the state's columns. No sub-queries: it is a generated column."""


@storage_word("Itself")
@dataclass(frozen=True, slots=True)
class Itself:
    """A state field, as it is. It is stored under the column's own name, so nothing is derived."""

    field: str

    def value(self, state: State) -> Any:
        return state.get(self.field)

    def sql(self, schema: str) -> str:
        return f'"{self.field}"'


@storage_word("Quotient")
@dataclass(frozen=True, slots=True)
class Quotient:
    """One sum over another; null where the second is 0 or absent."""

    numerator: str
    denominator: str

    def value(self, state: State) -> Any:
        total, number = state.get(self.numerator), state.get(self.denominator)
        return total / number if total is not None and number else None

    def sql(self, schema: str) -> str:
        return f'CASE WHEN "{self.denominator}" <> 0 THEN "{self.numerator}"::float8 / "{self.denominator}"::float8 END'


@storage_word("Edge")
@dataclass(frozen=True, slots=True)
class Edge:
    """The lowest or highest number that a tally holds; null where it holds none."""

    field: str
    highest: bool

    def value(self, state: State) -> Any:
        held = [int(key) for key, number in (state.get(self.field) or {}).items() if number > 0]
        return (max if self.highest else min)(held, default=None)

    def sql(self, schema: str) -> str:
        return f'"{schema}".tally_{"highest" if self.highest else "lowest"}("{self.field}")'


@storage_word("Held")
@dataclass(frozen=True, slots=True)
class Held:
    """How many different values a tally holds."""

    field: str

    def value(self, state: State) -> Any:
        return sum(number > 0 for number in (state.get(self.field) or {}).values())

    def sql(self, schema: str) -> str:
        return f'"{schema}".tally_size("{self.field}")'


@storage_word("Number")
@dataclass(frozen=True, slots=True)
class Number:
    """How many entries there are."""

    field: str

    def value(self, state: State) -> Any:
        return len(state.get(self.field) or ())

    def sql(self, schema: str) -> str:
        return f"""jsonb_array_length(coalesce("{self.field}", '[]')::jsonb)"""


@storage_word("Estimate")
@dataclass(frozen=True, slots=True)
class Estimate:
    """How many different values a sketch has seen."""

    field: str

    def value(self, state: State) -> Any:
        return estimate(state.get(self.field))

    def sql(self, schema: str) -> str:
        return f'"{schema}".sketch_estimate("{self.field}")'


@storage_word("Values")
@dataclass(frozen=True, slots=True)
class Values:
    """The entries as a list, in their order: of objects with these names, or of plain values where there are none.

    best_first: the other way round. Entries that are marked as deleted are left out.
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

    def sql(self, schema: str) -> str:
        backwards = "true" if self.best_first else "false"
        if not self.names:
            return f'"{schema}".entry_values("{self.field}", {backwards})'
        template: Mapping[str, None] = dict.fromkeys(self.names)
        return f"""\"{schema}".entry_objects("{self.field}", '{json.dumps(template)}', {backwards})"""
