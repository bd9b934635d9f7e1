"""The folds that a view's columns are declared with: what each event contributes, and what the column shows.

    price = last({Listed: "price", PriceChanged: "price"})
    sold = count(Sold)
    prices = members({Listed: [(1, "price")], Withdrawn: [(-1, "price")]})
    lowest_price = lowest(prices)

A case names an event class and what is read of it: the name of a field, a number, or an expression (`value("sold")`,
`minus("price", "previous_price")`). EVERY stands for any event, and then only the envelope can be read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from commands.aggregate import Event
from projections.expressions import Expression, Readable, expression
from projections.types import ColumnType


class _Every:
    def __repr__(self) -> str:
        return "EVERY"


EVERY: Final = _Every()
Case = type[Event] | _Every


@dataclass(frozen=True, eq=False)
class Latest:
    """The value of the last event (or first) among the cases, in log order. See `last` and `first`."""

    cases: Mapping[Case, Expression]
    highest: bool


@dataclass(frozen=True, eq=False)
class Total:
    """The sum of a whole number from each event. See `add` and `count`."""

    cases: Mapping[Case, Expression]


@dataclass(frozen=True, eq=False)
class Bound:
    """The highest or lowest value that any event brought. See `maximum` and `minimum`."""

    cases: Mapping[Case, Expression]
    highest: bool


@dataclass(frozen=True, eq=False)
class Members:
    """Which values are held, and how often. See `members`."""

    cases: Mapping[Case, tuple[tuple[int, Expression], ...]]


Fold = Latest | Total | Bound | Members


@dataclass(frozen=True, eq=False)
class Ratio:
    """`numerator / denominator`, null where the denominator is 0 or absent. See `ratio`."""

    numerator: Total
    denominator: Total


@dataclass(frozen=True, eq=False)
class Edge:
    """The lowest or highest value held. See `lowest` and `highest`."""

    of: Members
    highest: bool


Derived = Ratio | Edge
Column = Fold | Derived


def last(cases: Mapping[Case, Readable]) -> Latest:
    """The value that the latest of these events brought.

    Later means a higher version within a stream; across streams, a later time (then partition and offset). The
    ordering key is stored beside the value, so the order of arrival never shows.
    """
    return Latest(_expressions(cases), highest=True)


def first(cases: Mapping[Case, Readable]) -> Latest:
    """The value that the earliest of these events brought; ordered as `last`."""
    return Latest(_expressions(cases), highest=False)


def add(cases: Mapping[Case, Readable]) -> Total:
    """The sum of an integer from each event; a negative one takes back. Floats are refused: their order would show."""
    return Total(_expressions(cases))


def count(*events: Case) -> Total:
    """How many of these events there were."""
    return Total({event: expression(1) for event in events})


def maximum(cases: Mapping[Case, Readable]) -> Bound:
    """The highest value that these events ever brought; see `highest` for one that falls when its owner leaves."""
    return Bound(_expressions(cases), highest=True)


def minimum(cases: Mapping[Case, Readable]) -> Bound:
    """The lowest value that these events ever brought; see `lowest` for one that rises when its owner leaves."""
    return Bound(_expressions(cases), highest=False)


def members(cases: Mapping[Case, Sequence[tuple[int, Readable]]]) -> Members:
    """The integers that are held: each event puts some in (+1) and takes some out (-1).

    The row keeps every distinct value, so use it where these are few (the asking prices of a city), and order by an
    index of the table below where they are many. Not a column itself: read it with `lowest` and `highest`.
    """
    return Members(
        {
            event: tuple((number, expression(readable)) for number, readable in changes)
            for event, changes in cases.items()
        }
    )


def lowest(of: Members) -> Edge:
    """The lowest value held now; null when none is."""
    return Edge(of, highest=False)


def highest(of: Members) -> Edge:
    """The highest value held now; null when none is."""
    return Edge(of, highest=True)


def ratio(numerator: Total, denominator: Total) -> Ratio:
    """`numerator / denominator` of two sums, as a float; null where the denominator is 0. An average is add / count."""
    return Ratio(numerator, denominator)


def folds_of(column: Column) -> tuple[Fold, ...]:
    """The folds that a column is computed from: itself, or those that it derives from."""
    match column:
        case Ratio():
            return (column.numerator, column.denominator)
        case Edge():
            return (column.of,)
        case _:
            return (column,)


def lifted_type(fold: Fold) -> ColumnType:
    """The type that every case of `fold` brings; raises ValueError where they differ or do not fit the fold."""
    kinds = {
        part.kind(None if isinstance(event, _Every) else event)
        for event, read in fold.cases.items()
        for part in ([read] if not isinstance(read, tuple) else [each for _, each in read])
    }
    if not kinds:
        raise ValueError("a fold needs at least one event")
    if len(kinds) > 1:
        raise ValueError(f"its cases have different types: {', '.join(sorted(kind.value for kind in kinds))}")
    (kind,) = kinds
    if isinstance(fold, Total | Members) and kind is not ColumnType.INTEGER:
        raise ValueError(
            f"it adds {kind.value}s: only integers add up to the same in every order (use cents, not dollars)"
        )
    if isinstance(fold, Bound) and kind not in (ColumnType.INTEGER, ColumnType.FLOAT, ColumnType.TIME):
        raise ValueError(f"a highest or lowest needs numbers or times, not {kind.value}")
    return kind


def _expressions(cases: Mapping[Case, Readable]) -> dict[Case, Expression]:
    return {event: expression(readable) for event, readable in cases.items()}
