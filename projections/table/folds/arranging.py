"""Arranges columns in a row: folds become monoids, and each event contributes to their fields, some of them JSON texts.

Aggregates over rows have contributions and groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pydantic import BaseModel

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.field_kinds import JsonValues, json_values
from headwater.eventlog.envelope import Envelope
from headwater.projections.table.computations import When
from headwater.projections.table.declared import storage_word
from headwater.projections.table.expressions import Expression, Field, FromEnvelope, Null, Value, literal
from headwater.projections.table.folds.fold import (
    EVERY,
    ByKey,
    Case,
    Cases,
    Column,
    Derived,
    Fold,
    Ordering,
    Stored,
    event_of,
    folds_of,
    one_kind,
)
from headwater.projections.table.folds.single import BEFORE_ALL, CHANGES, Bound, Latest, stored_together
from headwater.projections.table.items import Entries, Item, parts_of
from headwater.projections.table.json_text import ANYTHING, NO_TEXT, SINGLE, JsonForm, JsonForms, JsonTexts
from headwater.projections.table.layout import DELETED, Edge, Itself, Layout, Shown, Values
from headwater.projections.table.monoids import Members, Pick, StateField, Tally, must_combine_as_compiled, tally_field
from headwater.projections.table.patch import CHANGED, GROUP, Retraction, contribution_key, own
from headwater.projections.table.rows import CapturedRow, Deleted, RowClass, is_row, row_of
from headwater.projections.table.types import ColumnType, item_model, spark_stored

Reads = Iterator[tuple[type[Event] | None, Expression]]
GROUP_TYPES: Final = (ColumnType.TEXT, ColumnType.INTEGER, ColumnType.BOOLEAN, ColumnType.DATE)


class WrongColumn(ValueError):
    """A column is declared wrong."""

    def __init__(self, column: str, problem: str) -> None:
        super().__init__(f'column "{column}": {problem}')


@dataclass(frozen=True)
class Arrangement:
    """The layout of a row, and what events contribute to it."""

    layout: Layout
    stored: tuple[Stored, ...]

    def lifted(self, case: Case) -> dict[str, Expression]:
        """The contribution of one event to each state field, in the layout's order; unchanged fields are absent.

        What a fold reads of an event, it reads for each row that the event changes.
        """
        names: list[Case] = [case, case.event, EVERY] if isinstance(case, ByKey) else [case, EVERY]
        lifted: dict[str, Expression] = {}
        for stored in self.stored:
            lifted |= next((stored.lifted[name] for name in names if name in stored.lifted), {})
        return {field.name: lifted[field.name] for field in self.layout.fields if field.name in lifted}


def arrange(
    columns: Mapping[str, Column],
    ordering: Ordering,
    deleted_by: Sequence[type[Event] | ByKey] = (),
    restored_by: Sequence[type[Event] | ByKey] = (),
) -> Arrangement:
    """The arrangement of rows with these columns; raises WrongColumn.

    `last`s (or `first`s) over the same events share one ordering key.
    """
    own = {id(column): name for name, column in columns.items() if not isinstance(column, Derived)}
    folds: dict[int, tuple[str, str, Fold]] = {}
    for column, declared in columns.items():
        for fold in folds_of(declared):
            name = own.get(id(fold), f"_state{len(folds)}")
            folds.setdefault(id(fold), (name, column, fold))
    types = {column: _kind(column, declared) for column, declared in columns.items()}
    picks: dict[object, list[tuple[str, Latest]]] = {}
    stored: list[Stored] = []
    for name, column, fold in folds.values():
        try:
            if isinstance(fold, Latest):
                fold.kind()
                picks.setdefault(fold.together, []).append((name, fold))
            else:
                stored.append(fold.stored(name, ordering))
                must_combine_as_compiled(stored[-1].monoid)
        except ValueError as error:
            raise WrongColumn(column, str(error)) from error
    for number, group in enumerate(picks.values()):
        try:
            stored.append(stored_together(group, f"_order{number}", ordering))
        except ValueError as error:
            raise WrongColumn(group[0][0], str(error)) from error
    if deleted_by:
        cases = {case for *_, fold in folds.values() for case in fold.cases if not is_row(case)}
        stored.append(_deletion(ordering, deleted_by, restored_by, cases))
    names = {key: name for key, (name, _, _) in folds.items()}
    shown: dict[str, Shown] = {}
    for column, declared in columns.items():
        fields = [names[id(fold)] for fold in folds_of(declared)]
        shown[column] = declared.shown(*fields) if isinstance(declared, Derived) else Itself(*fields)
    layout = Layout(tuple(column.monoid for column in stored), shown, types, _json_texts(stored))
    return Arrangement(layout, tuple(stored))


def _json_texts(stored: Sequence[Stored]) -> JsonTexts:
    """The state fields with the text of a JSON value of an event.

    Not of a whole record: its text is that of the log, which Spark does not write again.
    """
    texts: dict[str, tuple[str, ...]] = {}
    records: set[str] = set()
    for column in stored:
        kinds = {field.name: field.type for field in column.monoid.fields}
        for name, read in (pair for lifted in column.lifted.values() for pair in lifted.items()):
            if isinstance(read, Entries):
                inner = [part for part in read.entry if part.type is ColumnType.JSON]
                own = tuple(part.name for part in inner if not any(_has_record(of.get(part.name)) for of in read.parts))
                texts |= {name: own} if own else {}
            elif kinds[name] is ColumnType.JSON:
                texts[name] = ()
                records |= {name} if _has_record(read) else set()
    return {name: own for name, own in texts.items() if name not in records}


def _has_record(read: Expression | None) -> bool:
    return read is not None and any(part == FromEnvelope("record") for part in parts_of([read]))


def _kind(column: str, declared: Column) -> ColumnType:
    try:
        if isinstance(declared, Derived):
            declared.check()
            return declared.column_kind
        return declared.kind()
    except ValueError as error:
        raise WrongColumn(column, str(error)) from error


def _deletion(
    ordering: Ordering,
    deleted_by: Sequence[type[Event] | ByKey],
    restored_by: Sequence[type[Event] | ByKey],
    cases: Set[Case],
) -> Stored:
    """cases: events that the folds read. If a table decides, an event does not make a row that the table lacks."""
    order = "_order_deleted"
    rows = [
        row_of(row_type.table)
        for row_type in deleted_by
        if isinstance(row_type, type) and issubclass(row_type, CapturedRow)
    ]
    absent: dict[Case, Mapping[str, Expression]] = {}
    if rows:
        ordering, restored_by = CHANGES, rows
        absent = {case: {order: Value(BEFORE_ALL), DELETED: Value(value=True)} for case in cases}
    monoid = Pick(ordering.fields(order), (StateField(DELETED, ColumnType.BOOLEAN),), highest=True)
    marks = [(condition, True) for condition in deleted_by] + [(condition, False) for condition in restored_by]
    return Stored(monoid, absent | {event: ordering.lifted(order) | {DELETED: Value(mark)} for event, mark in marks})


def json_forms(arrangement: Arrangement) -> JsonForms:
    """The columns with JSON texts of rows that are arranged in this way."""
    layout = arrangement.layout
    forms: dict[str, JsonForm | Mapping[str, JsonForm]] = {}
    for name, shown in layout.shown.items():
        match shown:
            case Itself(field=field) if layout.types[name] is ColumnType.JSON:
                forms[name] = _json_form(_reads_of_field(arrangement, field))
            case Values(field=field, names=names):
                entry = next(column.entry for column in layout.fields if column.name == field)
                kinds = {member.name: member.type for member in entry}
                json = [name for name in names or (SINGLE,) if kinds[name] is ColumnType.JSON]
                if json:
                    entries = [
                        (event, part)
                        for event, read in _reads_of_field(arrangement, field)
                        if isinstance(read, Entries)
                        for part in read.parts
                    ]
                    forms[name] = {
                        name: _json_form((event, part[name]) for event, part in entries if name in part)
                        for name in json
                    }
    return forms


def _reads_of_field(arrangement: Arrangement, field: str) -> Reads:
    """What is read into a state field, with the events."""
    for stored in arrangement.stored:
        for case, lifted in stored.lifted.items():
            if field in lifted:
                yield event_of(case), lifted[field]


def _json_form(reads: Reads) -> JsonForm:
    forms = dict.fromkeys(form for event, read in reads for form in _forms(event, read))
    values = {form.values for form in forms}
    fields = tuple(field for form in forms for field in form.fields) if all(form.fields for form in forms) else ()
    return JsonForm(values.pop() if len(values) == 1 else JsonValues.EITHER, fields)


def _forms(event: type[Event] | None, read: Expression) -> Iterable[JsonForm]:
    """The forms of what an expression reads of an event."""
    match read:
        case Null():
            return ()
        case When(then=then, otherwise=otherwise):
            return (*_forms(event, then), *_forms(event, otherwise))
        case FromEnvelope(name="record"):
            return (NO_TEXT,)
        case Field(name=name) if event is not None and not is_row(event):
            return (_form_of(event, event, name),)
        case Item(list=name, name=field) if event is not None and not is_row(event):
            return (_form_of(event, item_model(event, name), field),)
    return (ANYTHING,)  # of captured rows, a document may be anything


def _form_of(event: type[Event], model: type[BaseModel], name: str) -> JsonForm:
    """Of an earlier version of the event, a value may be another one than the field has now."""
    return JsonForm(json_values(model, name), ((model, name),) if event.version == 1 else ())


@storage_word("ContributionKey")
@dataclass(frozen=True, slots=True)
class ContributionKey(Expression):
    """The key of a row's contribution. topic: of its table."""

    topic: str
    name: str = "stream"

    def kind(self, event: type[Event] | None) -> ColumnType:
        return ColumnType.TEXT

    def spark(self, event: type[Event] | None, parsed: Mapping[str, ColumnType]) -> str:
        return f"concat({literal(self._prefix)}, `stream`)"

    def python(self, event: type[Event] | None) -> str:
        return f"{self._prefix!r} + head.subject"

    def of(self, envelope: Envelope) -> str:
        """The key for a change of a row."""
        return self._prefix + envelope.stream

    @property
    def _prefix(self) -> str:
        return contribution_key(self.topic, "")


