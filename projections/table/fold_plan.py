"""The compiled form of a table view: what follows from its declaration, computed once.

The reference, the folding processes and the live query start from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from headwater.commands.declaring.aggregate import Event, by_recorded_type
from headwater.commands.declaring.field_kinds import is_required
from headwater.eventlog.envelope import Envelope
from headwater.projections.table.expressions import Expression, Field, FromEnvelope, Value
from headwater.projections.table.folds.arranging import (
    Arrangement,
    ContributionKey,
    arrange,
    arrange_retracting,
    json_forms,
)
from headwater.projections.table.folds.fold import EVERY, ByKey, Case, Column, Fold, Ordering, event_of, folds_of
from headwater.projections.table.folds.single import Current
from headwater.projections.table.items import (
    FittingField,
    Item,
    ItemIndex,
    LogPlace,
    Required,
    as_list,
    items_read,
    items_required,
)
from headwater.projections.table.json_text import JsonForms
from headwater.projections.table.layout import Layout
from headwater.projections.table.row_keys import (
    Key,
    KeyExpression,
    KeyPart,
    KeyParts,
    KeysByEvent,
    key_expression,
    key_name_of,
    keys_of,
    of_event,
)
from headwater.projections.table.rows import CapturedRow, Deleted, RowClass, is_row, row_of
from headwater.projections.table.types import ColumnType, field_types, is_exact

BY_VERSION: Final = Ordering(((ColumnType.INTEGER, FromEnvelope("sequence")),))
"""The order of the events of one stream."""
BY_TIME: Final = Ordering(((ColumnType.TEXT, LogPlace()),))
"""The order of events of several streams."""


@dataclass(frozen=True, eq=False)
class RowLift:
    """What one event changes in one row.

    key: of the row.
    condition: whether the event counts (None: always).
    brings: by state field, in the layout's order; unchanged fields are absent.
    """

    key: KeyExpression
    condition: Expression | None
    brings: Mapping[str, Expression]

    @property
    def reads(self) -> list[Expression]:
        """Everything that is read of the event."""
        return [self.key, *self.brings.values(), *([] if self.condition is None else [self.condition])]


@dataclass(frozen=True, eq=False)
class Lift:
    """How one event becomes patches of a view.

    event: None: any that the view does not name.
    rows: what it changes in each of its rows, in this order; several if the view lists several keys for it.
    through: the list whose items make a patch each (None: the event makes one per row); then there is one of `rows`.
    """

    event: type[Event] | None
    rows: tuple[RowLift, ...]
    through: str | None

    @cached_property
    def reads(self) -> list[Expression]:
        """Everything that is read of the event."""
        return [read for row in self.rows for read in row.reads]

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The fields of the event that are read, including the key, sorted by name."""
        names = {name for read in self.reads for name in read.fields()}
        return tuple(sorted(names | ({self.through} if self.through else set())))

    @cached_property
    def required(self) -> tuple[Required, ...]:
        """Those of `fields` that every such event must have: the key, and those that may not be null or missing.

        Also those that may be null, but must not have a value that is none of their type.
        """
        if self.event is None:
            return ()
        keys = [row.key for row in self.rows]
        always = {name for key in keys for name in key.fields()} | ({self.through} if self.through else set())
        names = tuple(name for name in self.fields if name in always or is_required(self.event, name))
        kinds = field_types(self.event)
        fitting = (FittingField(name, kinds[name]) for name in self.fields if name not in names)
        exact = (field for field in fitting if is_exact(field.kind))
        return (*names, *exact, *items_required(items_read(self.reads), self.event, keys))

    def keys(self, data: Mapping[str, Any], envelope: Envelope) -> tuple[str, ...]:
        """The rows that an event changes, from its data in the current version: a key for each of its patches."""
        items = [data] if self.through is None else as_list(data.get(self.through)) or ()
        return tuple(str(_key(row.key, item, data, envelope)) for row in self.rows for item in items)


def _key(key: KeyExpression, item: Any, data: Mapping[str, Any], envelope: Envelope) -> Any:
    if isinstance(key, KeyParts):
        return key.of_data(data)
    if isinstance(key, ContributionKey):
        return key.of(envelope)
    if isinstance(key, Item):
        return item[key.name]
    return getattr(envelope, key.name) if isinstance(key, FromEnvelope) else data[key.name]


