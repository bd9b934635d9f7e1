"""What follows from a declaration in the same way for every kind of view."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Self

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.filled_fields import Claim
from headwater.commands.declaring.observation import Observation
from headwater.eventlog.personal.sealed_text import changed_texts
from headwater.projections.table.declared_store import DeclaredStore
from headwater.projections.table.expiry import Expiry
from headwater.projections.table.json_text import NO_TEXT, JsonForms
from headwater.projections.table.layout import Layout
from headwater.projections.table.lookups import Lookup, by_column
from headwater.projections.table.monoids import StateField
from headwater.projections.table.types import ColumnType


class DeclaredView(ABC):
    """Members of `projections.view.View` that kinds of views inherit.

    It has no fields: each kind has these as its own.
    """

    name: str
    version: int
    key_name: str
    stores: tuple[DeclaredStore, ...]
    lookups: tuple[Lookup, ...]
    readable_by: Mapping[str, Claim]
    doc: str
    place: str = ""

    @property
    @abstractmethod
    def declaration(self) -> list[str]:
        """See `View`."""

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """See `View`."""

    @property
    def personal(self) -> frozenset[str]:
        return frozenset()

    def sealed_in(self, column: str, value: Any) -> list[str]:
        """Of a view whose query makes the values of a column as it likes: every sealed text."""
        found: list[str] = []
        changed_texts(value, found.append)
        return found

    @property
    def expiry(self) -> Expiry | None:
        return None

    def without_expiry(self) -> Self:
        return self

    @property
    def key_order(self) -> Sequence[str]:
        return (self.key_name,)

    @cached_property
    def json_forms(self) -> JsonForms:
        """Of a view whose query makes the JSON texts: what is one stands for its value."""
        return {name: NO_TEXT for name, kind in self.types.items() if kind is ColumnType.JSON}

    @property
    def key_columns(self) -> tuple[str, ...]:
        return (self.key_name,)

    @property
    def queried(self) -> tuple[type[Event] | type[Observation], ...]:
        return ()

    @property
    def has_own_query(self) -> bool:
        return False

    @property
    def has_state(self) -> bool:
        return False

    @property
    def every_s(self) -> float:
        return 0.0

    def patch_tag(self, generation: int, tag: str = "") -> str:
        return tag or self.tag

    @property
    def tag(self) -> str:
        return f"{self.name}@{self.version}"

    @cached_property
    def types(self) -> Mapping[str, ColumnType]:
        return {self.key_name: ColumnType.TEXT, **self.layout.types}

    @cached_property
    def looked_up(self) -> Mapping[str, Lookup]:
        return by_column(self.lookups, self.types)

    @cached_property
    def fingerprint(self) -> str:
        return hashlib.sha256("\n".join(self.declaration).encode()).hexdigest()[:16]

    @cached_property
    def row_types(self) -> list[str]:
        fields = {field.name: field for field in self.layout.fields}
        columns = {name: kind.value for name, kind in self.types.items() if name not in fields}
        return sorted([f"{name} {kind}" for name, kind in columns.items()] + [_typed(each) for each in fields.values()])

    def store(self, name: str) -> DeclaredStore | None:
        return next((store for store in self.stores if store.name == name), None)


def _typed(field: StateField) -> str:
    entry = f"({', '.join(map(_typed, field.entry))})" if field.entry else ""
    return f"{field.name} {field.type.value}{entry}"
