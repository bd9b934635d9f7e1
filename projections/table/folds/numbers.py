"""Sums and extremes: `add`, `count`, `average`, `ratio`, `maximum`, `minimum`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.eventlog.declaring import shown
from headwater.projections.table.conditions import Known
from headwater.projections.table.decimals import MAX_DIGITS
from headwater.projections.table.declared import storage_word
from headwater.projections.table.expressions import Readable, expression
from headwater.projections.table.folds.fold import (
    Cases,
    CountedCase,
    Derived,
    Ordering,
    Stored,
    checked_cases,
    digits_hint,
    must_be_case,
    one_kind,
    row_case,
)
from headwater.projections.table.folds.picks import is_ranked
from headwater.projections.table.mistaken import in_views
from headwater.projections.table.monoids import StateField, extreme_of, sum_of
from headwater.projections.table.shown import Quotient
from headwater.projections.table.types import ColumnType


@storage_word("Total")
@dataclass(frozen=True, eq=False)
class Total:
    """The sum of an integer or decimal from each event. See `add` and `count`."""

    cases: Cases

    def kind(self) -> ColumnType:
        return sum_kind(one_kind(self.cases), self.cases)

    def stored(self, name: str, ordering: Ordering) -> Stored:
        return Stored(sum_of(StateField(name, self.kind())), {case: {name: each} for case, each in self.cases.items()})


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
        monoid = extreme_of(StateField(name, self.kind()), highest=self.highest)
        return Stored(monoid, {case: {name: each} for case, each in self.cases.items()})


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
    for each in (numerator, denominator):
        if not isinstance(each, Total):
            raise ValueError(f"is given {shown(each)}, which is no sum")
    return Derived((numerator, denominator), ColumnType.FLOAT, Quotient)


@in_views('average({Sold: "price"})')
def average(cases: Mapping[CountedCase, Readable]) -> Derived:
    """The mean of the integers or decimals of these events, as a float; null if there is none.

    Events whose value is null do not count. It is one sum over another, so the order of arrival does not matter; for a
    mean that can also subtract, use `ratio` of two `add`s.
    """
    values = _of_events_and_rows(cases)
    return ratio(Total(values), Total({case: Known(each) for case, each in values.items()}))


def _of_events_and_rows(cases: Mapping[CountedCase, Readable]) -> Cases:
    """The cases of a fold that can take back what a row of a captured table was before."""
    return {row_case(case): expression(each) for case, each in checked_cases(cases).items()}


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
