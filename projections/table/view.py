"""The declaration of a table view: a row per key, each column a fold over events."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from commands.declaring.aggregate import Event
from commands.declaring.upcasting import lineage_text
from eventlog.capturing.declaring import Captured
from eventlog.topics import EVENTS
from projections.errors import ViewDeclarationError
from projections.table.conditions import must_be_condition
from projections.table.declared import described
from projections.table.declared_stores import Store
from projections.table.expressions import Expression, Field, FromEnvelope
from projections.table.folds.fold import EVERY, Case, Column, Fold, Ordering, event_of, folds_of
from projections.table.items import Item, ItemField, ItemIndex, LogPlace, items_read, items_required, list_in
from projections.table.layout import Layout, WrongColumn, arrange
from projections.table.lookups import Lookup, by_column
from projections.table.rows import Row, is_row, row_of
from projections.table.types import ColumnType, is_required, item_model

NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")
RESERVED = re.compile(r"ledger|generations|generation_numbers|live_views|.*__g\d+")
"""Names of Headwater's own tables, which a view cannot have."""


@dataclass(frozen=True)
class TableView:
    """A view with a row per key; registered by assigning it in a module of HEADWATER_MODULES.

    name: of the table, index and API path. version: change it with the declaration; a new version is a rebuild.
    key: the field of every handled event that names the row, an `envelope(…)` text, or an `item(…)` of the list of
    `each` (then events without `each` have a field with that name).
    columns: the visible columns; the key is one too, under `key_name`.
    stores: where it is stored; the first one answers queries.
    deleted_by, restored_by: events that delete the row, and restore it; or Deleted(table) of one captured table: then
    the row is there while that table's row is.
    key_name: the name of the key column; needed if `key` is not a field.
    where: which events count, as a condition for each (or one for all); others make no patch.
    each: by event, a list in it whose items make a patch each, with their index as the patch's number.
    lookups: columns of other views' rows; they are read with a row, and not stored in it.
    """

    name: str
    key: str | FromEnvelope | Item
    columns: Mapping[str, Column]
    stores: tuple[Store, ...]
    version: int = 1
    deleted_by: tuple[type[Event], ...] = ()
    restored_by: tuple[type[Event], ...] = ()
    key_name: str = ""
    where: Expression | Mapping[type[Event], Expression] = field(default_factory=dict)
    each: Mapping[type[Event], str] = field(default_factory=dict)
    doc: str = ""
    lookups: tuple[Lookup, ...] = ()
    layout: Layout = field(init=False)
    types: Mapping[str, ColumnType] = field(init=False)
    """The type of every visible stored column, the key first."""
    looked_up: Mapping[str, Lookup] = field(init=False)
    """The lookup of each looked-up column."""

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ViewDeclarationError(self.name, "invalid name: use a-z, 0-9 and _, at most 41 characters")
        if RESERVED.fullmatch(self.name):
            raise ViewDeclarationError(self.name, "this name is reserved by Headwater: use another name")
        if not self.key_name:
            if not isinstance(self.key, str):
                raise ViewDeclarationError(self.name, 'if the key is not a field, add a "key_name"')
            object.__setattr__(self, "key_name", self.key)
        for name in (self.key_name, *self.columns, *(name for lookup in self.lookups for name in lookup.columns)):
            if not NAME.fullmatch(name):
                raise ViewDeclarationError(self.name, f'"{name}" is not a column name: use a-z, 0-9 and _')
        if self.key_name in self.columns:
            raise ViewDeclarationError(self.name, f'the key "{self.key_name}" is already a column: remove it')
        self._check_rows()
        self._check_events()
        try:
            layout = arrange(self.columns, self._ordering(), self.deleted_by, self.restored_by)
        except WrongColumn as error:
            raise ViewDeclarationError(self.name, str(error)) from error
        object.__setattr__(self, "layout", layout)
        try:
            _check_items(self)
            if self.each and not item_kinds(self):
                raise ValueError("`each` goes through a list, but no column reads its items: use item()")
        except ValueError as error:
            raise ViewDeclarationError(self.name, str(error)) from error
        object.__setattr__(self, "types", {self.key_name: ColumnType.TEXT, **layout.types})
        try:
            object.__setattr__(self, "looked_up", by_column(self.lookups, self.types))
        except ValueError as error:
            raise ViewDeclarationError(self.name, str(error)) from error
        self._check_stores()

    @property
    def tag(self) -> str:
        """`name@version`, part of the keys of the view's patches."""
        return f"{self.name}@{self.version}"

    @property
    def events(self) -> Mapping[str, type[Event]]:
        """The event classes that it handles, by type; empty if it handles EVERY."""
        handled = (event_of(case) for fold in self.folds for case in fold.cases)
        marks = [*self.deleted_by, *(row_of(each.table) for each in self.deleted_by if issubclass(each, Row))]
        return {event.type: event for event in (*handled, *marks, *self.restored_by) if event is not None}

    @property
    def tables(self) -> Mapping[str, type[Captured]]:
        """The captured tables that it reads, by topic."""
        return {event.table.topic(): event.table for event in self.events.values() if issubclass(event, Row)}

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that it is made from."""
        return (EVENTS, *self.tables)

    @property
    def reads_events(self) -> bool:
        """Whether it handles events, and not only captured rows."""
        return self.handles_every or not all(map(is_row, self.events.values()))

    @property
    def handles_every(self) -> bool:
        """Whether it handles any event."""
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
        events = (event for event in self.events.values() if not is_row(event))
        return all(getattr(event, "id_field", None) == self.key for event in events)

    @property
    def per_event(self) -> bool:
        """Whether every event has its own row: the log has each id once."""
        has_rows = any(map(is_row, self.events.values()))
        return isinstance(self.key, FromEnvelope) and self.key.name == "id" and not self.each and not has_rows

    @property
    def fingerprint(self) -> str:
        """Digest of everything that determines the rows; if it changes, the version must change."""
        return hashlib.sha256("\n".join(self.declaration).encode()).hexdigest()[:16]

    @property
    def declaration(self) -> list[str]:
        """Everything that determines the rows, as lines to compare."""
        parts = [self.tag, described(self.key), self.key_name]
        parts += [f"{name}={described(column)}" for name, column in sorted(self.columns.items())]
        parts += [store.declaration for store in self.stores]
        parts += [f"deleted by {event.type}" for event in self.deleted_by]
        parts += [f"restored by {event.type}" for event in self.restored_by]
        parts += [f"where {described(self.where)}"] if self.where else []
        parts += [f"each {event.type}: {name}" for event, name in self.each.items()]
        # if an older version of an event is read differently now, the rows differ too
        return parts + [
            f"past of {event.type}: {version} {name}: {lineage_text(lineage)}"
            for event in self.events.values()
            for version in range(1, event.version)
            for name, lineage in sorted(event.history.changed(version, fields_read(self, event)).items())
        ]

    def keys_of(self, data: Mapping[str, Any], envelope: Any) -> tuple[str, ...]:
        """The rows that an event changes, from its data in the current version: a key for each of its patches."""
        event = self.events.get(envelope.type)
        if is_row(event):
            return (str(envelope.stream),)
        found = None if event is None else self.each.get(event)
        if isinstance(self.key, Item):
            items = [data] if found is None else list_in(data, found) or ()
            return tuple(str(each[self.key.name]) for each in items)
        key = getattr(envelope, self.key.name) if isinstance(self.key, FromEnvelope) else data[self.key]
        return (str(key),) * (1 if found is None else len(list_in(data, found) or ()))

    def key_expression(self, case: Case) -> Expression:
        """The key as an expression of this event."""
        if is_row(case):
            return FromEnvelope("stream")
        if isinstance(self.key, Item) and event_of(case) not in self.each:
            return Field(self.key.name)
        return Field(self.key) if isinstance(self.key, str) else self.key

    def condition(self, case: Case) -> Expression | None:
        """The condition whether this event counts; None if it always does."""
        if not isinstance(self.where, Mapping):
            return None if is_row(case) else self.where
        event = event_of(case)
        return None if event is None else self.where.get(event)

    def list_of(self, case: Case) -> str | None:
        """The list of this event whose items make a patch each; None if the event makes one."""
        event = event_of(case)
        return None if event is None else self.each.get(event)

    def store(self, name: str) -> Store | None:
        """The view's store with this name, or None if it has none."""
        return next((store for store in self.stores if store.name == name), None)

    def _ordering(self) -> Ordering:
        place: tuple[ColumnType, Expression] = (ColumnType.TEXT, LogPlace())
        if self.per_stream:
            place = (ColumnType.INTEGER, FromEnvelope("sequence"))
        ordering = Ordering((place,))
        return ordering.within((ColumnType.INTEGER, ItemIndex())) if self.each else ordering

    def _check_rows(self) -> None:
        """A captured table has current rows only, so nothing but current() and deleted_by can read it."""
        marks = {*self.deleted_by, *self.restored_by}
        named = {case for fold in self.folds for case in fold.cases} | marks
        named |= {*self.each, *(self.where if isinstance(self.where, Mapping) else ())}
        for case in named:
            if isinstance(case, type) and issubclass(case, Captured):
                raise ViewDeclarationError(
                    self.name,
                    f'"{case.__name__}" is a captured table, of which only current rows are known: read a value with '
                    f'current({case.__name__}, "…"), and let deleted_by=(Deleted({case.__name__}),) delete rows; what '
                    "needs earlier changes needs events",
                )
        if any(map(is_row, marks)) and (len(marks) > 1 or self.restored_by):
            raise ViewDeclarationError(
                self.name, "deleted_by=(Deleted(…),) stands alone: the row is there while that table's row is"
            )

    def _check_events(self) -> None:
        cases = {case for fold in self.folds for case in fold.cases} | {*self.deleted_by, *self.restored_by}
        for event in (*self.each, *(self.where if isinstance(self.where, Mapping) else ())):
            if event not in cases:
                raise ViewDeclarationError(self.name, f'no column reads "{event.type}", which `where` or `each` names')
        for case in cases:
            event, found, condition = event_of(case), self.list_of(case), self.condition(case)
            try:
                if condition is not None:
                    must_be_condition(condition, event)
                if isinstance(self.key, Item) and found not in (None, self.key.list):
                    raise ValueError(f'it is an item of "{self.key.list}", but `each` goes through "{found}"')
                kind = self.key_expression(case).kind(event)
                if event is not None and found is not None:
                    item_model(event, found)
            except ValueError as error:
                raise ViewDeclarationError(self.name, f"its key or condition: {error}") from error
            if kind is not ColumnType.TEXT:
                raise ViewDeclarationError(self.name, f"its key must be text, not {kind.value}")

    def _check_stores(self) -> None:
        if not self.stores:
            raise ViewDeclarationError(self.name, "it has no store: add stores=(Postgres(),)")
        for store in self.stores:
            named = [*getattr(store, "text", ()), *getattr(store, "facets", ())]
            named += [column for index in getattr(store, "indexes", ()) for column in index]
            unknown = [column for column in named if column not in self.types]
            if unknown:
                raise ViewDeclarationError(self.name, f'{store.name} names the unknown column "{unknown[0]}"')
            lists = [column for column in named if self.types[column] is ColumnType.LIST]
            if lists:
                raise ViewDeclarationError(self.name, f'{store.name} cannot index "{lists[0]}": it is a list')


