"""The declaration of a table view: a row per key, each column a fold over events."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from commands.aggregate import Event
from projections.errors import ViewDeclarationError
from projections.expressions import Expression, Field, FromEnvelope, Value
from projections.folds import (
    EVERY,
    Bound,
    Case,
    Column,
    Edge,
    Fold,
    Latest,
    Members,
    Ratio,
    Total,
    folds_of,
    lifted_type,
)
from projections.monoids import Extreme, Monoid, Pick, StateField, Sum, Tally
from projections.types import ColumnType, is_required

NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")
RESERVED = re.compile(r"ledger|generations|generation_numbers|live_views|.*__g\d+")
"""Names of Headwater's own tables, beside which a view's table stands."""
DELETED = "_deleted"


@dataclass(frozen=True)
class Postgres:
    """The view is a table of this name. `indexes`: columns of each secondary index."""

    indexes: tuple[tuple[str, ...], ...] = ()
    name = "postgres"


@dataclass(frozen=True)
class Elasticsearch:
    """The view is an index. `text`: columns for full-text search; `facets`: columns to count by."""

    text: tuple[str, ...] = ()
    facets: tuple[str, ...] = ()
    name = "elasticsearch"


@dataclass(frozen=True)
class Cache:
    """The view is a Valkey hash for each key: found by key only."""

    name = "valkey"


Store = Postgres | Elasticsearch | Cache


@dataclass(frozen=True)
class Layout:
    """How a view's row is stored: groups of state fields, and where each fold's values are among them."""

    monoids: tuple[Monoid, ...]
    state_of: Mapping[int, str]
    """Name of the state field that holds a fold's value, by the fold's identity."""

    @property
    def fields(self) -> tuple[StateField, ...]:
        """Every state field, in a fixed order."""
        return tuple(each for monoid in self.monoids for each in monoid.fields)


@dataclass(frozen=True)
class TableView:
    """A view with a row per key; registered by having a name in `projections.views` or in HEADWATER_MODULES.

    name: of the table, index and API path. version: change it with the declaration; a new version is a rebuild.
    key: the field that every handled event has and that names the row, or an `envelope(…)` text.
    columns: the visible columns; the key is one too, under `key_name`.
    stores: where it lives; the first answers queries.
    deleted_by, restored_by: events that take the row out of sight, and bring it back.
    key_name: the name of the key column; needed where `key` is no field.
    """

    name: str
    key: str | FromEnvelope
    columns: Mapping[str, Column]
    stores: tuple[Store, ...]
    version: int = 1
    deleted_by: tuple[type[Event], ...] = ()
    restored_by: tuple[type[Event], ...] = ()
    key_name: str = ""
    doc: str = ""
    layout: Layout = field(init=False)
    types: Mapping[str, ColumnType] = field(init=False)
    """The type of every visible column, the key first."""

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ViewDeclarationError(self.name, "a name is of a-z, 0-9 and _, at most 41 characters")
        if RESERVED.fullmatch(self.name):
            raise ViewDeclarationError(self.name, "this name is Headwater's own: choose another")
        if not self.key_name:
            if not isinstance(self.key, str):
                raise ViewDeclarationError(self.name, 'a key from the envelope needs a "key_name"')
            object.__setattr__(self, "key_name", self.key)
        for name in (self.key_name, *self.columns):
            if not NAME.fullmatch(name):
                raise ViewDeclarationError(self.name, f'"{name}" is no column name: use a-z, 0-9 and _')
        if self.key_name in self.columns:
            raise ViewDeclarationError(self.name, f'the key "{self.key_name}" is a column already: leave it out')
        self._check_key()
        object.__setattr__(self, "layout", self._layout())
        object.__setattr__(self, "types", {self.key_name: ColumnType.TEXT, **self._column_types()})
        self._check_stores()

    @property
    def tag(self) -> str:
        """`name@version`: what the view's patches are keyed by."""
        return f"{self.name}@{self.version}"

    @property
    def events(self) -> Mapping[str, type[Event]]:
        """The event classes that it handles, by type; empty where it handles EVERY."""
        handled = [case for fold in self.folds for case in fold.cases if case is not EVERY]
        return {case.type: case for case in (*handled, *self.deleted_by, *self.restored_by) if isinstance(case, type)}

    @property
    def handles_every(self) -> bool:
        """Whether any event at all makes a row of it."""
        return any(EVERY in fold.cases for fold in self.folds)

    @property
    def folds(self) -> tuple[Fold, ...]:
        """The distinct folds behind the columns, in the columns' order."""
        found = {id(fold): fold for column in self.columns.values() for fold in folds_of(column)}
        return tuple(found.values())

    @property
    def per_stream(self) -> bool:
        """Whether all events of a row come from one stream, so that its version orders them."""
        if isinstance(self.key, FromEnvelope):
            return self.key.name in ("id", "stream")
        return all(getattr(event, "id_field", None) == self.key for event in self.events.values())

    @property
    def fingerprint(self) -> str:
        """Digest of all that decides the rows: a change needs a new version."""
        return hashlib.sha256("\n".join(self.declaration).encode()).hexdigest()[:16]

    @property
    def declaration(self) -> list[str]:
        """All that decides the rows, as lines to compare."""
        parts = [self.tag, repr(self.key), self.key_name]
        parts += [f"{name}={_describe(column)}" for name, column in sorted(self.columns.items())]
        parts += [f"{store}" for store in self.stores]
        parts += [f"deleted by {event.type}" for event in self.deleted_by]
        parts += [f"restored by {event.type}" for event in self.restored_by]
        # where an older version of an event means something else now, the rows are others too
        return parts + [
            f"past of {event.type}: {version} {name}: {lineage!r}"
            for event in self.events.values()
            for version in range(1, event.version)
            for name, lineage in sorted(event.history.changed(version, fields_read(self, event)).items())
        ]

    def key_of(self, data: Mapping[str, Any], envelope: Any) -> str:
        """The row that an event belongs to, from its data and envelope."""
        return str(getattr(envelope, self.key.name) if isinstance(self.key, FromEnvelope) else data[self.key])

    def key_expression(self) -> Expression:
        """The key as an expression."""
        return self.key if isinstance(self.key, FromEnvelope) else Field(self.key)

    def store(self, name: str) -> Store | None:
        """The view's store of this name, or None where it does not live there."""
        return next((store for store in self.stores if store.name == name), None)

    def _check_key(self) -> None:
        for case in (*(case for fold in self.folds for case in fold.cases), *self.deleted_by, *self.restored_by):
            try:
                kind = self.key_expression().kind(case if isinstance(case, type) else None)
            except ValueError as error:
                raise ViewDeclarationError(self.name, f"its key: {error}") from error
            if kind is not ColumnType.TEXT:
                raise ViewDeclarationError(self.name, f"its key must be text, not {kind.value}")

    def _layout(self) -> Layout:
        """Folds into monoids; `last`s (or `first`s) over the same events share one ordering key."""
        order_type = ColumnType.INTEGER if self.per_stream else ColumnType.TEXT
        names = {id(column): name for name, column in self.columns.items() if not isinstance(column, Edge)}
        picks: dict[tuple[bool, frozenset[Case]], list[StateField]] = {}
        monoids: list[Monoid] = []
        state_of: dict[int, str] = {}
        for number, fold in enumerate(self.folds):
            kind = self._lifted_type(fold, names.get(id(fold), "a derived column"))
            name = names.get(id(fold), f"_state{number}")
            state_of[id(fold)] = name
            match fold:
                case Latest():
                    picks.setdefault((fold.highest, frozenset(fold.cases)), []).append(StateField(name, kind))
                case Total():
                    monoids.append(Sum(StateField(name, kind)))
                case Bound():
                    monoids.append(Extreme(StateField(name, kind), fold.highest))
                case Members():
                    state_of[id(fold)] = f"_state{number}"
                    monoids.append(Tally(StateField(f"_state{number}", ColumnType.COUNTS)))
        for number, ((highest, _), fields) in enumerate(picks.items()):
            order = StateField(f"_order{number}", order_type, ordering=True)
            monoids.append(Pick(order, tuple(fields), highest))
        if self.deleted_by:
            order = StateField("_order_deleted", order_type, ordering=True)
            monoids.append(Pick(order, (StateField(DELETED, ColumnType.BOOLEAN),), highest=True))
        return Layout(tuple(monoids), state_of)

    def _lifted_type(self, fold: Fold, column: str) -> ColumnType:
        try:
            return lifted_type(fold)
        except ValueError as error:
            raise ViewDeclarationError(self.name, f'column "{column}": {error}') from error

    def _column_types(self) -> dict[str, ColumnType]:
        kinds = {}
        for name, column in self.columns.items():
            if isinstance(column, Members):
                raise ViewDeclarationError(
                    self.name, f'column "{name}" shows members: wrap it in lowest() or highest()'
                )
            kind = lifted_type(folds_of(column)[0])
            kinds[name] = ColumnType.FLOAT if isinstance(column, Ratio) else kind
        return kinds

    def _check_stores(self) -> None:
        if not self.stores:
            raise ViewDeclarationError(self.name, "it lives nowhere: give it stores=(Postgres(),)")
        for store in self.stores:
            named = [*getattr(store, "text", ()), *getattr(store, "facets", ())]
            named += [column for index in getattr(store, "indexes", ()) for column in index]
            unknown = [column for column in named if column not in self.types]
            if unknown:
                raise ViewDeclarationError(self.name, f'{store.name} names the unknown column "{unknown[0]}"')


