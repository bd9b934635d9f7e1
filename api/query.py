"""What a request asks of a view: filters, order, page, text and place, read from the query string by column type."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from api.errors import BadParameter
from projections.types import ColumnType
from projections.view import TableView

RANGES: Final = ("gt", "gte", "lt", "lte")
RELEVANCE: Final = "relevance"
DISTANCE: Final = "distance"
PAGING: Final = ("sort", "limit", "cursor", "after", "wait_ms", "fields")
SEARCHING: Final = ("q", "near", "within_km", "highlight")
MOST_ROWS: Final = 1000
MOST_VALUES: Final = 1000
MOST_TEXT: Final = 1000
LARGEST_INTEGER: Final = 2**63 - 1

Parameters = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Filter:
    """`column operator value`; operator is `in` (any of the values) or one of RANGES (one value)."""

    column: str
    operator: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Order:
    """One step of the order: a column, RELEVANCE or DISTANCE. Nulls come last either way."""

    column: str
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """One page of rows to find.

    order: it always has the key, after which nothing decides. beyond: the last row's values in that order. fields: the
    columns to show (empty: all that are stored). highlight: tell where the words were found.
    """

    filters: tuple[Filter, ...]
    order: tuple[Order, ...]
    limit: int = 50
    beyond: tuple[Any, ...] | None = None
    text: str = ""
    near: tuple[float, float] | None = None
    within_km: float | None = None
    fields: tuple[str, ...] = ()
    highlight: bool = False

    def stored(self, view: TableView) -> tuple[str, ...]:
        """The stored columns that showing `fields` takes: of a looked-up one, that which has the other row's key."""
        looked_up = view.looked_up
        names = (looked_up[name].on if name in looked_up else name for name in self.fields)
        return tuple(dict.fromkeys(names)) or tuple(view.types)


def every_column(view: TableView) -> tuple[str, ...]:
    """The columns of a row where none are named: those that are stored, then those that are looked up."""
    return (*view.types, *view.looked_up)


def operators(kind: ColumnType) -> tuple[str, ...]:
    """The operators that a column of this type can be filtered by."""
    match kind:
        case ColumnType.TEXT | ColumnType.INTEGER | ColumnType.FLOAT | ColumnType.TIME:
            return ("eq", "in", *RANGES)
        case ColumnType.BOOLEAN:
            return ("eq", "in")
        case _:
            return ()


def sortable(view: TableView) -> tuple[str, ...]:
    """The columns that rows can be ordered by."""
    return tuple(name for name, kind in view.types.items() if operators(kind))


def place_column(view: TableView) -> str | None:
    """The column that `near` measures from: the view's first point."""
    return next((name for name, kind in view.types.items() if kind is ColumnType.POINT), None)


def check_names(parameters: Parameters, known: Sequence[str], repeatable: Sequence[str] = ()) -> dict[str, str]:
    """The parameters by name; raises BadParameter for an unknown one, or for one given twice."""
    found: dict[str, str] = {}
    for name, value in parameters:
        if name not in known:
            raise BadParameter(name, "is no parameter here", tuple(known))
        if name in found and name not in repeatable:
            raise BadParameter(name, "is given more than once: give it once")
        check_text(name, value)
        found[name] = value
    return found


def read_query(view: TableView, parameters: Parameters, *, searching: bool = False) -> Query:
    """The query of a request; `beyond` is left out, for the cursor holds it. Raises BadParameter."""
    reserved = PAGING + (SEARCHING if searching else ())
    plain = check_names([each for each in parameters if each[0] in reserved], reserved)
    near, within_km = _read_place(view, plain) if searching else (None, None)
    text = plain.get("q", "")
    if len(text) > MOST_TEXT:
        raise BadParameter("q", f"has {len(text)} characters: at most {MOST_TEXT} are searched for")
    extra = ((RELEVANCE,) if text else ()) + ((DISTANCE,) if near else ())
    if "sort" in plain:
        order = _read_order(view, plain["sort"], extra)
    else:
        order = (Order(RELEVANCE, descending=True),) if text else ((Order(DISTANCE),) if near else ())
    named = {step.column for step in order}
    if view.key_name not in named:
        order = (*order, Order(view.key_name))
    if near is not None and DISTANCE not in named:
        order = (*order, Order(DISTANCE))  # it decides nothing after the key, but is told
    return Query(
        filters=_read_filters(view, [each for each in parameters if each[0] not in reserved], reserved),
        order=order,
        limit=read_integer("limit", plain.get("limit", "50"), 1, MOST_ROWS),
        text=text,
        near=near,
        within_km=within_km,
        fields=read_fields(view, plain),
        highlight=_read_highlight(plain),
    )


def read_fields(view: TableView, plain: Mapping[str, str]) -> tuple[str, ...]:
    """The columns of `fields=`, or all; raises BadParameter."""
    known = every_column(view)
    if "fields" not in plain:
        return known
    names = tuple(dict.fromkeys(plain["fields"].split(",")))
    for name in names:
        if name not in known:
            raise BadParameter("fields", f'names "{_short(name)}", which is no column of "{view.name}"', known)
    return names


def read_integer(name: str, text: str, lowest: int, highest: int) -> int:
    """A whole number of a parameter within bounds; raises BadParameter."""
    digits = text.removeprefix("-")
    value = int(text) if digits.isascii() and digits.isdigit() and len(digits) <= 19 else None
    if value is None or not lowest <= value <= highest:
        raise BadParameter(name, f'is "{_short(text)}": send a whole number from {lowest} to {highest}')
    return value


