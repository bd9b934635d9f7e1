"""The values of columns in Debezium's records, and in the JSON of rows."""

from __future__ import annotations

import base64
import hashlib
import math
import re
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from headwater.eventlog.capturing.columns import Column, Kind, Truncated
from headwater.eventlog.integers import fits_64_bits

_MARK: Final = "__headwater_unchanged__"
PLACEHOLDER: Final = f"\0{_MARK}"
"""What Debezium writes in place of a long value that an update did not change, because PostgreSQL does not send it.

No text in PostgreSQL has the character that it begins with, so that it is no value, even if a mask shortens it.
"""
_BASE64: Final = base64.b64encode(PLACEHOLDER.encode()).decode()
_UUID: Final = str(uuid.UUID(bytes=hashlib.md5(PLACEHOLDER.encode(), usedforsecurity=False).digest(), version=3))
_FORMS: Final[Mapping[Kind, tuple[Any, ...]]] = {
    Kind.BYTES: (_BASE64,),
    Kind.ARRAY: ([PLACEHOLDER],),
    Kind.JSON: ({PLACEHOLDER: PLACEHOLDER},),  # of an hstore
}
_ITEMS: Final[Mapping[Kind | None, tuple[Any, ...]]] = {
    Kind.BYTES: ([_BASE64],),
    Kind.INTEGER: (list(PLACEHOLDER.encode()),),
    Kind.UUID: ([_UUID],),
}
"""Its forms in columns that are no text, by kind, and in arrays by that of their items. People can write some of these
into a column, which is why they count in updates only: a row that is read again has its values."""
_STAND_IN_BYTES: Final = tuple(part.encode() for part in (_MARK, _BASE64, _UUID, ",".join(map(str, _MARK.encode()))))
"""One of these is in every record with a whole stand-in."""
NOT_FINITE: Final = frozenset(
    {"NaN", "Infinity", "-Infinity", "NAN", "POSITIVE_INFINITY", "NEGATIVE_INFINITY"}  # of floats, of numeric
)
LONG_CHARACTERS: Final = 16
"""A value that PostgreSQL stores apart is longer than this, as text."""

TYPES: Final[Mapping[Kind, Any]] = {
    Kind.INTEGER: int | str | None,
    Kind.FLOAT: float | str | None,
    Kind.BOOLEAN: bool | None,
    Kind.DECIMAL: str | int | float | None,
    Kind.JSON: Any,
    Kind.ARRAY: list[Any] | dict[str, Any] | str | None,
}
"""What a record may have for a column of each kind; `str | None` if it is not listed."""

_YEARS: Final = re.compile(r"(?!0000)[0-9]{4}-")
_HALF: Final = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_LARGE: Final = re.compile(r"[0-9]{19}")
"""May be an integer of more than 64 bits."""
INTERVAL: Final = r"P(-?[0-9]+)Y(-?[0-9]+)M(-?[0-9]+)DT(-?[0-9]+)H(-?[0-9]+)M(-?[0-9]+(?:\.[0-9]+)?(?:E-?[0-9]+)?)S"
"""How Debezium writes an interval, with all its parts."""
_INTERVAL: Final = re.compile(INTERVAL)

Convert = Callable[[Any], Any]
"""Makes the value in a row of a value in a record; raises ValueError with the reason if it cannot."""


def converter(column: Column) -> Convert | None:
    """How values of this column are converted; None if they are the same in a row."""
    if column.kind is Kind.ENUM:
        choices = frozenset(column.choices)
        return lambda value: _choice(value, choices)
    if column.kind is Kind.ARRAY:
        item = CONVERTERS.get(column.item) if column.item else None
        return lambda value: _array(value, item)
    return CONVERTERS.get(column.kind)


def stand_ins(column: Column, *, is_update: bool = True) -> tuple[Any, ...]:
    """What records have for this column if they do not contain its value. A shortened PLACEHOLDER is never a value, and
    the live query marks with a whole one what is unchanged.

    is_update: whether the record is of an update; all others have all values.
    """
    if isinstance(column.mask, Truncated):
        return (PLACEHOLDER[: column.mask.characters], PLACEHOLDER)
    if not is_update:
        return (PLACEHOLDER,)
    items = _ITEMS.get(column.item, ()) if column.kind is Kind.ARRAY else ()
    return (PLACEHOLDER, *_FORMS.get(column.kind, ()), *items)


