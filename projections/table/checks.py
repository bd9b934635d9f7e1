"""Checks of what views are declared with; each raises ValueError that says what to write."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, cast

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.view_rows import ViewRow
from headwater.eventlog.declaring import must_be_text, must_be_version, shown
from headwater.projections.table.computations import must_be_condition
from headwater.projections.table.declared_store import DeclaredStore
from headwater.projections.table.expressions import Field, FromEnvelope, UnknownField
from headwater.projections.table.fold_plan import FoldPlan
from headwater.projections.table.folds.arranging import GroupKey
from headwater.projections.table.folds.fold import (
    EVERY,
    ByKey,
    Case,
    CountedCase,
    Derived,
    case_text,
    event_of,
    folds_of,
    row_case,
)
from headwater.projections.table.folds.single import Current
from headwater.projections.table.items import Item, items_read
from headwater.projections.table.lookups import EXAMPLE as LOOKUP
from headwater.projections.table.lookups import check_lookup
from headwater.projections.table.mistaken import must_be, refuse_first, refuse_mistaken
from headwater.projections.table.personal import check_readable_types
from headwater.projections.table.row_keys import (
    KeyExpression,
    KeyParts,
    check_by_keys,
    check_each_once,
    check_key_types,
    key_name_of,
)
from headwater.projections.table.rows import CapturedRow, RowClass, is_row, is_row_class, rows_text
from headwater.projections.table.types import ColumnType, item_model
from headwater.projections.view import View

NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,40}")
RESERVED: Final = re.compile(r"ledger|generations|generation_numbers|live_views|.*__g\d+")
"""Names of Headwater's own tables, which a view cannot have."""


def as_stores(stores: Any) -> Any:
    """A tuple of the stores, also if one store is given alone, or a list of them."""
    return (stores,) if isinstance(stores, DeclaredStore) else tuple(stores) if isinstance(stores, list) else stores


def check_shared(view: View) -> None:
    """Check what every kind of view is declared with."""
    for store in must_be(tuple, view.stores, "stores={} is no store: write stores=(Postgres(),)"):
        if isinstance(store, type) and issubclass(store, DeclaredStore):
            raise ValueError(f"stores has the class {store.__name__}: write stores=({store.__name__}(),)")
        must_be(DeclaredStore, store, "stores has {}, which is no store: write stores=(Postgres(),)")
    names = [store.name for store in view.stores]
    for number, store in enumerate(view.stores):
        if store.name in names[:number]:
            raise ValueError(f"stores has {type(store).__name__}() twice: remove one")
    must_be_version("version", view.version)
    must_be(str, view.key_name, 'key_name={} is no text: write key_name="id"')
    must_be(str, view.doc, 'doc={} is no text: write doc="One line for users."')
    for lookup in must_be(
        (tuple, list), view.lookups, f"lookups={{}} is no tuple of lookups: write lookups=({LOOKUP},)"
    ):
        check_lookup(lookup)
    check_readable_types(view.readable_by)


def check_types(
    key: object, columns: object, deleted_by: object, restored_by: object, where: object, each: object
) -> None:
    """Check the fields of a TableView."""
    check_key_types(key)
    by_name = must_be(Mapping, columns, 'columns={} is no mapping: write columns={"accounts": count(Opened)}')
    for name, column in by_name.items():
        refuse_mistaken(f'column "{name}"', column)
        is_fold = not isinstance(column, type) and hasattr(column, "cases") and hasattr(column, "stored")
        if not is_fold and not isinstance(column, Derived):
            example = f'last({{Opened: "{column}"}})' if isinstance(column, str) else "count(Opened)"
            raise ValueError(f'column "{name}" is {shown(column)}, which is no fold over events: write {example}')
    for word, events in (("deleted_by", deleted_by), ("restored_by", restored_by)):
        _check_marks(word, events)
    _check_where(where)
    example = 'each={Placed: "lines"}'
    for event, name in must_be(Mapping, each, f"each={{}} does not say of which event: write {example}").items():
        if not is_event(event):
            raise ValueError(f"each has {shown(event)}, which is no class of events: write {example}")
        must_be_text(f"each of {event.__name__}", name, example)


def _check_marks(word: str, events: object) -> None:
    if isinstance(events, type):
        raise ValueError(f"{word} is one class: write {word}=({events.__name__},)")
    if isinstance(events, ByKey):
        raise ValueError(f"{word} is one event: write {word}=({events},)")
    marks = must_be((tuple, list), events, f"{word}={{}} is no tuple of classes of events: write {word}=(Closed,)")
    for number, event in enumerate(marks):
        refuse_mistaken(word, event)
        if not isinstance(event, ByKey) and not is_event(event):
            raise ValueError(
                f"{word} has {shown(event)}, which is no class of events with a type: write {word}=(Closed,)"
            )
        if event in marks[:number]:
            raise ValueError(f"{word} has {getattr(event, '__name__', event)} twice: remove one")


