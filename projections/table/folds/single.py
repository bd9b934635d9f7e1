"""Folds of single values: `last`, `first`, `current`, sums and extremes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headwater.eventlog.declaring import shown
from headwater.projections.table.computations import Known, Readable, Sortable, expression
from headwater.projections.table.decimals import MAX_DIGITS
from headwater.projections.table.declared import storage_word
from headwater.projections.table.expressions import FromEnvelope, Null
from headwater.projections.table.folds.fold import (
    Case,
    Cases,
    CountedCase,
    Derived,
    Ordering,
    Stored,
    case_text,
    checked_cases,
    digits_hint,
    must_be_case,
    one_kind,
    read,
    row_case,
)
from headwater.projections.table.layout import Quotient
from headwater.projections.table.mistaken import in_views, must_be
from headwater.projections.table.monoids import Extreme, Pick, StateField, Sum
from headwater.projections.table.rows import CapturedRow, Deleted, RowClass, column_problem, is_row_class, row_of
from headwater.projections.table.types import ColumnType

RANKED = (ColumnType.INTEGER, ColumnType.FLOAT, ColumnType.TIME, ColumnType.DATE)

CHANGES: Final = Ordering(((ColumnType.INTEGER, FromEnvelope("offset")),))
"""All changes of a row are in one partition of its table's topic."""
BEFORE_ALL: Final = -1
"""In this order, before every change."""


def is_ranked(kind: ColumnType) -> bool:
    """Whether values of this type have an order that all stores share, and are no texts."""
    return kind in RANKED or kind.is_decimal


@storage_word("Latest")
@dataclass(frozen=True, eq=False)
class Latest:
    """The value of the last (or first) event among the cases. See `last` and `first`."""

    cases: Cases
    highest: bool
    by: Cases | None = None

    def kind(self) -> ColumnType:
        if self.by is not None:
            rank_kind(self.by)
        return one_kind(self.cases)

    def stored(self, name: str, ordering: Ordering) -> Stored:
        return stored_together([(name, self)], f"_order_{name.lstrip('_')}", ordering)

    def order(self, ordering: Ordering, case: Case) -> Ordering:
        """The order of this case in a row whose events have this order; raises ValueError if there is none."""
        return ordered(ordering, self.by, case)

    @property
    def together(self) -> Hashable:
        """Folds with an equal value share one ordering key, because it changes for all of them at once."""
        return (self.highest, frozenset(self.cases), None if self.by is None else frozenset(self.by.items()))


@in_views('last({Sold: "price"})')
def last(cases: Mapping[Case, Readable], by: Readable | Mapping[Case, Readable] | None = None) -> Latest:
    """The value of the latest of these events.

    Later means a higher version within a stream; across streams, a later time (then partition and offset). The ordering
    key is stored with the value, so the order of arrival does not matter.

    by: a number or time that decides instead which one is later, such as a time in the event's data: one for all cases,
    or one per case. Of equal values, the later event counts; an event for which it is null does not count.
    """
    return Latest(read(cases), highest=True, by=rank(cases, by))


@in_views('first({Sold: "price"})')
def first(cases: Mapping[Case, Readable], by: Readable | Mapping[Case, Readable] | None = None) -> Latest:
    """The value of the earliest of these events; ordered like `last`."""
    return Latest(read(cases), highest=False, by=rank(cases, by))


def rank(cases: Mapping[Case, object], by: Readable | Mapping[Case, Readable] | None) -> Cases | None:
    """What each case is ordered by."""
    if by is None:
        return None
    return read(by) if isinstance(by, Mapping) else {case: expression(by) for case in cases}


def rank_kind(by: Cases) -> ColumnType:
    """The type of the cases' order; raises ValueError if it has no order that all stores share."""
    kind = one_kind(by)
    if not is_ranked(kind):
        raise ValueError(f"it is ordered by a {kind.value}: use a number, a time or a date{digits_hint(by)}")
    return kind


def ordered(ordering: Ordering, by: Cases | None, case: Case) -> Ordering:
    """The order of this case: `by`, if there is one, then the log. Raises ValueError if `by` lacks the case."""
    if by is None:
        return ordering
    if case not in by:
        raise ValueError(f"`by` leaves out {case_text(case)}: add what it is ordered by")
    kind = rank_kind(by)
    part = (ColumnType.TEXT, Sortable(by[case], kind)) if kind.is_decimal else (kind, by[case])
    return Ordering((part, *ordering.parts))


def stored_together(folds: Sequence[tuple[str, Latest]], name: str, ordering: Ordering) -> Stored:
    """The folds with these names (all with equal `together`) behind one ordering key with this name."""
    (_, one), *_ = folds
    order = {case: one.order(ordering, case) for case in one.cases}
    lifted = {
        case: register.lifted(name) | {state: fold.cases[case] for state, fold in folds}
        for case, register in order.items()
    }
    values = tuple(StateField(state, fold.kind()) for state, fold in folds)
    fields = next(iter(order.values())).fields(name)
    return Stored(Pick(fields, values, one.highest), lifted)


