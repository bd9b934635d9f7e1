"""What compiled source calls: values in the form of rows, null-safe operators, and lists of rows."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache, lru_cache
from typing import Any, Final

import msgspec

from headwater.commands.declaring.times import TIME, is_time
from headwater.eventlog.integers import HIGHEST, LOWEST
from headwater.projections.reading.lists import Gathered, PartRows, Ranks, Values, combined
from headwater.projections.table.decimals import EXACT, added, decimal_text, exact_decimal, extreme, sortable_text
from headwater.projections.table.expressions import attribute, format_milliseconds
from headwater.projections.table.folds.arranging import group_text
from headwater.projections.table.items import as_list
from headwater.projections.table.json_text import canonical_text, dumps, loads
from headwater.projections.table.monoids import register_of
from headwater.projections.table.row_keys import key_of_parts
from headwater.projections.table.types import ColumnType, exact_value, fitting, format_time

__all__ = [
    "ColumnType",
    "Decimal",
    "Gathered",
    "PartRows",
    "Ranks",
    "Unclear",
    "Values",
    "above",
    "as_float",
    "at_least",
    "at_most",
    "below",
    "combined",
    "date_text",
    "decimal_in_rows",
    "decimal_of_scaled",
    "decimals_of",
    "differing",
    "equal",
    "extreme_of_texts",
    "format_milliseconds",
    "group_text",
    "is_null",
    "json_text",
    "kept",
    "key_of_parts",
    "log_place",
    "minus",
    "place",
    "plus",
    "registers",
    "scaled_decimals_of",
    "scaled_difference",
    "scaled_or_none",
    "scaled_sum",
    "sortable",
    "sum_of_texts",
    "time_or_null",
    "time_text",
    "times",
    "unlike_items",
    "uuid_text",
]
"""The names that compiled source uses."""

_TIME: Final = re.compile(TIME)
KNOWN_DECIMALS: Final = 10_000
"""Texts of decimals, per type, that are read once per process: most prices and fees come again and again."""


class Unclear(ValueError):
    """An event has a value that compiled source does not read: only its slower reading says what it is."""


@lru_cache(maxsize=1024)
def time_text(text: str | None) -> str | None:
    """A time in the form of rows; raises Unclear if it is none."""
    if text is None:
        return None
    try:
        if not _TIME.fullmatch(text):
            raise Unclear(text)
        time = datetime.fromisoformat(text)
        return format_time(time if time.tzinfo else time.replace(tzinfo=UTC))
    except (ValueError, OverflowError) as error:
        raise Unclear(text) from error


def time_or_null(text: str | None) -> str | None:
    """A time of an item that may be null, in the form of rows: null if it is none."""
    return time_text(text) if is_time(text) else None


def is_null(raw: msgspec.Raw | None) -> bool:
    """Whether a raw field is missing or null."""
    return raw is None or bytes(raw) == b"null"


def unlike_items(
    raw: msgspec.Raw, item: type[msgspec.Struct], types: Mapping[str, ColumnType], always: Sequence[str]
) -> list[Any]:
    """The items of a list that is not as declared: a value that does not fit its type is null.

    item: the class of its items. types: of their fields. always: those that must not be null; else it raises Unclear.
    """
    entries = []
    items = as_list(loads(bytes(raw)))
    for entry in [None] if items is None and always else items or ():
        read = {name: fitting(entry.get(name), kind) for name, kind in types.items()} if isinstance(entry, dict) else {}
        if lacking := [name for name in always if read.get(name) is None]:
            raise Unclear(lacking[0])
        values = {
            name: msgspec.Raw(dumps(value).encode()) if types[name] is ColumnType.JSON and value is not None else value
            for name, value in read.items()
        }
        entries.append(item(**{attribute(name): value for name, value in values.items()}))
    return entries


def json_text(raw: msgspec.Raw | None) -> str | None:
    """A field that is not a scalar, in the form of rows."""
    value = None if raw is None else loads(bytes(raw))
    if isinstance(value, str):
        return canonical_text(value)
    return None if value is None else dumps(value)


def log_place(timestamp_ms: int, partition: int, offset: int) -> str:
    """See LogPlace."""
    return f"{timestamp_ms:015d}|{partition:05d}|{offset:019d}"


def _exact(kind: ColumnType) -> Callable[[str | None], Any]:
    """What reads a text of this type in the form of rows; it raises Unclear if it is none."""

    @lru_cache(maxsize=4096)
    def read(text: str | None) -> Any:
        value = None if text is None else exact_value(text, kind)
        if value is None and text is not None:
            raise Unclear(text)
        return value

    return read


date_text, uuid_text = _exact(ColumnType.DATE), _exact(ColumnType.UUID)


@cache
def decimals_of(digits: int, places: int) -> Callable[[str | float | None], Decimal | None]:
    """What reads a field as a decimal with so many digits and places; it raises Unclear if the field is none."""
    # what Headwater writes: a text without an exponent, with digits that fit
    whole = f"[0-9]{{1,{digits - places}}}" if digits > places else "0"
    usual = re.compile(rf"-?{whole}(?:\.[0-9]{{1,{places}}})?" if places else f"-?{whole}").fullmatch
    known: dict[str | float | None, Decimal] = {}

    def read(value: str | float | None) -> Decimal | None:
        offset = known.get(value)
        if offset is not None:
            return offset
        if value.__class__ is str and usual(value):
            offset = Decimal(value)
            if len(known) < KNOWN_DECIMALS:
                known[value] = offset
            return offset
        return None if value is None else _exact_decimal(value, digits, places)

    return read


@cache
def scaled_decimals_of(digits: int, places: int, scale: int) -> Callable[[Any], int | None]:
    """Like `decimals_of`, but reads 10^scale times the value, which is an integer: these are added up faster."""
    factor: int = 10 ** (scale - places)
    point = -1 - places
    known: dict[str | float, int] = {}
    repeats = True

    def read(value: Any) -> int | None:
        nonlocal repeats
        if value is None:
            return None
        if repeats:
            read_before = known.get(value)
            if read_before is not None:
                return read_before
        number = scaled(value)
        if repeats and value.__class__ is str:
            known[value] = number
            repeats = len(known) < KNOWN_DECIMALS
        return number

    def scaled(value: Any) -> int:
        try:
            # what Headwater writes, checked without a regular expression: all places, and no sign
            if value[point] == "." and places:
                written = value.replace(".", "")
                number = len(written)
                if places < number <= digits and number == len(value) - 1 and value.isascii() and written.isdecimal():
                    return int(written) * factor
        except (TypeError, IndexError):
            pass
        return scaled_from(_exact_decimal(value, digits, places), scale)

    return read


def _exact_decimal(value: str | float, digits: int, places: int) -> Decimal:
    decimal = exact_decimal(value, digits, places)
    if decimal is None:
        raise Unclear(str(value)[:100])
    return decimal


def scaled_from(value: Decimal | int, scale: int) -> int:
    """10^scale times a value with at most so many places."""
    return value * 10**scale if isinstance(value, int) else int(EXACT.scaleb(value, scale))


def scaled_or_none(value: Decimal | int | None, scale: int) -> int | None:
    """Like `scaled_from`, null-safe."""
    return None if value is None else scaled_from(value, scale)


def scaled_sum(left: int | None, right: int | None) -> int | None:
    """The sum of two scaled values, null-safe."""
    return None if left is None or right is None else left + right


def scaled_difference(left: int | None, right: int | None) -> int | None:
    """The difference of two scaled values, null-safe."""
    return None if left is None or right is None else left - right


def decimal_of_scaled(value: int, places: int) -> str:
    """A decimal in the form of rows, from 10^places times its value. It may have more digits than its type."""
    if not places:
        return str(value)
    text = f"{abs(value):0{places + 1}d}"
    return f"{'-' if value < 0 else ''}{text[:-places]}.{text[-places:]}"


def decimal_in_rows(value: Decimal | int | None, places: int) -> str | None:
    """A decimal in the form of rows, with so many places."""
    return None if value is None else decimal_text(value, places)


def sortable(value: Decimal | int | None, digits: int, places: int) -> str | None:
    """See Sortable."""
    return None if value is None else sortable_text(Decimal(value), digits, places)


def sum_of_texts(left: str | int | None, right: str | int | None, places: int) -> str:
    """The sum of two decimals in the form of rows; it may have too many digits."""
    point = -1 - places
    if places and isinstance(left, str) and isinstance(right, str) and left[point] == "." == right[point]:
        return decimal_of_scaled(int(left.replace(".", "")) + int(right.replace(".", "")), places)
    return added(left, right, places)


def extreme_of_texts(left: str | None, right: str | None, highest: bool) -> str | None:
    """The higher, or lower, of two decimals in the form of rows."""
    return right if left is None else left if right is None else extreme(left, right, highest=highest)


def place(latitude: float | None, longitude: float | None) -> dict[str, float] | None:
    """See Point."""
    return None if latitude is None or longitude is None else {"lat": latitude, "lon": longitude}


def _null_safe(exact: Callable[[Any, Any], Decimal], plain: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """An operator of Arithmetic, by that of decimals and that of other numbers."""

    def operate(left: Any, right: Any) -> Any:
        if left is None or right is None:
            return None
        if left.__class__ is Decimal or right.__class__ is Decimal:
            return exact(left, right)
        result = plain(left, right)
        return result if LOWEST <= result <= HIGHEST or isinstance(result, float) else None

    return operate


def _comparing(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], bool]:
    """An operator of Comparison, which is false if either side is null."""

    def holds(left: Any, right: Any) -> bool:
        return left is not None and right is not None and bool(compare(left, right))

    return holds


plus = _null_safe(EXACT.add, operator.add)
minus = _null_safe(EXACT.subtract, operator.sub)
times = _null_safe(EXACT.multiply, operator.mul)
equal, differing = _comparing(operator.eq), _comparing(operator.ne)
below, at_most = _comparing(operator.lt), _comparing(operator.le)
above, at_least = _comparing(operator.gt), _comparing(operator.ge)


def as_float(value: int | None) -> float | None:
    """An integer in a column of floats."""
    return None if value is None else float(value)


def kept(entries: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> list[dict[str, Any]]:
    """The entries that have all `keys`, without nulls; see Entries."""
    return [
        {name: value for name, value in entry.items() if value is not None}
        for entry in entries
        if all(entry[key] is not None for key in keys)
    ]


def registers(value: Any) -> list[dict[str, int]]:
    """See Register."""
    return [] if value is None else [register_of(value)]
