"""A monoid: a group of state fields, and their combination in Python, PostgreSQL and Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from projections.table.types import ENTRY_TYPES, SPARK_TYPES, ColumnType, canonical

State = dict[str, Any]
"""The state fields of one row, or of one patch, by name; a field that no event changed is absent or None."""


@dataclass(frozen=True, slots=True)
class StateField:
    """One stored field of a row. A hidden field's name starts with an underscore.

    entry: the fields of each entry, if the field is a list of entries (COUNTS, SKETCH and ENTRIES).
    """

    name: str
    type: ColumnType
    ordering: bool = False
    entry: tuple[StateField, ...] = ()

    @property
    def spark_type(self) -> str:
        """Its type in Spark SQL."""
        if not self.entry:
            return SPARK_TYPES[self.type]
        inner = ", ".join(f"`{each.name}`: {each.spark_type}" for each in self.entry)
        return f"array<struct<{inner}>>"

    @property
    def entry_type(self) -> str:
        """Its type in PostgreSQL if it is a field of an entry, which is JSON."""
        return ENTRY_TYPES[self.type]

    def canonical(self, value: Any) -> Any:
        """`value` in the form of patches and rows; in entries, nulls are left out."""
        if value is None or not self.entry:
            return canonical(value, self.type)
        return [
            {each.name: each.canonical(entry[each.name]) for each in self.entry if entry.get(each.name) is not None}
            for entry in value
        ]


class Monoid(Protocol):
    """A group of state fields that combine together."""

    @property
    def fields(self) -> tuple[StateField, ...]:
        """The fields, in a fixed order."""

    def combine(self, row: State, patch: State) -> None:
        """Combine `patch` into `row`, in place. Reads and writes only this monoid's fields; `patch` does not change."""

    def sql(self, row: str, patch: str) -> dict[str, str]:
        """PostgreSQL: the new value of each field from the aliases `row` and `patch` (which may hold nulls)."""

    def spark(self, lifted: Mapping[str, str]) -> dict[str, str]:
        """Spark SQL: the aggregate of each field over `lifted`, its expression for one event (null: unchanged)."""


@runtime_checkable
class Scalar(Monoid, Protocol):
    """A monoid of single values: the values of one event are almost a row."""

    def spark_alone(self, lifted: Mapping[str, str]) -> dict[str, str]:
        """Spark SQL: each field of a row of one event."""


@runtime_checkable
class Grouped(Monoid, Protocol):
    """A monoid of one field whose entries combine per key: Spark groups by these keys before it builds a row."""

    field: StateField

    @property
    def keys(self) -> tuple[StateField, ...]:
        """The fields that are the key of an entry."""

    def spark_entry(self, lifted: Mapping[str, str]) -> dict[str, str]:
        """Spark SQL: the aggregate of each other field of the entries with one key."""

    def spark_gather(self, entry: str, keys: str) -> str:
        """Spark SQL: the aggregate that collects the entries of a row; null entries belong to another field."""
