"""The query of a request: filters, order, page, text and place, and the opaque cursor with which it continues."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import orjson

from headwater.api.errors import BadParameter
from headwater.api.requests.filters import OR, Condition, Filter, only_shown, operators, read_filters
from headwater.api.requests.parameters import Parameters, check_names, read_boolean, read_float, read_integer, read_time
from headwater.eventlog.integers import fits_64_bits
from headwater.eventlog.times import shortened
from headwater.projections.table.types import ColumnType, exact_value
from headwater.projections.view import View

RELEVANCE: Final = "relevance"
DISTANCE: Final = "distance"
PAGING: Final = ("sort", "limit", "cursor", "count", "after", "wait_ms", "fields")
SEARCHING: Final = ("q", "near", "within_km", "highlight")
MAX_ROWS: Final = 1000
MAX_TEXT: Final = 1000
STALE = "is not a cursor of this query: use `next` of its last page, or omit it to start again"


@dataclass(frozen=True, slots=True)
class Order:
    """One step of the order: a column, RELEVANCE or DISTANCE. Nulls come last in both directions."""

    column: str
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """One page of rows to find.

    order: it always includes the key, which makes it total.
    beyond: the last row's values in that order, as rows have them in JSON, whichever store read it.
    fields: the columns to return (empty: all stored ones).
    highlight: return where the words were found.
    count: count all rows that match the filters, including those of other pages.
    unsearched: columns that `text` does not find, because the caller may not read them.
    """

    filters: tuple[Condition, ...]
    order: tuple[Order, ...]
    limit: int = 50
    beyond: tuple[Any, ...] | None = None
    text: str = ""
    near: tuple[float, float] | None = None
    within_km: float | None = None
    fields: tuple[str, ...] = ()
    highlight: bool = False
    count: bool = False
    unsearched: frozenset[str] = frozenset()

    @property
    def includes_matches(self) -> bool:
        """Whether it requests information about how a row matches."""
        return self.highlight or any(step.column in (RELEVANCE, DISTANCE) for step in self.order)

    def computes(self, step: Order) -> bool:
        """Whether a step is no column: the relevance of the words, or the distance from the place."""
        return (step.column == RELEVANCE and bool(self.text)) or (step.column == DISTANCE and self.near is not None)

    def stored(self, view: View) -> tuple[str, ...]:
        """The stored columns that `fields` need: for a looked-up column, the column with the other row's key."""
        looked_up = view.looked_up
        names = (looked_up[name].on if name in looked_up else name for name in self.fields)
        return tuple(dict.fromkeys(names)) or tuple(view.types)


def every_column(view: View) -> tuple[str, ...]:
    """The columns of a row by default: stored ones, then looked-up ones."""
    return (*view.types, *view.looked_up)


def sortable(view: View) -> tuple[str, ...]:
    """The columns that rows can be sorted by."""
    return tuple(name for name, kind in view.types.items() if "eq" in operators(kind) and name not in view.personal)


def place_column(view: View) -> str | None:
    """The column from which `near` measures: the view's first point."""
    return next((name for name, kind in view.types.items() if kind is ColumnType.POINT), None)


def read_query(view: View, parameters: Parameters, *, searching: bool = False, clear: Collection[str] = ()) -> Query:
    """The query of a request, without `beyond`, which is in the cursor. Raises BadParameter.

    clear: see `read_filters`.
    """
    reserved = PAGING + (SEARCHING if searching else ())
    plain = check_names([parameter for parameter in parameters if parameter[0] in reserved], reserved)
    near, within_km = _read_place(view, plain) if searching else (None, None)
    text = plain.get("q", "")
    if len(text) > MAX_TEXT:
        raise BadParameter("q", f"has {len(text)} characters: at most {MAX_TEXT} are allowed")
    highlight = read_boolean("highlight", plain.get("highlight", "false"))
    if highlight and not text:
        raise BadParameter("highlight", "requires q= with the words to find")
    extra = ((RELEVANCE,) if text else ()) + ((DISTANCE,) if near else ())
    if "sort" in plain:
        order = _read_order(view, plain["sort"], extra)
    elif extra:
        order = (Order(RELEVANCE, descending=True),) if text else (Order(DISTANCE),)
    else:
        order = tuple(map(Order, view.key_order))
    named = {step.column for step in order}
    if view.key_name not in named:
        order = (*order, Order(view.key_name))
    if near is not None and DISTANCE not in named:
        order = (*order, Order(DISTANCE))  # it does not affect the order after the key, but is returned
    return Query(
        filters=read_filters(
            view, [parameter for parameter in parameters if parameter[0] not in reserved], (*reserved, OR), clear
        ),
        order=order,
        limit=read_integer("limit", plain.get("limit", "50"), 1, MAX_ROWS),
        text=text,
        near=near,
        within_km=within_km,
        fields=read_fields(view, plain),
        highlight=highlight,
        count=_read_count(view, plain),
    )


def read_fields(view: View, plain: Mapping[str, str]) -> tuple[str, ...]:
    """The columns of `fields=`, or all; raises BadParameter."""
    known = every_column(view)
    if "fields" not in plain:
        return known
    names = tuple(dict.fromkeys(plain["fields"].split(",")))
    for name in names:
        if name not in known:
            raise BadParameter("fields", f'names "{shortened(name)}", which is not a column of "{view.name}"', known)
    return names