@dataclass(frozen=True, eq=False)
class FoldPlan:
    """The plan of a table view. The fields are those of the TableView."""

    key: Key | KeysByEvent
    columns: Mapping[str, Column]
    deleted_by: tuple[type[Event] | ByKey, ...]
    restored_by: tuple[type[Event] | ByKey, ...]
    where: Expression | Mapping[type[Event] | RowClass | ByKey, Expression]
    each: Mapping[type[Event], str]

    @cached_property
    def folds(self) -> tuple[Fold, ...]:
        """The distinct folds behind the columns, in the columns' order."""
        folds = {id(fold): fold for column in self.columns.values() for fold in folds_of(column)}
        return tuple(folds.values())

    @cached_property
    def cases(self) -> frozenset[Case]:
        """The events of the folds, and those that delete and restore rows."""
        return frozenset({case for fold in self.folds for case in fold.cases} | {*self.deleted_by, *self.restored_by})

    @cached_property
    def events(self) -> Mapping[str, type[Event]]:
        """The event classes that it handles, by type; of EVERY, those that have a key of their own."""
        handled = (event_of(case) for fold in self.folds for case in fold.cases)
        deleting = [event for declared in self.deleted_by if (event := event_of(declared)) is not None]
        marks = [*deleting, *(row_of(row_type.table) for row_type in deleting if issubclass(row_type, CapturedRow))]
        restoring = map(event_of, self.restored_by)
        keyed = map(event_of, self.key if self.handles_every and isinstance(self.key, Mapping) else ())
        gone = (Deleted(table) for table in self.counted_tables)
        return {event.type: event for event in (*handled, *marks, *restoring, *keyed, *gone) if event is not None}

    @cached_property
    def recorded(self) -> Mapping[str, type[Event]]:
        """The same by every type under which they were recorded, earlier ones too."""
        return by_recorded_type(self.events.values())

    @cached_property
    def counted_tables(self) -> tuple[RowClass, ...]:
        """The captured tables and views whose rows are counted or added up, so that their changes are taken back."""
        cases = [case for fold in self.folds if not isinstance(fold, Current) for case in fold.cases]
        rows = (case for case in cases if isinstance(case, type) and issubclass(case, CapturedRow))
        return tuple(dict.fromkeys(row.table for row in rows))

    @cached_property
    def handles_every(self) -> bool:
        """Whether it handles any event."""
        return any(EVERY in fold.cases for fold in self.folds)

    @cached_property
    def tables(self) -> Mapping[str, RowClass]:
        """The captured tables and other views whose rows it reads, by topic."""
        return {event.table.topic(): event.table for event in self.events.values() if issubclass(event, CapturedRow)}

    @cached_property
    def reads_events(self) -> bool:
        """Whether it handles events, and not only rows."""
        return self.handles_every or not all(map(is_row, self.events.values()))

    @cached_property
    def layout(self) -> Layout:
        """How its rows are stored and combined; raises WrongColumn."""
        return self._arrangement.layout

    @cached_property
    def json_forms(self) -> JsonForms:
        """The columns with JSON texts, and what these may be; the events' models must be complete."""
        return json_forms(self._arrangement)

    @cached_property
    def lifts(self) -> Mapping[Case, Lift]:
        """What each event that it handles changes; raises WrongColumn."""
        every: list[Case] = [EVERY] if self.handles_every else []
        return {case: self._lift(case) for case in [*every, *self.events.values()]}

    @cached_property
    def items(self) -> Mapping[str, ColumnType]:
        """What it reads of the items of `each`, by name; raises ValueError if events differ."""
        kinds: dict[str, ColumnType] = {}
        for event, name in self.each.items():
            for read in items_read(self._lift(event).reads):
                if read.list == name and kinds.setdefault(read.name, read.kind(event)) is not read.kind(event):
                    raise ValueError(f'items have "{read.name}" of different types: read events of one type only')
        return kinds

    def lift_of(self, event_type: str) -> Lift | None:
        """What an event of this type changes; None if the view does not handle it."""
        event = self.recorded.get(event_type)
        return self.lifts.get(EVERY if event is None else event)

    def keys(self, case: Case) -> tuple[KeyExpression, ...]:
        """The key of each row that this event changes, as an expression of it; none if it has none."""
        if isinstance(case, type) and issubclass(case, CapturedRow):
            return (ContributionKey(case.table.topic()) if self.counted_tables else FromEnvelope("stream"),)
        if isinstance(self.key, Mapping):
            return tuple(of_event(key, event_of(case)) for key in keys_of(self.key, case))
        if isinstance(self.key, Item) and event_of(case) not in self.each:
            return (Field(self.key.name),)
        return (of_event(key_expression(self.key), event_of(case)),)

    @cached_property
    def key_parts(self) -> tuple[str, ...]:
        """The fields of the key that are columns beside its text, if all events have the same fields."""
        if not isinstance(self.key, str):
            return self.key if isinstance(self.key, tuple) else ()
        # checks of the declaration need this before they have refused what is no event
        events = [event for case in self.cases if (event := event_of(case)) is not None and issubclass(event, Event)]
        named = (of_event(Field(self.key), event) for event in events if not is_row(event))
        return (self.key,) if any(isinstance(key, KeyParts) for key in named) else ()

    def condition(self, case: Case) -> Expression | None:
        """The condition whether this event counts; None if it always does."""
        if not isinstance(self.where, Mapping):
            return None if is_row(case) and not self.counted_tables else self.where
        if isinstance(case, ByKey) and case in self.where:
            return self.where[case]
        event = event_of(case)
        if event is not None and issubclass(event, CapturedRow):
            return None if event.deleted else self.where.get(event.table)
        return None if event is None else self.where.get(event)

    def list_of(self, case: Case) -> str | None:
        """The list of this event whose items make a patch each; None if the event makes one."""
        event = event_of(case)
        return None if event is None else self.each.get(event)

    @cached_property
    def _arrangement(self) -> Arrangement:
        if self.counted_tables and isinstance(self.key, str):
            return arrange_retracting(self.columns, self.key, self.counted_tables, self.condition)
        return self._arranged(self._ordering)

    @cached_property
    def _ordering(self) -> Ordering:
        """By version if all events of a row come from one stream.

        An event's `id_field` is known when its aggregate is declared, which may be in a module that is imported later:
        so this is asked only when the view is used, and never while it is declared.
        """
        events = [event for event in self.events.values() if not is_row(event)]
        if isinstance(self.key, Mapping):
            keys = [self.keys(case) for case in self._cases]
            if all(isinstance(key, FromEnvelope) and key.name in ("id", "stream") for some in keys for key in some):
                return BY_VERSION
            names = [[key_name_of(key) for key in some] for some in keys]
            ids = [[getattr(event_of(case), "id_field", None)] for case in self._cases]
            by_id = names == ids and not any(isinstance(key, FromEnvelope | Item) for key in self.key.values())
        elif isinstance(self.key, FromEnvelope):
            return BY_VERSION if self.key.name in ("id", "stream") else BY_TIME
        else:
            by_id = all(getattr(event, "id_field", None) == self.key for event in events)
        aggregates = {event.type.partition(".")[0] for event in events}
        return BY_VERSION if by_id and len(aggregates) <= 1 else BY_TIME

    def _arranged(self, ordering: Ordering, number: int | None = None) -> Arrangement:
        """number: of a row among several that an event changes, which may be one row."""
        if self.each and number is None:
            ordering = ordering.within((ColumnType.INTEGER, ItemIndex()))
        elif self.each or (isinstance(self.key, Mapping) and any(isinstance(key, list) for key in self.key.values())):
            ordering = ordering.within((ColumnType.INTEGER, Value(number or 0)))
        parts = {name: KeyPart({case: Field(name) for case in self._cases}) for name in self.key_parts}
        return arrange({**parts, **self.columns}, ordering, self.deleted_by, self.restored_by)

    def _lift(self, case: Case) -> Lift:
        event, keys = event_of(case), self.keys(case)
        if self.counted_tables:
            # whether the row counts is part of its contribution: one that no longer does must be taken back
            rows = tuple(RowLift(key, None, self._arrangement.lifted(case)) for key in keys)
        elif len(keys) > 1 and event is not None:
            cases = [ByKey(event, key_name_of(key)) for key in keys]
            rows = tuple(
                RowLift(key, self.condition(own), self._arranged(self._ordering, number).lifted(own))
                for number, (key, own) in enumerate(zip(keys, cases, strict=True))
            )
        else:
            rows = tuple(RowLift(key, self.condition(case), self._arrangement.lifted(case)) for key in keys)
        return Lift(event, rows, self.list_of(case))

    @property
    def _cases(self) -> list[Case]:
        """What it handles of `events`."""
        every: list[Case] = [EVERY] if self.handles_every else []
        return [*every, *(event for event in self.events.values() if not is_row(event))]
