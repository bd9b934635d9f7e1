"""What a monoid is: a group of state fields, and their combination for Python, PostgreSQL and Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from projections.table.types import ENTRY_TYPES, SPARK_TYPES, ColumnType, canonical

State = dict[str, Any]
"""The state fields of one row, or of one patch, by name; what no event touched is absent or None."""


@dataclass(frozen=True, slots=True)
class StateField:
    """One stored field of a row. A hidden field's name starts with an underscore.

    entry: the fields of each entry, where the field is a list of them (COUNTS, SKETCH and ENTRIES).
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
        """Its type in PostgreSQL where it is a field of an entry, which is JSON."""
        return ENTRY_TYPES[self.type]

    def canonical(self, value: Any) -> Any:
        """`value` in the one form that patches and rows keep; of entries, what is null is left out."""
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
        """Put `patch` into `row`, in place. Only this monoid's fields are read and written; `patch` stays as it is."""

    def sql(self, row: str, patch: str) -> dict[str, str]:
        """PostgreSQL: the new value of each field from the aliases `row` and `patch` (which may hold nulls)."""

    def spark(self, lifted: Mapping[str, str]) -> dict[str, str]:
        """Spark SQL: the aggregate of each field over `lifted`, its expression for one event (null: untouched)."""


@runtime_checkable
class Scalar(Monoid, Protocol):
    """A monoid of single values: what one event brings is nearly the row already."""

    def spark_alone(self, lifted: Mapping[str, str]) -> dict[str, str]:
        """Spark SQL: each field of a row that one event makes alone."""


@runtime_checkable
class Grouped(Monoid, Protocol):
    """A monoid of one field whose entries combine key by key: Spark groups by these keys before it gathers a row."""

    field: StateField

    @property
    def keys(self) -> tuple[StateField, ...]:
        """The fields of an entry that name it."""

    def spark_entry(self, lifted: Mapping[str, str]) -> dict[str, str]:
        """Spark SQL: the aggregate of each other field of the entries of one key."""

    def spark_gather(self, entry: str, keys: str) -> str:
        """Spark SQL: the aggregate that puts the entries of a row together; null ones are of another field."""