def _read_order(view: View, text: str, extra: Sequence[str]) -> tuple[Order, ...]:
    known = (*sortable(view), *extra)
    order: dict[str, Order] = {}
    for part in text.split(","):
        column = part.removeprefix("-")
        if column not in known and column in view.looked_up:
            raise BadParameter("sort", f'names "{column}", which {only_shown(view, column, "sort")}', known)
        if column not in known:
            raise BadParameter("sort", f'names "{shortened(part)}", which "{view.name}" cannot be sorted by', known)
        if column in order:
            raise BadParameter("sort", f'names "{column}" more than once')
        order[column] = Order(column, descending=part.startswith("-"))
        if column == view.key_name:
            break
    return tuple(order.values())


def _read_place(view: View, plain: Mapping[str, str]) -> tuple[tuple[float, float] | None, float | None]:
    if "near" not in plain:
        if "within_km" in plain:
            raise BadParameter("within_km", "requires near=latitude,longitude")
        return None, None
    if place_column(view) is None:
        raise BadParameter("near", f'requires a column with places, but "{view.name}" has none')
    parts = plain["near"].split(",")
    if len(parts) != 2:
        raise BadParameter("near", f'is "{shortened(plain["near"])}": send latitude,longitude in degrees')
    latitude, longitude = (read_float("near", part) for part in parts)
    if not (-90 <= latitude <= 90 and -180 <= longitude <= 180):
        raise BadParameter("near", "is out of range: latitude is from -90 to 90 degrees, longitude from -180 to 180")
    if "within_km" not in plain:
        return (latitude, longitude), None
    within_km = read_float("within_km", plain["within_km"])
    if not 0 < within_km <= 20_040:
        raise BadParameter("within_km", "is out of range: send more than 0 and at most 20040")
    return (latitude, longitude), within_km


def _read_count(view: View, plain: Mapping[str, str]) -> bool:
    try:
        return read_boolean("count", plain.get("count", "false"))
    except BadParameter as error:
        if "count" not in view.types:
            raise
        raise BadParameter("count", f"{error.problem}; to filter by the column, use count.eq=") from error


def write_cursor(view: View, query: Query, last: Sequence[Any]) -> str:
    """The cursor after a row with the values `last` in the query's order."""
    document = orjson.dumps([_digest(view, query), *last])
    return base64.urlsafe_b64encode(document).rstrip(b"=").decode()


def continued(view: View, query: Query, cursor: str) -> Query:
    """`query` from `cursor` on; raises BadParameter if the cursor is invalid, or of another query."""
    try:
        document = orjson.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
    except (ValueError, binascii.Error) as error:
        raise BadParameter("cursor", STALE) from error
    if not isinstance(document, list) or len(document) != len(query.order) + 1 or document[0] != _digest(view, query):
        raise BadParameter("cursor", STALE)
    if not all(value is None or isinstance(value, str | int | float) for value in document[1:]):
        raise BadParameter("cursor", STALE)
    return replace(query, beyond=tuple(document[1:]))


def typed_beyond(view: View, query: Query) -> tuple[Any, ...]:
    """The end of the previous page, as values of the columns' types; checked, because clients could make up cursors."""
    values = tuple(
        _value(ColumnType.FLOAT if query.computes(step) else view.types[step.column], value)
        for step, value in zip(query.order, query.beyond or (), strict=True)
    )
    if any(step.column == view.key_name and value is None for step, value in zip(query.order, values, strict=True)):
        raise BadParameter("cursor", STALE)  # the key is never null
    return values


def _value(kind: ColumnType, value: Any) -> Any:
    match kind:
        case _ if value is None:
            return None
        case ColumnType.TIME if isinstance(value, str):
            return read_time("cursor", value)
        case ColumnType.TEXT if isinstance(value, str) and "\0" not in value:
            return value
        case ColumnType.DATE if (found := exact_value(value, kind)) is not None:
            return date.fromisoformat(str(found))
        case ColumnType.UUID if (found := exact_value(value, kind)) is not None:
            return UUID(str(found))
        case _ if kind.is_decimal and isinstance(value, str) and (found := exact_value(value, kind)) is not None:
            return found
        case ColumnType.BOOLEAN if isinstance(value, bool):
            return value
        case ColumnType.INTEGER if type(value) is int and fits_64_bits(value):
            return value
        case ColumnType.FLOAT if type(value) in (int, float):
            return float(value) + 0.0  # -0.0 becomes 0.0: they are equal, but Elasticsearch sorts by the sign
        case _:
            raise BadParameter("cursor", STALE)


def _digest(view: View, query: Query) -> str:
    filters = sorted(map(_described, query.filters), key=orjson.dumps)
    parts: list[Any] = [view.tag, filters, [(step.column, step.descending) for step in query.order]]
    parts += [query.text, query.near, query.within_km]
    return hashlib.blake2b(orjson.dumps(parts), digest_size=8).hexdigest()


def _written(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal | date | UUID) else value


def _described(condition: Condition) -> list[Any]:
    if isinstance(condition, Filter):
        values = [_written(value) for value in condition.values]
        return [condition.column, condition.operator, values]
    return sorted(map(_described, condition.filters), key=orjson.dumps)
