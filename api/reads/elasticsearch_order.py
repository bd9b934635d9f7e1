"""The order of rows in Elasticsearch: what a search sorts by, and the place of a row in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from headwater.api.requests.query import RELEVANCE, Order, Query, place_column, typed_beyond
from headwater.eventlog.integers import HIGHEST, LOWEST
from headwater.projections.stores.elasticsearch.schema import field_of, has_text, text_of, value_of
from headwater.projections.table.types import ColumnType, format_time
from headwater.projections.view import View

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND: Final = timedelta(milliseconds=1)
INFINITE: Final = "Infinity"
"""How Elasticsearch writes the place of a number that is missing, and of the distance to a place that is."""


def sorting(step: Order, view: View, query: Query) -> list[dict[str, Any]]:
    """The clauses of `sort` for a step of the order.

    Elasticsearch sorts a missing integer as the last one, which a row may also have. These rows are told apart by a
    second clause for the same column: in the other direction, 0 comes after the last integer.
    """
    direction, other = ("desc", "asc") if step.descending else ("asc", "desc")
    if query.computes(step):
        if step.column == RELEVANCE:
            return [{"_score": {"order": direction}}]
        assert query.near is not None  # noqa: S101 - the distance is from there
        place = {"lat": query.near[0], "lon": query.near[1]}
        return [{"_geo_distance": {str(place_column(view)): place, "order": direction, "unit": "km"}}]
    field = field_of(step.column, view.types[step.column])
    first = {field: {"order": direction, "missing": "_last"}}
    if view.types[step.column] is ColumnType.INTEGER:
        return [first, {step.column: {"order": other, "missing": 0}}]
    return [first]


def search_after(view: View, query: Query) -> list[Any]:
    """The end of the previous page, as values of the clauses of `sort`; raises BadParameter if there is no such row."""
    ends = zip(query.order, typed_beyond(view, query), strict=True)
    return [value for step, end in ends for value in _values(step, view, query, end)]


def position(view: View, query: Query, values: Sequence[Any]) -> list[Any]:
    """The values of a row in the query's order, as rows have them. values: of the clauses of `sort`."""
    left = iter(values)
    return [_column_value(step, view, query, left) for step in query.order]


def _values(step: Order, view: View, query: Query, end: Any) -> list[Any]:
    missing = LOWEST if step.descending else HIGHEST
    infinite = f"-{INFINITE}" if step.descending else INFINITE
    if query.computes(step):
        return [INFINITE if end is None else end]  # a missing place is the furthest one in both directions
    kind = view.types[step.column]
    if has_text(kind):
        return [None if end is None else text_of(end, kind)]
    match kind:
        case ColumnType.UUID:
            return [None if end is None else str(end)]
        case ColumnType.INTEGER:
            return [missing, 0] if end is None else [end, end]
        case ColumnType.TIME:
            return [missing if end is None else (end - EPOCH) // MILLISECOND]
        case ColumnType.BOOLEAN:
            return [missing if end is None else int(end)]
        case ColumnType.FLOAT:
            return [infinite if end is None else end]
        case _:
            return [end]


def _column_value(step: Order, view: View, query: Query, left: Iterator[Any]) -> Any:
    value = next(left)
    if query.computes(step):
        return None if isinstance(value, str) else value
    kind = view.types[step.column]
    if kind is ColumnType.INTEGER:
        second = next(left)
        return value if value == second else None
    if has_text(kind):
        return None if value is None else value_of(value, kind)
    if isinstance(value, str) and kind is ColumnType.FLOAT:
        return None
    if kind in (ColumnType.TIME, ColumnType.BOOLEAN) and value in (LOWEST, HIGHEST):
        return None
    if kind is ColumnType.TIME:
        return format_time(EPOCH + value * MILLISECOND)
    return bool(value) if kind is ColumnType.BOOLEAN else value