def may_lack_value(record: bytes) -> bool:
    """Whether a record, or its row, may have a whole stand-in: most have none, and need no further look. A text that
    somebody has written may look so, too: see ChangeDecoder.lacks_value."""
    return any(byte in record for byte in _STAND_IN_BYTES)


def is_stand_in(column: Column, value: Any, *, is_update: bool = True) -> bool:
    """Whether the record does not contain the column's value; see `stand_ins`."""
    return value in stand_ins(column, is_update=is_update)


def is_stored_apart(value: Any) -> bool:
    """Whether a value of an old row is one that PostgreSQL may have stored apart.

    In place of an old value that PostgreSQL does not send, Debezium writes null or, in a column that excludes NULL, an
    empty or zero value.
    """
    return (
        len(value) > (LONG_CHARACTERS if isinstance(value, str) else 0)
        if isinstance(value, str | list | dict)
        else False
    )


def _integer(value: Any) -> int | None:
    if value in NOT_FINITE:
        return None
    try:
        number = value if isinstance(value, int) else int(value)  # a numeric column is text
    except ValueError:
        raise ValueError("it is not an integer") from None  # Python's error quotes the value
    if not fits_64_bits(number):
        raise ValueError("it needs more than 64 bits: declare it as Decimal")
    return number


def _float(value: Any) -> float | None:
    if value in NOT_FINITE:
        return None
    number = float(value)
    return number if math.isfinite(number) else None


def _timestamp(value: str) -> str | None:
    return value if _YEARS.match(value) else None


def timestamp(value: str) -> str | None:
    """A time without zeros at the end of its fraction, which Debezium writes in changes, but not in a snapshot."""
    known = _timestamp(value)
    if known is None or not known.endswith("0Z") or "." not in known:
        return known
    return known.removesuffix("Z").rstrip("0").rstrip(".") + "Z"


def _interval(value: str) -> str:
    interval = _INTERVAL.fullmatch(value)
    if interval is None:
        raise ValueError("it is not an interval")
    years, months, days, hours, minutes, seconds = interval.groups()
    date_part = "".join(f"{number}{unit}" for number, unit in ((years, "Y"), (months, "M"), (days, "D")) if int(number))
    time_part = "".join(f"{number}{unit}" for number, unit in ((hours, "H"), (minutes, "M")) if int(number))
    if float(seconds):
        time_part += f"{float(seconds):.6f}".rstrip("0").rstrip(".") + "S"
    if not date_part and not time_part:
        return "PT0S"
    return f"P{date_part}T{time_part}" if time_part else f"P{date_part}"


def _json(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        document = msgspec.json.decode(value)
    except msgspec.ValidationError:
        raise ValueError("its JSON has a number that no float holds: leave it out") from None
    except msgspec.DecodeError as error:
        half = _HALF.search(value)
        raise ValueError(f"its JSON has {half[0]}, which is half of a character" if half else str(error)) from None
    return _with_floats(document) if _LARGE.search(value) else document


def _with_floats(document: Any) -> Any:
    """A document without integers of more than 64 bits, which no store holds: they become floats, as in JavaScript."""
    match document:
        case int() if not fits_64_bits(document):
            return float(document)
        case dict():
            return {name: _with_floats(item) for name, item in document.items()}
        case list():
            return [_with_floats(item) for item in document]
        case _:
            return document


def _choice(value: str, choices: frozenset[str]) -> str:
    if value not in choices:
        raise ValueError("its value is not in its Enum: add it there")
    return value


def _array(value: Any, item: Convert | None) -> list[Any]:
    values = _json(value)
    if not isinstance(values, list):
        raise ValueError("it is not a list: declare it as dict")
    return values if item is None else [None if element is None else item(element) for element in values]


CONVERTERS: Final[Mapping[Kind, Convert]] = {
    Kind.INTEGER: _integer,
    Kind.FLOAT: _float,
    Kind.DECIMAL: lambda value: None if value in NOT_FINITE else str(value),
    Kind.TIMESTAMP: _timestamp,
    Kind.DATE: lambda value: value.removesuffix("Z") if _YEARS.match(value) else None,
    Kind.TIME: lambda value: value.removesuffix("Z"),
    Kind.INTERVAL: _interval,
    Kind.JSON: _json,
}
