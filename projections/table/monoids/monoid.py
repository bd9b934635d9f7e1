"""A monoid: a group of state fields, and their combination."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from headwater.projections.table.types import SPARK_TYPES, ColumnType

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
        """The type of its values in Spark SQL, if it has no entries."""
        return SPARK_TYPES[self.type]


class Monoid(Protocol):
    """A group of state fields that combine together."""

    @property
    def fields(self) -> tuple[StateField, ...]:
        """The fields, in a fixed order."""

    def combine(self, row: State, patch: State) -> None:
        """Combine `patch` into `row`, in place. Reads and writes only this monoid's fields; `patch` does not change."""


@runtime_checkable
class Entries(Monoid, Protocol):
    """A monoid of one field whose patches are lists: the entries of several patches together are a patch."""

    field: StateField

    @property
    def keys(self) -> tuple[StateField, ...]:
        """The fields that are the key of an entry."""