@storage_word("Current")
@dataclass(frozen=True, eq=False)
class Current(Latest):
    """The value of the last change of a row; null if it is deleted. See `current`."""

    row: type[CapturedRow] = CapturedRow

    def kind(self) -> ColumnType:
        for name in sorted(self.cases[self.row].fields()):
            problem = column_problem(self.row.table, name)
            if problem is not None:
                raise ValueError(problem)
        return super().kind()

    def order(self, ordering: Ordering, case: Case) -> Ordering:
        return CHANGES

    @property
    def together(self) -> Hashable:
        return self.row


@in_views('current(Customer, "name")')
def current(table: RowClass, readable: Readable) -> Current:
    """A column of a captured table, or an expression over its columns, as the row is now; null if it is deleted.

    The view's row is the one whose key is the key of the table's row, as text. A ViewRow stands for a view likewise.
    """
    if not is_row_class(table):
        raise ValueError(f"is given {shown(table)}, which is no ViewRow and no captured table")
    read, row = expression(readable), row_of(table)
    return Current({row: read, Deleted(table): Null(read, row)}, highest=True, row=row)


@storage_word("Total")
@dataclass(frozen=True, eq=False)
class Total:
    """The sum of an integer or decimal from each event. See `add` and `count`."""

    cases: Cases

    def kind(self) -> ColumnType:
        return sum_kind(one_kind(self.cases), self.cases)

    def stored(self, name: str, ordering: Ordering) -> Stored:
        return Stored(
            Sum(StateField(name, self.kind())), {case: {name: case_value} for case, case_value in self.cases.items()}
        )


@storage_word("Bound")
@dataclass(frozen=True, eq=False)
class Bound:
    """The highest or lowest value of all events. See `maximum` and `minimum`."""

    cases: Cases
    highest: bool

    def kind(self) -> ColumnType:
        kind = one_kind(self.cases)
        if not is_ranked(kind):
            raise ValueError(
                f"a highest or lowest needs numbers, times or dates, not {kind.value}{digits_hint(self.cases)}"
            )
        return kind

    def stored(self, name: str, ordering: Ordering) -> Stored:
        monoid = Extreme(StateField(name, self.kind()), highest=self.highest)
        return Stored(monoid, {case: {name: case_value} for case, case_value in self.cases.items()})


@in_views('add({Sold: "price"})')
def add(cases: Mapping[CountedCase, Readable]) -> Total:
    """The sum of an integer from each event; a negative one subtracts. Floats are refused: their order would matter.

    The sum of decimals has 38 digits, and the places of its events: no digit is ever lost. Of a captured table, it is
    the sum over the rows that there are now: `add({Customer: "credit"})`.
    """
    return Total(_of_events_and_rows(cases))


@in_views("count(Sold)")
def count(*events: CountedCase) -> Total:
    """The number of these events; of a captured table, the number of rows that there are now."""
    for number, event in enumerate(events):
        must_be_case(event)
        if event in events[:number]:
            raise ValueError(f"is given {shown(event)} twice")
    return Total({row_case(event): expression(1) for event in events})


@in_views('maximum({Sold: "price"})')
def maximum(cases: Mapping[CountedCase, Readable]) -> Bound:
    """The highest value of all these events; see `highest` for one that falls again.

    Of a captured table, it is the highest value of the rows that there are now, which falls again when that row goes.
    """
    return Bound(_of_events_and_rows(cases), highest=True)


@in_views('minimum({Sold: "price"})')
def minimum(cases: Mapping[CountedCase, Readable]) -> Bound:
    """The lowest value of all these events; see `lowest` for one that rises again.

    Of a captured table, it is the lowest value of the rows that there are now, which rises again when that row goes.
    """
    return Bound(_of_events_and_rows(cases), highest=False)


@in_views('ratio(add({Sold: "price"}), count(Sold))')
def ratio(numerator: Total, denominator: Total) -> Derived:
    """`numerator / denominator` of two sums, as a float; null if the denominator is 0."""
    for total in (numerator, denominator):
        must_be(Total, total, "is given {}, which is no sum")
    return Derived((numerator, denominator), ColumnType.FLOAT, Quotient)


@in_views('average({Sold: "price"})')
def average(cases: Mapping[CountedCase, Readable]) -> Derived:
    """The mean of the integers or decimals of these events, as a float; null if there is none.

    Events whose value is null do not count. It is one sum over another, so the order of arrival does not matter; for a
    mean that can also subtract, use `ratio` of two `add`s.
    """
    values = _of_events_and_rows(cases)
    return ratio(Total(values), Total({case: Known(value) for case, value in values.items()}))


def _of_events_and_rows(cases: Mapping[CountedCase, Readable]) -> Cases:
    """The cases of a fold that can take back what a row of a captured table was before."""
    return {row_case(case): expression(case_value) for case, case_value in checked_cases(cases).items()}


def sum_kind(kind: ColumnType, cases: Cases) -> ColumnType:
    """The type of sums of `kind`, if they are the same in every order; raises ValueError."""
    if kind.is_decimal:
        return ColumnType.decimal(MAX_DIGITS, kind.places)
    if kind is not ColumnType.INTEGER:
        raise ValueError(
            f"it adds {kind.value}s, but only sums of integers and decimals are the same in every order: use cents, "
            f"or a Decimal{digits_hint(cases)}"
        )
    return kind