def lifted_cases(view: TableView, event: Case) -> dict[str, Any]:
    """What one event brings to each state field, as expressions; ordering keys are left to the engine.

    A Tally field has a tuple of (number, expression). Fields that the event does not touch are absent.
    """
    lifted: dict[str, Any] = {}
    for fold in view.folds:
        read = fold.cases.get(event, fold.cases.get(EVERY))
        if read is not None:
            lifted[view.layout.state_of[id(fold)]] = read
    if event in view.deleted_by or event in view.restored_by:
        lifted[DELETED] = Value(event in view.deleted_by)
    return lifted


def fields_read(view: TableView, event: type[Event]) -> tuple[str, ...]:
    """The fields of `event` that the view reads, its key among them, in order of name."""
    reads: list[Expression] = [view.key_expression()]
    for read in lifted_cases(view, event).values():
        reads += [part for _, part in read] if isinstance(read, tuple) else [read]
    return tuple(sorted({name for read in reads for name in read.fields()}))


def required_fields(view: TableView, event: type[Event]) -> tuple[str, ...]:
    """Those of `fields_read` that every such event must have: the key, and what may be neither null nor left out."""
    return tuple(name for name in fields_read(view, event) if name == view.key or is_required(event, name))


def _describe(column: Column) -> str:
    """A text that changes whenever the column's meaning does."""
    return "; ".join(
        f"{column.__class__.__name__} {getattr(column, 'highest', '')} {fold.__class__.__name__} "
        f"{getattr(fold, 'highest', '')} "
        + ", ".join(sorted(f"{getattr(case, 'type', case)}: {read!r}" for case, read in fold.cases.items()))
        for fold in folds_of(column)
    )
