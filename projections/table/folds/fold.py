"""Folds, columns that are computed from folds, and the cases of events: `by_key(Transferred, "from_account")`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar, cast

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.view_rows import ViewRow
from headwater.eventlog.declaring import must_be_text, must_be_texts, shown
from headwater.projections.table.computations import Readable, expression
from headwater.projections.table.declared import storage_word
from headwater.projections.table.expressions import Expression, without_digits
from headwater.projections.table.layout import Shown
from headwater.projections.table.mistaken import in_views, must_be
from headwater.projections.table.monoids import Monoid, StateField
from headwater.projections.table.rows import RowClass, is_row, is_row_class, row_of
from headwater.projections.table.types import ColumnType, common_type

ENTRY_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,40}")


@storage_word("ByKey")
@dataclass(frozen=True, slots=True)
class ByKey:
    """The event, for the row that one of its keys names. key: the name of the field, or of several. See `by_key`."""

    event: type[Event]
    key: str | tuple[str, ...]

    def __str__(self) -> str:
        names = [f'"{name}"' for name in ([self.key] if isinstance(self.key, str) else self.key)]
        key = names[0] if isinstance(self.key, str) else f"({', '.join(names)})"
        return f"by_key({getattr(self.event, 'type', self.event.__name__)}, {key})"


@in_views('by_key(Transferred, "from_account")')
def by_key(event: type[Event], key: str | tuple[str, ...]) -> ByKey:
    """An event as it changes one of its rows, in a view in which it changes several.

    Stands in place of the event in folds, `deleted_by`, `restored_by` and `where`, and counts only for the row that the
    field `key` names, as in `add({by_key(Transferred, "from_account"): negative("cents")})`. The event itself counts
    for each of its rows. key: one of those that the view's `key` lists for the event.
    """
    if is_row(event) or is_row_class(event):
        table = event.table if is_row(event) else event
        what = "a row of a view" if issubclass(table, ViewRow) else "a captured row"
        raise ValueError(f"is given {shown(event)}, but a change of {what} changes one row only")
    if not (isinstance(event, type) and issubclass(event, Event) and hasattr(event, "type")):
        raise ValueError(f"is given {shown(event)}, which is no class of events with a type")
    if isinstance(key, tuple):
        must_be_texts("key", key, "the names of its fields")
    else:
        must_be_text("key", key, "the name of a field")
    return ByKey(event, key)


class _Every:
    def __repr__(self) -> str:
        return "EVERY"


EVERY: Final = _Every()
Case = type[Event] | ByKey | _Every
CountedCase = Case | RowClass
"""A case of a fold that can take back what a row of a captured table, or of a view, was before."""
Cases = Mapping[Case, Expression]


@dataclass(frozen=True)
class Ordering:
    """The order of a row's events: parts of a key, the most significant first; no two events have the same key."""

    parts: tuple[tuple[ColumnType, Expression], ...]

    def fields(self, name: str, *, hidden: bool = True) -> tuple[StateField, ...]:
        """A state field for each part: `name`, `name_1`, …"""
        return tuple(
            StateField(f"{name}_{number}" if number else name, kind, ordering=hidden)
            for number, (kind, _) in enumerate(self.parts)
        )

    def lifted(self, name: str) -> dict[str, Expression]:
        """The values of an event for these fields."""
        return {field.name: part for field, (_, part) in zip(self.fields(name), self.parts, strict=True)}

    def within(self, part: tuple[ColumnType, Expression]) -> Ordering:
        """The same order, with a less significant part added."""
        return self if part in self.parts else Ordering((*self.parts, part))


@dataclass(frozen=True)
class Stored:
    """How a fold is stored in a row: its monoid, and what each event contributes to the monoid's fields."""

    monoid: Monoid
    lifted: Mapping[Case, Mapping[str, Expression]]


class Fold(Protocol):
    """A stored value that is computed from some events; each case names an event and what is read of it."""

    @property
    def cases(self) -> Mapping[Case, Any]:
        """What is read, by event."""

    def kind(self) -> ColumnType:
        """The type of the column that shows its value; raises ValueError if the declaration is wrong."""

    def stored(self, name: str, ordering: Ordering) -> Stored:
        """How it is stored, with `name` as the name of its state field, or as a prefix of their names."""


@storage_word("Derived")
@dataclass(frozen=True, eq=False)
class Derived:
    """A column that is computed from the state fields of folds.

    shown: called with the names of the folds' state fields. check: raises ValueError if the folds do not fit.
    """

    folds: tuple[Fold, ...]
    column_kind: ColumnType
    shown: Callable[..., Shown]
    check: Callable[[], None] = lambda: None


Column = Fold | Derived


def folds_of(column: Column) -> tuple[Fold, ...]:
    """The folds that a column is computed from: itself, or those that it derives from."""
    return column.folds if isinstance(column, Derived) else (column,)


def event_of(case: Case) -> type[Event] | None:
    """The event class of a case; None for EVERY."""
    if isinstance(case, ByKey):
        return case.event
    return None if isinstance(case, _Every) else case


def case_text(case: Case) -> str:
    """A case in a message."""
    return str(getattr(case, "type", case.__name__) if isinstance(case, type) else case)


def read(cases: Mapping[Case, Readable]) -> Cases:
    """The cases as expressions; raises ValueError if they are no cases."""
    return {event: expression(readable) for event, readable in checked_cases(cases).items()}


def row_case(case: CountedCase) -> Case:
    """A class of rows as the event that its rows have values, in folds that can take back what a row was before."""
    return row_of(case) if is_row_class(case) else cast(Case, case)


Read = TypeVar("Read")
AnyCase = TypeVar("AnyCase", bound=CountedCase)


def checked_cases(cases: Mapping[AnyCase, Read]) -> Mapping[AnyCase, Read]:
    """`cases`, if each names an event; raises ValueError."""
    for case in must_be(Mapping, cases, "is given {}, which does not say of which event"):
        must_be_case(case)
    return cases


def must_be_case(case: object) -> None:
    """Raise ValueError unless it is EVERY, or a class of events with a type."""
    if case is EVERY or isinstance(case, ByKey) or is_row_class(case):
        return  # a view says of rows what to use instead
    if not (isinstance(case, type) and issubclass(case, Event) and hasattr(case, "type")):
        raise ValueError(f"is given {shown(case)}, which is no class of events with a type")


def one_kind(cases: Cases) -> ColumnType:
    """The common type of all cases; raises ValueError if they differ, or if there is no case."""
    kinds = {case_value.kind(event_of(event)) for event, case_value in cases.items()}
    if not kinds:
        raise ValueError("a fold needs at least one event")
    kind = common_type(kinds)
    if kind is None:
        raise ValueError(f"its cases have different types: {', '.join(sorted(kind.value for kind in kinds))}")
    return kind


def digits_hint(cases: Cases) -> str:
    """See `without_digits`, of all cases."""
    hints = (without_digits([case_value], event_of(case)) for case, case_value in cases.items())
    return next(filter(None, hints), "")


def positive(limit: int, maximum: int) -> int:
    """`limit`, if a row may have that many; raises ValueError."""
    if type(limit) is not int or not 1 <= limit <= maximum:
        raise ValueError(f"a limit is from 1 to {maximum}, not {shown(limit)}, because the row stores all of them")
    return limit


def entry_name(name: str) -> str:
    """`name`, if it is a valid name for a field of an entry; raises ValueError."""
    if not isinstance(name, str) or not ENTRY_NAME.fullmatch(name):
        raise ValueError(f'"{name}" is not a field name: use a-z, 0-9 and _')
    return name
