"""Tallies: the number of times that each value is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headwater.projections.table.monoids.monoid import State, StateField
from headwater.projections.table.types import ColumnType


def tally_field(name: str, kind: ColumnType) -> StateField:
    """The state field of a tally of values of this type."""
    entry = (StateField("v", kind), StateField("n", ColumnType.INTEGER))
    return StateField(name, ColumnType.COUNTS, entry=entry)


@dataclass(frozen=True, slots=True)
class Tally:
    """The number of times that each value is there: `{"350000": 2}`; a value with 0 is dropped.

    Values can be removed, so a minimum over it rises again. It grows with the number of distinct values. A patch has
    `[{"v": 350000, "n": 1}, …]`, a row has the object; `combine` accepts both.
    """

    field: StateField

    @property
    def fields(self) -> tuple[StateField, ...]:
        return (self.field,)

    @property
    def keys(self) -> tuple[StateField, ...]:
        return self.field.entry[:1]

    def combine(self, row: State, patch: State) -> None:
        theirs = patch.get(self.field.name)
        if theirs is None:
            return
        held = dict(row.get(self.field.name) or {})
        for key, number in _entries(theirs):
            held[key] = held.get(key, 0) + number
        row[self.field.name] = {key: number for key, number in held.items() if number}


def _entries(tally: dict[str, int] | list[dict[str, Any]]) -> list[tuple[str, int]]:
    if isinstance(tally, dict):
        return list(tally.items())
    return [(str(entry["v"]), entry["n"]) for entry in tally]


def tally_key(value: Any, kind: ColumnType) -> str:
    """The key of a value of this type, in the form of rows: equal values have one key."""
    return repr(float(value) or 0.0) if kind is ColumnType.FLOAT else str(value)  # -0.0 equals 0.0
