"""What every kind of view has, and all that stores, loaders, generations, the API and `replay` know of one."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.filled_fields import Claim
from headwater.commands.declaring.observation import Observation
from headwater.eventlog.capturing.declaring import Captured
from headwater.eventlog.envelope import Envelope
from headwater.eventlog.personal.sealed_text import changed_texts
from headwater.projections.table.declared_store import DeclaredStore
from headwater.projections.table.expiry import Expiry
from headwater.projections.table.json_text import NO_TEXT, JsonForms
from headwater.projections.table.layout import Layout
from headwater.projections.table.lookups import Lookup, by_column
from headwater.projections.table.monoids import StateField
from headwater.projections.table.rows import RowClass
from headwater.projections.table.types import ColumnType


def generation_tag(tag: str, generation: int) -> str:
    """The tag of a generation that has a query of its own, from that of its view: `hourly_views@1.g2`."""
    return f"{tag}.g{generation}"


class View(ABC):
    """A declared view. `projections.kinds` has the kinds.

    How its patches come about is the matter of its kind: a patch names a row, and brings values of the layout's fields.

    name: of the table, index and API path. version: another declaration has another version. doc: one line for users.
    place: where it is declared, as `file:line`; empty if that is not known. key_name: of the key column. stores: the
    first one answers queries. lookups: what it looks up in other views. readable_by: by column, the claim that it
    equals in the rows that a caller of the API may read; empty: all rows. Each kind has these as its own fields.
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
        """Everything that determines the rows, as lines to compare; the tag first."""

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """How its rows are stored, and how patches combine with them."""

    @property
    @abstractmethod
    def topics(self) -> Sequence[str]:
        """The topics whose offsets are its position."""

    @property
    @abstractmethod
    def classes(self) -> Sequence[type[Event] | type[Captured]]:
        """The events and captured tables that it names, which a deployment must declare."""

    @property
    @abstractmethod
    def tables(self) -> Mapping[str, RowClass]:
        """By topic, the captured tables and other views of which a row changes only the row of the same key.

        If rows are counted, it changes its contribution, and the groups that it was in and is in now.
        """

    @abstractmethod
    def named(self, name: str) -> View:
        """The same view under another name, in the stores that answer queries: nobody follows its changes."""

    @abstractmethod
    def reads(self, topic: str) -> bool:
        """Whether records of this topic, other than heartbeats, can change its rows."""

    @abstractmethod
    def handles(self, event_type: str) -> bool:
        """Whether events of this type can change its rows."""

    @abstractmethod
    def key_fields(self, event: type[Event]) -> Sequence[Collection[str]]:
        """The fields of an event that are a key, for each row that it changes; no fields if the key is none of them.

        Empty if the event alone does not tell.
        """

    @abstractmethod
    def rows_of(self, envelope: Envelope) -> Sequence[str] | None:
        """Keys of the rows that the event may change, one per patch; None if the event alone does not tell."""

    @property
    def personal(self) -> frozenset[str]:
        """The stored columns whose values have ciphertexts, which only the API opens."""
        return frozenset()

    def sealed_in(self, column: str, value: Any) -> Sequence[str]:
        """The ciphertexts in a value of such a column, where its declaration says that values are personal.

        Of a view whose query makes the values as it likes: every sealed text.
        """
        found: list[str] = []
        changed_texts(value, found.append)
        return found

    @property
    def expiry(self) -> Expiry | None:
        """When its rows expire; None if they do not."""
        return None

    def without_expiry(self) -> Self:
        """The same view with rows that do not expire."""
        return self

    @property
    def key_order(self) -> Sequence[str]:
        """The columns in whose order rows are listed: the key, behind the value that it is the text of, if any."""
        return (self.key_name,)

    @cached_property
    def json_forms(self) -> JsonForms:
        """The columns whose values have JSON texts, in which answers have JSON; see `with_json`.

        Of a view whose query makes the JSON texts: what is one stands for its value.
        """
        return {name: NO_TEXT for name, kind in self.types.items() if kind is ColumnType.JSON}

    @property
    def key_columns(self) -> Sequence[str]:
        """The columns that identify a row; of a view that folds events, the key column."""
        return (self.key_name,)

    @property
    def queried(self) -> Sequence[type[Event] | type[Observation]]:
        """The classes of the records that a query of its own reads; none if it has no such query."""
        return ()

    @property
    def has_own_query(self) -> bool:
        """Whether a query of its own makes its rows; otherwise its events are folded."""
        return False

    @property
    def has_state(self) -> bool:
        """Whether that query has state, so that each generation has one of its own. Without state, all generations of a
        version share one, and any range of the log can be computed apart."""
        return False

    @property
    def every_s(self) -> float:
        """Seconds between two batches of its own query, at least; 0 if it does not say."""
        return 0.0

    def patch_tag(self, generation: int, tag: str = "") -> str:
        """Begins the keys of the patches that this generation takes. tag: of its version, if it is another one."""
        return tag or self.tag

    @property
    def tag(self) -> str:
        """`name@version`."""
        return f"{self.name}@{self.version}"

    @cached_property
    def types(self) -> Mapping[str, ColumnType]:
        """The type of every visible stored column, the key first."""
        return {self.key_name: ColumnType.TEXT, **self.layout.types}

    @cached_property
    def looked_up(self) -> Mapping[str, Lookup]:
        """The lookup of each looked-up column."""
        return by_column(self.lookups, self.types)

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the declaration; if it changes, the version must change."""
        return hashlib.sha256("\n".join(self.declaration).encode()).hexdigest()[:16]

    @cached_property
    def row_types(self) -> list[str]:
        """A line with the type of each state field and column, sorted; if they change, the version must change.

        They follow from the events' fields and aggregates, which the declaration only names.
        """
        fields = {field.name: field for field in self.layout.fields}
        columns = {name: kind.value for name, kind in self.types.items() if name not in fields}
        return sorted(
            [f"{name} {kind}" for name, kind in columns.items()] + [_typed(field) for field in fields.values()]
        )

    def store(self, name: str) -> DeclaredStore | None:
        """The view's store with this name, or None if it has none."""
        return next((store for store in self.stores if store.name == name), None)


def _typed(field: StateField) -> str:
    entry = f"({', '.join(map(_typed, field.entry))})" if field.entry else ""
    return f"{field.name} {field.type.value}{entry}"
