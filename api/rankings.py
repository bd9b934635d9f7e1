"""Which queries a ranking in Valkey answers: with the same rows in the same order as any other store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from headwater.api.requests.filters import Condition, Filter
from headwater.api.requests.query import Query
from headwater.projections.stores.valkey.rankings import Ranked, ranked_of
from headwater.projections.view import View


def ranking_for(view: View, query: Query) -> tuple[Ranked, str] | None:
    """The ranking that has exactly the rows of this query, in its order, and their group; None if there is none.

    It sorts by the query's column in the same direction, and then by the key; and the query has a filter for one value
    of each column of `within`, and no others.
    """
    first, *others = query.order
    if [(step.column, step.descending) for step in others] != [(view.key_name, False)]:
        return None
    values = _equal_to(query.filters)
    if values is None:
        return None
    for ranked in ranked_of(view):
        declared = ranked.ranking
        if (declared.column, declared.descending) != (first.column, first.descending):
            continue
        if values.keys() == set(declared.within):
            group = ranked.group([values[name] for name in declared.within])
            assert group is not None  # noqa: S101 - filters have no nulls
            return ranked, group
    return None


def _equal_to(filters: Sequence[Condition]) -> dict[str, Any] | None:
    """The value that each filter requires of its column; None if one requires anything else."""
    found: dict[str, Any] = {}
    for each in filters:
        if not isinstance(each, Filter) or each.operator != "in" or len(each.values) != 1:
            return None
        (value,) = each.values
        if found.get(each.column, value) != value:
            return None
        if isinstance(value, datetime) and value.microsecond % 1000:  # stored times have milliseconds
            return None
        found[each.column] = value
    return found