def expressions_of(view: TableView, case: Case) -> list[Expression]:
    """Everything that the view reads of one event."""
    condition = view.condition(case)
    return [view.key_expression(case), *view.layout.lifted(case).values(), *([condition] if condition else [])]


def item_kinds(view: TableView) -> dict[str, ColumnType]:
    """What the view reads of the items of `each`, by name; raises ValueError if events differ."""
    kinds: dict[str, ColumnType] = {}
    for event, name in view.each.items():
        for read in items_read(expressions_of(view, event)):
            if read.list == name and kinds.setdefault(read.name, read.kind(event)) is not read.kind(event):
                raise ValueError(f'items have "{read.name}" of different types: read events of one type only')
    return kinds


def _check_items(view: TableView) -> None:
    """Raise ValueError if a column reads items of a list without `each`."""
    every: list[Case] = [EVERY] if view.handles_every else []
    for case in [*every, *view.events.values()]:
        for read in expressions_of(view, case):
            through = (view.list_of(case), getattr(read, "each", None))
            lost = [each for each in items_read([read]) if each.list not in through]
            if lost:
                name = lost[0].list
                raise ValueError(f'items of "{name}" are read, but nothing goes through them: use `each` or nested()')


def fields_read(view: TableView, event: type[Event]) -> tuple[str, ...]:
    """The fields of `event` that the view reads, including its key, sorted by name."""
    names = {name for read in expressions_of(view, event) for name in read.fields()}
    return tuple(sorted(names | ({view.each[event]} if event in view.each else set())))


def required_fields(view: TableView, event: type[Event]) -> tuple[str | ItemField, ...]:
    """Those of `fields_read` that every such event must have: the key, and those that may not be null or missing."""
    key = view.key_expression(event)
    found = view.list_of(event)
    always = key.fields() | ({found} if found else set())
    names = tuple(name for name in fields_read(view, event) if name in always or is_required(event, name))
    return (*names, *items_required(items_read(expressions_of(view, event)), event, key))