def _check_where(where: object) -> None:
    example = 'where={Opened: equals("city", value("Galt"))}'
    conditions = where.values() if isinstance(where, Mapping) else [where]
    for event in where if isinstance(where, Mapping) else ():
        refuse_mistaken("where", event)
        if not isinstance(event, ByKey) and not is_event(event):
            raise ValueError(f"where has a condition for {shown(event)}, which is no class of events: write {example}")
    for condition in conditions:
        refuse_mistaken("where", condition)
        if isinstance(condition, str) and condition:
            raise ValueError(f'where has the text "{condition}": write field("{condition}"), or {example}')
        if isinstance(condition, type) or not hasattr(condition, "python"):
            raise ValueError(f"where has {shown(condition)}, which is no condition: write {example}")


def is_event(event: object) -> bool:
    """Whether it is a class of events with a type; of rows, a later check says what to write."""
    if not isinstance(event, type):
        return False
    return is_row_class(event) or (issubclass(event, Event) and hasattr(event, "type"))


def check_columns(names: Iterable[str]) -> None:
    """Check the names of columns."""
    for name in names:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise ValueError(f'"{name}" is not a column name: use a-z, 0-9 and _')


def check_name(name: str) -> None:
    """Check the name of a view."""
    is_name = isinstance(name, str) and NAME.fullmatch(name)
    refuse_first(
        {
            "invalid name: use a-z, 0-9 and _, at most 41 characters": not is_name,
            "this name is reserved by Headwater: use another name": is_name and RESERVED.fullmatch(name),
        }
    )


def check_stores(stores: Sequence[DeclaredStore], types: Mapping[str, ColumnType]) -> None:
    """Check the stores of a view with these columns."""
    if not stores:
        raise ValueError("it has no store: add stores=(Postgres(),)")
    if not stores[0].answers:
        raise ValueError(
            f"{type(stores[0]).__name__}() cannot be its first store, which answers queries: "
            f"write stores=(Postgres(), {type(stores[0]).__name__}())"
        )
    for store in stores:
        store.check(types)


def check_plan(plan: FoldPlan) -> None:
    """Check what a table view reads of events, and its columns."""
    if plan.counted_tables:
        _check_counted(plan)
    _check_tables(plan)
    _check_keys(plan)
    _check_events(plan)
    for lift in plan.lifts.values():
        for read in lift.reads:
            through = (lift.through, getattr(read, "each", None))
            if lists := [item.list for item in items_read([read]) if item.list not in through]:
                raise ValueError(
                    f'items of "{lists[0]}" are read, but nothing goes through them: use `each` or nested()'
                )
    if plan.each and not plan.items:
        raise ValueError("`each` goes through a list, but no column reads its items: use item()")
    for lift in plan.lifts.values():
        for row in lift.rows if len(lift.rows) > 1 else ():
            if not row.brings and lift.event is not None:
                case = ByKey(lift.event, key_name_of(row.key))
                raise ValueError(f"nothing changes the row of {case}: read it in a column, or leave that key out")


def _check_tables(plan: FoldPlan) -> None:
    """Of rows, only the current ones are known, so nothing but current() and deleted_by can read them.

    The rows of a table or view are read by one class: a topic stands for one table.
    """
    by_topic: dict[str, RowClass] = {}
    for case in plan.cases:
        if isinstance(case, type) and issubclass(case, CapturedRow):
            table = case.table
            if (other := by_topic.setdefault(table.topic(), table)) is not table:
                names = " and ".join(sorted([other.__name__, table.__name__]))
                raise ValueError(
                    f"it reads {rows_text(table)} by the classes {names}: declare one, with the columns of both"
                )
    for case in {*plan.cases, *_named(plan)}:
        if is_row_class(case):  # of a fold that could not take a row back
            what = "a class of rows of a view" if issubclass(case, ViewRow) else "a captured table"
            raise ValueError(
                f'"{case.__name__}" is {what}, of which only current rows are known: read a value with '
                f'current({case.__name__}, "…"), and let deleted_by=(Deleted({case.__name__}),) delete rows; or count '
                "its rows, and add up or compare a column, with count, add, average, minimum and maximum; what needs "
                "earlier changes needs events"
            )
    if plan.tables and plan.handles_every:
        tables = " and ".join(sorted(map(_named_rows, plan.tables.values())))
        raise ValueError(
            f"EVERY beside rows of {tables} would also stand for the changes of its rows, of which "
            "a replay reads only the last, because the topic is compacted: name the events instead"
        )
    marks = {*plan.deleted_by, *plan.restored_by}
    if any(map(is_row, marks)) and (len(marks) > 1 or plan.restored_by):
        raise ValueError("deleted_by=(Deleted(…),) stands alone: the row is there while that table's row is")


def _named_rows(table: RowClass) -> str:
    return f"{'the view' if issubclass(table, ViewRow) else 'the captured table'} {table.__name__}"


