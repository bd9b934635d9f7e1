"""Who reads what of table views: personal fields, whose ciphertexts columns may copy, and rows (`readable_by`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final, NamedTuple

import orjson
from pydantic import BaseModel

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.filled_fields import Claim
from headwater.commands.declaring.personal import PersonalField, PersonalFields
from headwater.commands.declaring.personal_marks import is_personal, mentions_personal, personal_names
from headwater.eventlog.declaring import meant, must_be_text, must_be_texts
from headwater.eventlog.personal.sealed_text import is_sealed
from headwater.projections.table.declared_store import DeclaredStore
from headwater.projections.table.expressions import Field
from headwater.projections.table.fold_plan import FoldPlan
from headwater.projections.table.folds.fold import Case, Column, Fold, event_of, folds_of
from headwater.projections.table.folds.lists import BoundedList, Parts
from headwater.projections.table.folds.single import Latest
from headwater.projections.table.items import Item, parts_of
from headwater.projections.table.json_text import SINGLE
from headwater.projections.table.layout import Itself, Layout
from headwater.projections.table.lookups import Lookup
from headwater.projections.table.mistaken import must_be
from headwater.projections.table.row_keys import KeyParts
from headwater.projections.table.rows import CapturedRow, RowClass, rows_text
from headwater.projections.table.types import ColumnType, item_model

IN_CLEAR: Final = "rows hold its ciphertext, so it must be a plaintext field"
COPYING: Final = "last(…), first(…), collect(…) or top(…) by another field, each of the field itself"

READABLE_EXAMPLE: Final = 'readable_by={"owner": Claim("sub")}'
COMPARED: Final = (ColumnType.TEXT, ColumnType.INTEGER)
"""Types of which a value equals a claim exactly, in every store."""


@lru_cache(maxsize=10_000)
def sealed_names(model: type[BaseModel]) -> frozenset[str]:
    """The fields of a model whose values in records are sealed, or have ciphertexts inside."""
    inside = (name for name, info in model.model_fields.items() if mentions_personal(info.annotation))
    return personal_names(model) | frozenset(inside)


def personal_columns(columns: Mapping[str, Column]) -> frozenset[str]:
    """The columns whose values have ciphertexts; of columns that were checked."""
    return frozenset(name for name, column in columns.items() if any(map(_copies_personal, folds_of(column))))


class CopiedField(NamedTuple):
    """A field, with the personal fields of its model. member: of an entry that has it, SINGLE if it has no name."""

    member: str
    model: PersonalFields
    name: str


def copied_fields(column: Column) -> list[CopiedField]:
    """The fields that a column copies from models with personal fields, once all modules are loaded."""
    found: list[CopiedField] = []
    for member, case, read in chain.from_iterable(map(_reads_of, folds_of(column))):
        event = event_of(case)
        model = None if event is None else event.sealed_fields
        if isinstance(read, Item) and model is not None:
            model = next((inner.fields for inner in model.inner if inner.name == read.list), None)
        if isinstance(read, Field | Item) and model is not None:
            found.append(CopiedField(member, model, read.name))
    return found


def _reads_of(fold: Fold) -> Iterator[tuple[str, Case, Any]]:
    """What a fold reads of each case, by the member of an entry that has it."""
    match fold:
        case BoundedList():
            yield from ((member, case, read) for case, entry in fold.cases.items() for member, read in entry.items())
        case Parts():
            for member, part in fold.columns.items():
                yield from ((member, case, read) for case, read in part.cases.items())
        case _:
            yield from ((SINGLE, case, read) for case, read in fold.cases.items())


def sealed_where_declared(copied: Sequence[CopiedField], value: Any) -> list[str]:
    """The ciphertexts in a value of a column, where these fields are personal; others are what somebody has copied."""
    found: list[str] = []
    for entry in value if isinstance(value, list) else (value,):
        for member, model, name in copied:
            part = entry.get(member) if isinstance(entry, dict) else entry
            if isinstance(part, str) and not is_sealed(part):
                try:
                    part = orjson.loads(part)
                except orjson.JSONDecodeError:
                    continue
            found += sealed_in_data(model, {name: part})
    return found


def sealed_in_data(model: PersonalFields, data: Any) -> list[str]:
    """The ciphertexts in the personal fields of a message or state."""
    found: list[str] = []

    def note(_: PersonalField, value: Any, __: str) -> Any:
        if is_sealed(value):
            found.append(value)
        return value

    model.changed(data, note)
    return found


def check_copied(plan: FoldPlan) -> None:
    """Raise ValueError if a column computes with a personal field."""
    for name, column in plan.columns.items():
        for fold in folds_of(column):
            _check_fold(f'the column "{name}"', fold)


def check_found(plan: FoldPlan) -> None:
    """Raise ValueError if a key or a condition reads a personal field."""
    where = plan.where if isinstance(plan.where, Mapping) else dict.fromkeys(plan.cases, plan.where)
    read: list[tuple[str, Any, Any]] = [("its key", case, plan.keys(case)) for case in plan.cases]
    read += [("a condition", case, (condition,)) for case, condition in where.items()]
    for what, case, expressions in read:
        event = event_of(case)
        if event is not None and (reads := sorted(_read(event, expressions))):
            raise ValueError(f'{what} reads "{reads[0]}" of "{event.type}", which is personal: {IN_CLEAR}')


def check_uses(
    columns: frozenset[str],
    stores: Sequence[DeclaredStore],
    types: Mapping[str, ColumnType],
    lookups: Sequence[Lookup],
    readable_by: Mapping[str, Claim],
) -> None:
    """Raise ValueError if a store searches, sorts or counts by one of these columns, or rows are found by it.

    A store may do so by those that it has in plaintext.
    """
    check_clear(columns, stores, types)
    if not columns:
        return
    for store in stores:
        readable = {name: kind for name, kind in types.items() if name not in columns or name in store.clear}
        try:
            store.check(readable)
        except ValueError as error:
            sealed = ", ".join(sorted(columns.difference(store.clear)))
            raise ValueError(
                f"{error}; columns with personal values ({sealed}) are encrypted, so that no store can search, "
                "sort or count by them, unless it has them in plaintext, as by "
                f'{type(store).__name__}(clear=("{min(columns)}",))'
            ) from error
    for lookup in lookups:
        if lookup.on in columns:
            raise ValueError(f'the lookup in "{lookup.view}" is on "{lookup.on}", which is personal: {IN_CLEAR}')
    for column in readable_by:
        if column in columns:
            raise ValueError(f'readable_by names "{column}", which is personal: {IN_CLEAR}')


def check_clear(columns: Collection[str], stores: Sequence[DeclaredStore], types: Mapping[str, ColumnType]) -> None:
    """Raise ValueError if a store has a plaintext column that is none, or not a personal one, or several values.

    columns: those with personal values.
    """
    for store in stores:
        what = f"{type(store).__name__}(clear=…)"
        must_be_texts(what, store.clear, f'{type(store).__name__}(clear=("email",))')
        for name in store.clear:
            if name not in types:
                raise ValueError(f"{what} names the unknown column {meant(name, types)}")
            if name not in columns:
                raise ValueError(f'{what} names "{name}", which has no personal values and is in plaintext: remove it')
            if types[name] is not ColumnType.TEXT:
                raise ValueError(
                    f'{what} names "{name}", which may have the values of several persons: only a column that copies '
                    "one personal field, with last(…) or first(…), can be in plaintext"
                )


def _check_fold(what: str, fold: Any) -> None:
    copied: Mapping[Any, Any]
    match fold:
        case Latest():
            copied, computed = fold.cases, fold.by
        case BoundedList():
            copied, computed = fold.cases, fold.by
        case Parts():
            for name, part in fold.columns.items():
                _check_fold(f'{what}, part "{name}",', part)
            copied, computed = {}, fold.key
        case _:
            copied, computed = {}, getattr(fold, "cases", {})
    for case, shown in copied.items():
        event = event_of(case)
        for expression in shown.values() if isinstance(shown, Mapping) else (shown,):
            if event is not None and not isinstance(expression, Field | Item):
                _refuse(what, event, expression)
    for case, expression in (computed or {}).items():
        event = event_of(case)
        if event is not None:
            _refuse(what, event, expression)


def _refuse(what: str, event: type[Event], expression: Any) -> None:
    for name in sorted(_read(event, expression)):
        raise ValueError(
            f'{what} computes with "{name}" of "{event.type}", which is personal: rows have a ciphertext in its '
            f"place, which can only be copied, with {COPYING}"
        )


def _copies_personal(fold: Fold) -> bool:
    if isinstance(fold, Parts):
        return any(map(_copies_personal, fold.columns.values()))
    return any(_read(event, shown) for case, shown in fold.cases.items() if (event := event_of(case)) is not None)


def _read(event: type[Event], shown: Any) -> set[str]:
    """The personal fields of an event that expressions read, at any depth; shown: one, or several in any container."""
    names = set[str]()
    for read in parts_of(list(_flat(shown))) if issubclass(event, Event) else ():
        if isinstance(read, Item):
            info = item_model(event, read.list).model_fields.get(read.name)
            if info is not None and (is_personal(info) or mentions_personal(info.annotation)):
                names.add(f"{read.list}[].{read.name}")
        elif isinstance(read, Field | KeyParts):
            names |= read.fields() & sealed_names(event)
    return names


def _flat(shown: Any) -> Iterator[Any]:
    match shown:
        case Mapping():
            yield from _flat(list(shown.values()))
        case list() | tuple():
            for item in shown:
                yield from _flat(item)
        case None:
            return
        case _:
            yield shown


def check_readable_types(readable_by: object) -> None:
    """Raise ValueError unless it is a claim by column."""
    claims = must_be(
        Mapping, readable_by, f"readable_by={{}} does not say which claim a column equals: write {READABLE_EXAMPLE}"
    )
    for column, claim in claims.items():
        must_be_text("a column of readable_by", column, READABLE_EXAMPLE)
        must_be(Claim, claim, f'"{column}" of readable_by is {{}}, which is no claim: write {READABLE_EXAMPLE}')


def check_readable(
    readable_by: Mapping[str, Claim],
    key_name: str,
    types: Mapping[str, ColumnType],
    looked_up: Mapping[str, Lookup],
    layout: Layout,
) -> None:
    """Raise ValueError if a column of `readable_by` cannot be compared with a claim exactly."""
    use = f"use one of {', '.join(name for name, kind in types.items() if kind in COMPARED)}"
    for column in readable_by:
        if column in looked_up:
            there = looked_up[column].view
            raise ValueError(
                f'readable_by names "{column}", which is looked up in "{there}" when a row is read, not stored: {use}'
            )
        if column not in types:
            raise ValueError(f'readable_by names "{column}", which is not a column of this view: {use}')
        if types[column] not in COMPARED:
            raise ValueError(
                f'readable_by names "{column}", which is {types[column].value}: only text and integers are compared '
                f"with a claim: {use}"
            )
        if column != key_name and not isinstance(layout.shown[column], Itself):
            raise ValueError(
                f'readable_by names "{column}", which is computed from other values, so that two owners may have the '
                "same: use a column of last(…), first(…) or current(…)"
            )


def check_unmasked(plan: FoldPlan, readable_by: Mapping[str, Claim]) -> None:
    """Raise ValueError if a column of `readable_by` is captured only in part, so that two owners may look the same."""
    for column in readable_by:
        for table, name in _captured(plan, column):
            mask = table.columns[name].mask
            if mask is not None:
                raise ValueError(
                    f'readable_by names "{column}", but "{name}" of {rows_text(table)} is captured as '
                    f"{type(mask).__name__}(), which is not its value: capture it whole, or use another column"
                )


def state_fields(columns: Iterable[str], layout: Layout) -> dict[str, str]:
    """By column, the state field that patches bring for it; without columns that no patch brings, such as the key."""
    shown_by = layout.shown
    return {name: how.field for name in columns if isinstance(how := shown_by.get(name), Itself)}


def _captured(plan: FoldPlan, column: str) -> Iterator[tuple[RowClass, str]]:
    """The captured columns that a column is read from."""
    for fold in folds_of(plan.columns[column]) if column in plan.columns else ():
        for case, read in fold.cases.items():
            if isinstance(case, type) and issubclass(case, CapturedRow):
                for name in read.fields():
                    yield case.table, name
