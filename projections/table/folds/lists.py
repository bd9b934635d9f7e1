"""Bounded, ordered lists: `collect` in the order of the log, `top` by a number or time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from headwater.projections.limits import MAX_LISTED
from headwater.projections.table.declared import storage_word
from headwater.projections.table.expressions import Expression, Readable, expression
from headwater.projections.table.folds.fold import (
    Case,
    Cases,
    Derived,
    Ordering,
    Stored,
    checked_cases,
    entry_name,
    must_be_true_or_false,
    one_kind,
    positive,
)
from headwater.projections.table.folds.picks import ordered, rank
from headwater.projections.table.items import Entries
from headwater.projections.table.mistaken import in_views
from headwater.projections.table.monoids import Ranked, StateField
from headwater.projections.table.shown import SINGLE, Values
from headwater.projections.table.types import ColumnType

ORDER: Final = "_order"

Entry = Readable | Mapping[str, Readable]
"""What a list shows of an event: one value, or several by name."""


@storage_word("Listed")
@dataclass(frozen=True, eq=False)
class BoundedList:
    """A bounded list with an entry per event. See `collect` and `top`."""

    cases: Mapping[Case, Mapping[str, Expression]]
    limit: int
    highest: bool
    by: Cases | None = None

    def kind(self) -> ColumnType:
        return ColumnType.LIST

    def stored(self, name: str, ordering: Ordering) -> Stored:
        limit = positive(self.limit, MAX_LISTED)
        values = fields_of(self.cases)
        keys = ordered(ordering, self.by, next(iter(self.cases))).fields(ORDER)
        entry = (*keys, *values)
        lifted: dict[Case, Mapping[str, Expression]] = {}
        for case, shown in self.cases.items():
            brought = ordered(ordering, self.by, case).lifted(ORDER) | dict(shown)
            lifted[case] = {name: Entries(entry, (brought,), tuple(key.name for key in keys))}
        return Stored(Ranked(StateField(name, ColumnType.ENTRIES, entry=entry), keys, limit, self.highest), lifted)


@in_views('collect({Sold: {"price": "price"}}, limit=10)')
def collect(cases: Mapping[Case, Entry], limit: int = 100, *, newest: bool = True) -> Derived:
    """A list with an entry per event, in the order of the log (like `last`).

    cases: by event, what an entry shows: one value, or an object as in `{"price": "price", "at": envelope("time")}`.
    limit: of entries that the row keeps, at most 1,000; the oldest others are dropped, or the newest if `newest` is
    false. The position in the log decides, so live and replay drop the same entries.
    """
    must_be_true_or_false("newest", newest)
    return _listed(cases, limit, highest=newest, by=None, best_first=False)


@in_views('top(10, {Sold: "buyer"}, by="price")')
def top(
    limit: int, cases: Mapping[Case, Entry], by: Readable | Mapping[Case, Readable], *, highest: bool = True
) -> Derived:
    """The `limit` (at most 1,000) entries with the highest values of `by`, best first; the lowest if not `highest`.

    cases: what an entry shows, as for `collect`. by: a number or time; events for which it is null are left out. Of
    equal values, the later one is higher. Entries are never removed. For the top of changing values (the most expensive
    listings at today's prices) declare an index on the table, and sort when reading.
    """
    must_be_true_or_false("highest", highest)
    return _listed(cases, limit, highest=highest, by=rank(checked_cases(cases), by), best_first=highest)


def fields_of(cases: Mapping[Case, Mapping[str, Expression]]) -> tuple[StateField, ...]:
    """The common fields of all cases; raises ValueError if they differ."""
    names = [tuple(shown) for shown in cases.values()]
    if not names:
        raise ValueError("a fold needs at least one event")
    every = sorted({name for each in names for name in each})
    if any(set(each) != set(every) for each in names):
        raise ValueError(f"its cases show different fields: {', '.join(every)}")
    kinds = {name: one_kind({case: shown[name] for case, shown in cases.items()}) for name in names[0]}
    return tuple(StateField(name if name == SINGLE else entry_name(name), kind) for name, kind in kinds.items())


def _listed(cases: Mapping[Case, Entry], limit: int, *, highest: bool, by: Cases | None, best_first: bool) -> Derived:
    entries = {case: _entry(shown) for case, shown in checked_cases(cases).items()}
    names = next(iter(entries.values()), {})
    shown = partial(Values, names=() if SINGLE in names else tuple(names), best_first=best_first)
    return Derived((BoundedList(entries, limit, highest, by),), ColumnType.LIST, shown)


def _entry(shown: Entry) -> Mapping[str, Expression]:
    if isinstance(shown, Mapping):
        return {name: expression(readable) for name, readable in shown.items()}
    return {SINGLE: expression(shown)}