def _check_counted(plan: FoldPlan) -> None:
    """A view that counts rows does nothing else."""
    name = plan.counted_tables[0].__name__
    folds = [fold for column in plan.columns.values() for fold in folds_of(column)]
    read = [(fold, case) for fold in folds for case in fold.cases]
    others = [case for fold, case in read if isinstance(fold, Current) or not (is_row(case) or is_row_class(case))]
    if others:
        raise ValueError(
            f"it counts or adds up rows of {_named_rows(plan.counted_tables[0])}, and also reads "
            f"{case_text(others[0])}: declare two views, and look up the columns of one in the other with a Lookup"
        )
    is_column, marks = isinstance(plan.key, str), plan.deleted_by or plan.restored_by
    refuse_first(
        {
            f'the key of a view that counts rows of {name} is one of their columns, as in key="city"': not is_column,
            f"a deleted row of {name} no longer counts, so nothing has to say so: leave out deleted_by": marks,
            f"rows of {name} count as a whole: leave out each": plan.each,
        }
    )


def _check_keys(plan: FoldPlan) -> None:
    """Each event has a key, and each case for one of its rows names one that it has."""
    if plan.key_parts and plan.tables:
        raise ValueError(
            "rows of views and rows of captured tables have their own key, which is one text: leave them out, or use it"
        )
    _check_one_type(plan)
    check_by_keys(plan.key, {*plan.cases, *_named(plan)})
    for name, column in plan.columns.items():
        for fold in folds_of(column):
            check_each_once(f'column "{name}"', fold.cases)
    check_each_once("deleted_by, or restored_by,", [*plan.deleted_by, *plan.restored_by])
    for case in plan.key if isinstance(plan.key, Mapping) else ():
        event = event_of(case)
        if not plan.handles_every and (event is None or event not in plan.events.values()):
            raise ValueError(f"no column reads {case_text(case)}, which `key` names: leave it out")
    for case in plan.cases:
        event = event_of(case)
        if not plan.keys(case):
            name = "EVERY" if event is None else event.__name__
            raise ValueError(f'key has no {name}: add {name}: "…", with the field that is its key')
        if event in plan.each and isinstance(plan.key, Mapping) and isinstance(plan.key.get(event or EVERY), list):
            raise ValueError(
                f"{case_text(case)} goes through a list with `each`, so each item changes one row: give it one key, "
                "as in item(…)"
            )


def _check_one_type(plan: FoldPlan) -> None:
    """Raise ValueError if a row could have the key of one event's integer, and of another one's text."""
    types: dict[str, str] = {}
    for case in sorted(plan.cases, key=case_text):
        for key in plan.keys(case):
            if isinstance(key, KeyParts) and len(key.names) == 1:
                types.setdefault(Field(key.names[0]).kind(event_of(case)).value, case_text(case))
            elif isinstance(key, Field | FromEnvelope):
                with suppress(ValueError):  # which is refused
                    if key.kind(event_of(case)) is ColumnType.TEXT:
                        types.setdefault(ColumnType.TEXT.value, case_text(case))
    if len(types) > 1:
        several = " and ".join(f"{kind} in {case}" for kind, case in sorted(types.items()))
        raise ValueError(f"its key is {several}: give all events a key of one type")


def _check_events(plan: FoldPlan) -> None:
    known = {event_of(case) for case in plan.cases}
    named = _named(plan)
    for case in named:
        if event_of(case) not in known:
            raise ValueError(f'no column reads "{case_text(case)}", which `where` or `each` names')
    for case in {*plan.cases, *named}:
        subject, event, condition = event_of(case), plan.list_of(case), plan.condition(case)
        try:
            if condition is not None:
                must_be_condition(condition, subject)
            kinds = [_key_kind(key, subject, event) for key in plan.keys(case)]
            if plan.counted_tables and isinstance(plan.key, str):
                kinds.append(GroupKey(plan.key, None).kind(subject))
            if subject is not None and event is not None:
                item_model(subject, event)
        except ValueError as error:
            raise ValueError(f"its key or condition: {error}") from error
        for kind in kinds:
            if kind is not ColumnType.TEXT:
                raise ValueError(
                    f"its key must be a field with a text, an integer, a boolean, a date or a UUID, or an item's text, "
                    f"not {kind.value}"
                )


def _key_kind(key: KeyExpression, event: type[Event] | None, through: str | None) -> ColumnType:
    """through: the list of the event whose items make a patch each."""
    if isinstance(key, Item) and through != key.list:
        instead = f'`each` goes through "{through}"' if through else f'nothing goes through "{key.list}": use `each`'
        raise ValueError(f'it is an item of "{key.list}", but {instead}')
    try:
        return key.kind(event)
    except UnknownField as error:  # a key is a field, so it cannot be meant as a constant
        raise ValueError(error.problem) from error


def _named(plan: FoldPlan) -> list[Case]:
    """The events that `each` and `where` name."""
    named: Iterable[CountedCase] = plan.where if isinstance(plan.where, Mapping) else ()
    return [*plan.each, *(row_case(case) if case in plan.counted_tables else cast(Case, case) for case in named)]
