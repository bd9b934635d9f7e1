"""The declaration of a table view: a row per key, each column a fold over events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.filled_fields import Claim
from headwater.eventlog.capturing.declaring import Captured
from headwater.eventlog.declaring import arguments_checked
from headwater.eventlog.envelope import Envelope
from headwater.eventlog.places import called_from
from headwater.eventlog.topics import EVENTS
from headwater.projections.durations import duration
from headwater.projections.errors import ViewDeclarationError
from headwater.projections.table import event_data
from headwater.projections.table.checks import (
    as_stores,
    check_columns,
    check_name,
    check_plan,
    check_shared,
    check_stores,
    check_types,
)
from headwater.projections.table.declared import described
from headwater.projections.table.declared_store import DeclaredStore
from headwater.projections.table.expiry import Expiry, check_expires
from headwater.projections.table.expressions import Expression, Field
from headwater.projections.table.fold_plan import FoldPlan
from headwater.projections.table.folds.fold import ByKey, Column, case_text, row_case
from headwater.projections.table.json_text import JsonForms
from headwater.projections.table.layout import Layout
from headwater.projections.table.lookups import Lookup, by_column
from headwater.projections.table.personal import (
    CopiedField,
    check_copied,
    check_found,
    check_readable,
    check_unmasked,
    check_uses,
    copied_fields,
    personal_columns,
    sealed_where_declared,
)
from headwater.projections.table.row_keys import Key, KeyParts, KeysByEvent, described_key
from headwater.projections.table.rows import RowClass, is_row
from headwater.projections.table.types import ColumnType
from headwater.projections.view import View

TEXT_OF_PARTS: Final = "key"
"""The column with the text of a key whose fields are columns, unless `key_name` names it."""


@arguments_checked(
    ViewDeclarationError,
    {
        "name": '"owners"',
        "key": '"owner"',
        "columns": '{"accounts": count(Opened)}',
        "stores": "(Postgres(),)",
    },
)
@dataclass(frozen=True)
class TableView(View):
    """A view with a row per key; registered by assigning it in a module of HEADWATER_MODULES.

    name: of the table, index and API path.
    version: change it with the declaration; a new version is a rebuild.
    doc: one line for users.

    Its rows:

    key: the field of every handled event that names the row, an `envelope(…)` text, or an `item(…)` of the list of
    `each` (then events without `each` have a field with that name). A field that is no text (an integer, a boolean, a
    date or a UUID) is a column too, beside the key, which is its text. A tuple of several fields: likewise, with their
    texts joined by "/". Or one of these by event, and a list of them for an event that changes several rows, one for
    each: `by_key(…)` is the event as it changes one of them.
    key_name: the name of the key column; "key" if fields of the key are columns too; else needed if it is not a field.
    columns: the visible columns; the key is one too, under `key_name`.
    deleted_by, restored_by: events that delete the row, and restore it; or Deleted(table) of one captured table: then
    the row is there while that table's row is.
    where: which events count, as a condition for each (or one for all); others make no patch. Of captured tables whose
    rows are counted, which rows do.
    each: by event, a list in it whose items make a patch each, with their index as the patch's number.

    Where they are:

    stores: where it is stored, as a tuple or one store; the first one answers queries.
    lookups: columns of other views' rows; they are read with a row, and not stored in it.

    Who reads them in the API:

    readable_by: by column, the claim of the caller that it must equal; a row of which a column differs does not exist
    for the caller. Empty: everybody with the scope of the view reads all rows.
    expires: by a column with a time or a date, how long after it a row exists for nobody, as in `{"seen_at": "30d"}`.

    This is what was written; `plan` is what follows from it. The rest fulfils `projections.view.View`.
    """

    name: str
    key: Key | KeysByEvent
    columns: Mapping[str, Column]
    stores: tuple[DeclaredStore, ...]
    version: int = 1
    deleted_by: tuple[type[Event] | ByKey, ...] = ()
    restored_by: tuple[type[Event] | ByKey, ...] = ()
    key_name: str = ""
    where: Expression | Mapping[type[Event] | RowClass | ByKey, Expression] = field(default_factory=dict)
    each: Mapping[type[Event], str] = field(default_factory=dict)
    doc: str = ""
    lookups: tuple[Lookup, ...] = ()
    readable_by: Mapping[str, Claim] = field(default_factory=dict)
    expires: Mapping[str, str] = field(default_factory=dict)

    place: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", called_from())
        object.__setattr__(self, "stores", as_stores(self.stores))
        is_named = bool(self.key_name)
        if not is_named and isinstance(self.key, str | tuple):
            object.__setattr__(self, "key_name", self.key if isinstance(self.key, str) else TEXT_OF_PARTS)
        try:
            self._check(is_named)
        except ValueError as error:
            raise ViewDeclarationError(self.name, str(error)) from error

    @cached_property
    def plan(self) -> FoldPlan:
        """Which events it reads, and what each changes in a row.

        Use it when all modules are loaded: the order of its events depends on which aggregates declare them.
        """
        return self._planned()

    @cached_property
    def layout(self) -> Layout:
        return self.plan.layout

    @cached_property
    def personal(self) -> frozenset[str]:
        return personal_columns(self.columns)

    def sealed_in(self, column: str, value: Any) -> list[str]:
        return sealed_where_declared(self._copied[column], value)

    @cached_property
    def _copied(self) -> Mapping[str, Sequence[CopiedField]]:
        return {name: copied_fields(self.columns[name]) for name in self.personal}

    @cached_property
    def expiry(self) -> Expiry | None:
        key = self.key if isinstance(self.key, tuple) else ()
        return next(
            (Expiry(name, duration(after), self.types[name], name in key) for name, after in self.expires.items()), None
        )

    @property
    def key_order(self) -> tuple[str, ...]:
        parts = self.plan.key_parts
        return (*parts, self.key_name) if len(parts) == 1 else (self.key_name,)

    @cached_property
    def json_forms(self) -> JsonForms:
        return self.plan.json_forms

    @property
    def tables(self) -> Mapping[str, RowClass]:
        return self.plan.tables

    @cached_property
    def topics(self) -> tuple[str, ...]:
        return (EVENTS, *self.tables)

    @cached_property
    def classes(self) -> tuple[type[Event] | type[Captured], ...]:
        captured = (table for table in self.tables.values() if issubclass(table, Captured))
        return (*captured, *(event for event in self.plan.events.values() if not is_row(event)))

    @cached_property
    def declaration(self) -> list[str]:
        parts = [self.tag, described_key(self.key), self.key_name]
        parts += [f"{name}={described(column)}" for name, column in sorted(self.columns.items())]
        parts += [store.declaration for store in self.stores]
        parts += [f"deleted by {case_text(event)}" for event in self.deleted_by]
        parts += [f"restored by {case_text(event)}" for event in self.restored_by]
        # with the types of events in place of captured tables, as folds have them: classes may be renamed
        where: object = self.where
        if isinstance(self.where, Mapping):
            where = {row_case(case): condition for case, condition in self.where.items()}
        parts += [f"where {described(where)}"] if self.where else []
        parts += [f"each {event.type}: {name}" for event, name in self.each.items()]
        # rows that are removed are not there again if they expire later than before
        expiry = self.expiry
        parts += [] if expiry is None or not expiry.is_final else [f"expires {expiry.column} {expiry.after}"]
        # if an older version of an event is read differently now, the rows differ too
        return parts + [
            f"past of {event.type}: {version}: {', '.join(changes)}"
            for event in self.plan.events.values()
            for version in range(1, event.version)
            if (changes := event.history.changes(version, self.plan.lifts[event].fields))
        ]

    def named(self, name: str) -> TableView:
        return replace(self, name=name, stores=tuple(store for store in self.stores if store.answers))

    def without_expiry(self) -> TableView:
        return replace(self, expires={})

    def reads(self, topic: str) -> bool:
        return topic in self.tables or (topic == EVENTS and self.plan.reads_events)

    def handles(self, event_type: str) -> bool:
        return self.plan.lift_of(event_type) is not None

    def key_fields(self, event: type[Event]) -> tuple[frozenset[str], ...]:
        return tuple(
            key.fields() if isinstance(key, Field | KeyParts) else frozenset() for key in self.plan.keys(event)
        )

    def rows_of(self, envelope: Envelope) -> tuple[str, ...]:
        return event_data.rows_of(self.plan, envelope)

    def _planned(self) -> FoldPlan:
        return FoldPlan(self.key, self.columns, self.deleted_by, self.restored_by, self.where, self.each)

    def _check(self, is_named: bool) -> None:
        """Raise ValueError if it is declared wrong. is_named: `key_name` is declared."""
        check_name(self.name)
        check_shared(self)
        check_types(self.key, self.columns, self.deleted_by, self.restored_by, self.where, self.each)
        if not self.key_name:
            raise ValueError('if the key is not a field, add a "key_name"')
        # not `self.plan`, which would keep the order of events although their aggregates may be declared later
        plan = self._planned()
        parts = list(plan.key_parts)
        if not is_named and self.key_name in parts:
            object.__setattr__(self, "key_name", TEXT_OF_PARTS)
        check_columns(
            [self.key_name, *parts, *self.columns, *(name for lookup in self.lookups for name in lookup.columns)]
        )
        for name in [self.key_name, *parts]:
            if name in self.columns:
                raise ValueError(f'the key "{name}" is already a column: remove it')
        if self.key_name in parts:
            raise ValueError(f'the text of its key needs a column of its own, not "{self.key_name}": set key_name="…"')
        check_copied(plan)
        check_plan(plan)
        check_found(plan)
        types = {self.key_name: ColumnType.TEXT, **plan.layout.types}
        looked_up = by_column(self.lookups, types)
        check_stores(self.stores, types)
        check_readable(self.readable_by, self.key_name, types, looked_up, plan.layout)
        check_unmasked(plan, self.readable_by)
        check_uses(self.personal, self.stores, types, self.lookups, self.readable_by)
        check_expires(self.expires, types, looked_up, self.stores)