@storage_word("GroupKey")
@dataclass(frozen=True, slots=True)
class GroupKey:
    """The text of a column; null if it is null, or if the condition is not true (None: it always counts)."""

    column: str
    condition: Expression | None

    def kind(self, event: type[Event] | None) -> ColumnType:
        kind = Field(self.column).kind(event)
        if kind not in GROUP_TYPES and not kind.is_decimal:
            raise ValueError(
                f'"{self.column}" is {kind.value}: group by a column of texts, integers, booleans, decimals or days'
            )
        return ColumnType.TEXT

    def fields(self) -> frozenset[str]:
        return frozenset({self.column}) | (frozenset() if self.condition is None else self.condition.fields())

    def spark(self, event: type[Event] | None, parsed: Mapping[str, ColumnType]) -> str:
        column = Field(self.column)
        text = f"cast({spark_stored(column.spark(event, parsed), column.kind(event))} as string)"
        if self.condition is None:
            return text
        return f"if(coalesce({self.condition.spark(event, parsed)}, false), {text}, cast(null as string))"

    def python(self, event: type[Event] | None) -> str:
        column = Field(self.column)
        kind, text = column.kind(event), column.python(event)
        if kind.is_decimal:
            text = f"decimal_in_rows({text}, {kind.places})"
        elif kind is not ColumnType.TEXT:
            text = f"group_text({text})"
        return text if self.condition is None else f"({text} if {self.condition.python(event)} else None)"


