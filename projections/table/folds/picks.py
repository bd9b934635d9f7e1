"""`last` and `first`: the value of the latest, or the earliest, of some events."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from headwater.projections.table.declared import storage_word
from headwater.projections.table.expressions import Readable, Sortable, expression
from headwater.projections.table.folds.fold import Case, Cases, Ordering, Stored, case_text, digits_hint, one_kind, read
from headwater.projections.table.mistaken import in_views
from headwater.projections.table.monoids import Pick, StateField
from headwater.projections.table.types import ColumnType

RANKED = (ColumnType.INTEGER, ColumnType.FLOAT, ColumnType.TIME, ColumnType.DATE)


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
    return ordering.under(part)


def stored_together(folds: Sequence[tuple[str, Latest]], name: str, ordering: Ordering) -> Stored:
    """The folds with these names (all with equal `together`) behind one ordering key with this name."""
    (_, one), *_ = folds
    order = {case: one.order(ordering, case) for case in one.cases}
    lifted = {
        case: each.lifted(name) | {state: fold.cases[case] for state, fold in folds} for case, each in order.items()
    }
    values = tuple(StateField(state, fold.kind()) for state, fold in folds)
    fields = next(iter(order.values())).fields(name)
    return Stored(Pick(fields, values, one.highest), lifted)