def read_time(name: str, text: str) -> datetime:
    """An RFC 3339 time with its offset from UTC; raises BadParameter."""
    try:
        # a "+" that nobody encoded arrives as a space
        time = datetime.fromisoformat(text.replace(" ", "+"))
        if time.tzinfo is not None and "T" in text.upper():
            return time.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise BadParameter(name, f'is "{_short(text)}": send an RFC 3339 time such as 2026-01-02T03:04:05Z')


def check_text(name: str, text: str) -> None:
    """Refuse text that no store can hold; raises BadParameter."""
    if "\0" in text:
        raise BadParameter(name, "holds the character U+0000, which no row has: leave it out")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise BadParameter(name, "holds half a surrogate pair, which no row has: send valid UTF-8")


def read_value(name: str, kind: ColumnType, text: str) -> Any:
    """The value of a filter on a column of this type; raises BadParameter."""
    match kind:
        case ColumnType.INTEGER:
            return read_integer(name, text, -LARGEST_INTEGER, LARGEST_INTEGER)
        case ColumnType.FLOAT:
            return _read_float(name, text)
        case ColumnType.BOOLEAN:
            if text not in ("true", "false"):
                raise BadParameter(name, f'is "{_short(text)}": send true or false')
            return text == "true"
        case ColumnType.TIME:
            return read_time(name, text)
        case _:
            return text


def _read_filters(view: TableView, parameters: Parameters, reserved: Sequence[str]) -> tuple[Filter, ...]:
    several: dict[str, list[Any]] = {}
    ranges: dict[tuple[str, str], Any] = {}
    for name, text in parameters:
        column, _, operator = name.partition(".")
        if column in view.looked_up:
            raise BadParameter(_short(name), _only_shown(view, column, "filter"), tuple(view.types))
        if column not in view.types:
            raise BadParameter(_short(name), f'is no column of "{view.name}"', (*view.types, *reserved))
        allowed = operators(view.types[column])
        if (operator or "eq") not in allowed:
            known = [f"{column}.{each}" for each in allowed]
            raise BadParameter(_short(name), f'filters "{column}" in a way that it cannot be', known)
        check_text(name, text)
        value = read_value(name, view.types[column], text)
        if operator in RANGES:
            if (column, operator) in ranges:
                raise BadParameter(name, "is given more than once: give it once")
            ranges[column, operator] = value
        else:
            several.setdefault(column, []).append(value)
            if len(several[column]) > MOST_VALUES:
                raise BadParameter(name, f"has more than {MOST_VALUES} values: ask in parts")
    exact = [Filter(column, "in", tuple(values)) for column, values in several.items()]
    return (*exact, *(Filter(column, operator, (value,)) for (column, operator), value in ranges.items()))


def _read_order(view: TableView, text: str, extra: Sequence[str]) -> tuple[Order, ...]:
    known = (*sortable(view), *extra)
    order: dict[str, Order] = {}
    for part in text.split(","):
        column = part.removeprefix("-")
        if column not in known and column in view.looked_up:
            raise BadParameter("sort", f'names "{column}", which {_only_shown(view, column, "sort")}', known)
        if column not in known:
            raise BadParameter("sort", f'names "{_short(part)}", by which "{view.name}" is not ordered', known)
        if column in order:
            raise BadParameter("sort", f'names "{column}" more than once')
        order[column] = Order(column, descending=part.startswith("-"))
        if column == view.key_name:
            break
    return tuple(order.values())


def _read_place(view: TableView, plain: Mapping[str, str]) -> tuple[tuple[float, float] | None, float | None]:
    if "near" not in plain:
        if "within_km" in plain:
            raise BadParameter("within_km", "needs near=latitude,longitude beside it")
        return None, None
    if place_column(view) is None:
        raise BadParameter("near", f'needs a column with places, and "{view.name}" has none')
    parts = plain["near"].split(",")
    if len(parts) != 2:
        raise BadParameter("near", f'is "{_short(plain["near"])}": send latitude,longitude in degrees')
    latitude, longitude = (_read_float("near", part) for part in parts)
    if not (-90 <= latitude <= 90 and -180 <= longitude <= 180):
        raise BadParameter("near", "is no place on Earth: latitude is within 90 degrees, longitude within 180")
    if "within_km" not in plain:
        return (latitude, longitude), None
    within_km = _read_float("within_km", plain["within_km"])
    if not 0 < within_km <= 20_040:
        raise BadParameter("within_km", "is no distance on Earth: send more than 0 and at most 20040")
    return (latitude, longitude), within_km


def _read_highlight(plain: Mapping[str, str]) -> bool:
    if plain.get("highlight", "false") not in ("true", "false"):
        raise BadParameter("highlight", f'is "{_short(plain["highlight"])}": send true or false')
    highlight = plain.get("highlight") == "true"
    if highlight and not plain.get("q"):
        raise BadParameter("highlight", "needs the words to find, q=, beside it")
    return highlight


def _read_float(name: str, text: str) -> float:
    try:
        value = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadParameter(name, f'is "{_short(text)}": send a finite number')
    return value


def _only_shown(view: TableView, column: str, verb: str) -> str:
    lookup = view.looked_up[column]
    there = f'"{lookup.columns[column]}" in the view "{lookup.view}"'
    return f"is looked up when a row is read, not stored with it: {verb} by a stored column here, or by {there}"


def _short(text: str) -> str:
    return text if len(text) <= 100 else text[:100] + "…"