def group_text(value: Any) -> str | None:
    """The key of the rows with this value in their column."""
    if value is None or isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)


def arrange_retracting(
    columns: Mapping[str, Column],
    key: str,
    tables: Iterable[RowClass],
    condition: Callable[[Case], Expression | None],
) -> Arrangement:
    """The arrangement of a view over rows of tables, whose columns are sums; raises WrongColumn.

    key: the column that says which group a row is in. condition: whether a row counts (None: always).
    """
    groups = arrange(_with_kept_values(columns), CHANGES)
    sums = groups.layout.fields
    order = CHANGES.fields(CHANGED)
    # the type of what a contribution adds is that of the value itself, of which a group has a tally
    adds = (StateField(own(column.name), column.entry[0].type if column.entry else column.type) for column in sums)
    values = (StateField(GROUP, ColumnType.TEXT), *adds)
    contribution, members = Pick(order, values, highest=True), Members(DELETED)
    brings: dict[Case, Mapping[str, Expression]] = {}
    for table in tables:
        row = row_of(table)
        added = {own(name): read for name, read in groups.lifted(row).items()}
        brings[row] = CHANGES.lifted(CHANGED) | {GROUP: GroupKey(key, condition(row))} | added
        brings[Deleted(table)] = CHANGES.lifted(CHANGED)
    hidden: dict[Case, Mapping[str, Expression]] = {case: {DELETED: Value(value=True)} for case in brings}
    layout = Layout(
        (*groups.layout.monoids, members, contribution),
        groups.layout.shown,
        groups.layout.types,
        retraction=Retraction(sums, contribution),
    )
    return Arrangement(layout, (Stored(members, hidden), Stored(contribution, brings)))


@dataclass(frozen=True, eq=False)
class Kept:
    """The values of a group's rows, and how many times each is there, so that they can be taken back."""

    cases: Cases

    def kind(self) -> ColumnType:
        return one_kind(self.cases)

    def stored(self, name: str, ordering: Ordering) -> Stored:
        return Stored(
            Tally(tally_field(name, self.kind())), {case: {name: case_value} for case, case_value in self.cases.items()}
        )


def _with_kept_values(columns: Mapping[str, Column]) -> dict[str, Column]:
    """The columns, with highest and lowest values as what is kept of all values; raises WrongColumn."""
    columns_now, kept = dict(columns), dict[frozenset[tuple[Case, Expression]], Kept]()
    for name, column in columns.items():
        if isinstance(column, Bound):
            try:
                kind = column.kind()
            except ValueError as error:
                raise WrongColumn(name, str(error)) from error
            values = kept.setdefault(frozenset(column.cases.items()), Kept(column.cases))
            columns_now[name] = Derived((values,), kind, partial(Edge, highest=column.highest, kind=kind))
    return columns_now
