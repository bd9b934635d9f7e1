"""The types of columns and event fields, and their names in Spark."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from functools import cached_property
from typing import Any, Final, TypeVar
from uuid import UUID

from pydantic import BaseModel

from headwater.commands.declaring import field_kinds as kinds_of_fields
from headwater.commands.declaring.field_kinds import Digits, FieldKind, field_kinds, item_model_of
from headwater.commands.declaring.times import TIME
from headwater.projections.table.decimals import MAX_DIGITS, decimal_text, exact_decimal, spark_decimal, spark_text
from headwater.projections.table.declared import storage_word
from headwater.projections.table.json_text import as_text, dumps


@storage_word("ColumnType")
class ColumnType(Enum):
    """A type that a column can have in every store.

    TEXT, INTEGER (64 bits), FLOAT (64 bits), BOOLEAN, TIME (UTC, milliseconds), DATE (a day), UUID, POINT
    ({"lat", "lon"} in degrees), JSON (a JSON text), LIST (a list of JSON values, in folded columns only) and, in hidden
    fields only, COUNTS (an object of value to count), SKETCH (the registers of an approximate count, a character each)
    and ENTRIES (a list of objects).

    Besides, there is a type per number of digits of a decimal, which `decimal(10, 2)` gives: always the same object.
    """

    TEXT = "text"
    INTEGER = "integer"
    FLOAT = "float"
    BOOLEAN = "boolean"
    TIME = "time"
    POINT = "point"
    JSON = "json"
    LIST = "list"
    COUNTS = "counts"
    SKETCH = "sketch"
    ENTRIES = "entries"
    DATE = "date"
    UUID = "uuid"

    @classmethod
    def _missing_(cls, value: object) -> ColumnType | None:
        """The type of decimals with this value, made when it is first needed, as enumerations make sets of flags."""
        decimal_match = _DECIMAL.fullmatch(value) if isinstance(value, str) else None
        if decimal_match is None:
            return None
        instance = object.__new__(cls)
        instance._name_, instance._value_ = decimal_match[0].upper(), decimal_match[0]
        return cls._value2member_map_.setdefault(value, instance)  # type: ignore[return-value]

    @classmethod
    def decimal(cls, digits: int, places: int) -> ColumnType:
        """The type of decimals with so many digits, `places` of them behind the point; raises ValueError."""
        if not (type(digits) is int and type(places) is int and 1 <= digits <= MAX_DIGITS and 0 <= places <= digits):
            raise ValueError(
                f"a decimal has 1 to {MAX_DIGITS} digits, and 0 to as many of them behind the point, not "
                f"({digits}, {places})"
            )
        return cls(f"decimal({digits}, {places})")

    @cached_property
    def is_decimal(self) -> bool:
        """Whether it is a type of decimals."""
        return self._value_.startswith("decimal")

    @cached_property
    def digits(self) -> int:
        """Of its decimals, altogether."""
        return int(self._value_[len("decimal(") :].partition(",")[0])

    @cached_property
    def places(self) -> int:
        """Of its decimals, behind the point."""
        return int(self._value_.partition(", ")[2].rstrip(")"))


_DECIMAL: Final = re.compile(r"decimal\(([1-9][0-9]?), ([0-9]{1,2})\)")

T = TypeVar("T")


class ByType(dict[ColumnType, T]):
    """Something per type. Override `of_decimal` for what decimals have."""

    def of_decimal(self, kind: ColumnType) -> T:
        """What a type of decimals has: the same as texts, which they are in rows."""
        return self[ColumnType.TEXT]

    def __missing__(self, kind: ColumnType) -> T:
        if not kind.is_decimal:
            raise KeyError(kind)
        return self.of_decimal(kind)


SPARK_TYPES: Mapping[ColumnType, str] = ByType(
    {
        ColumnType.TEXT: "string",
        ColumnType.INTEGER: "bigint",
        ColumnType.FLOAT: "double",
        ColumnType.BOOLEAN: "boolean",
        ColumnType.TIME: "timestamp",
        ColumnType.POINT: "struct<lat: double, lon: double>",
        ColumnType.JSON: "string",
        ColumnType.DATE: "string",
        ColumnType.UUID: "string",
    }
)
"""Of an event's values as they are parsed, and of rows."""

_FIRST, _LAST = "timestamp'0001-01-01 00:00:00Z'", "timestamp'9999-12-31 23:59:59.999999Z'"
"""Spark SQL of the first and the last time that every store has."""

PYTHON_TYPES: Mapping[type, ColumnType] = {
    str: ColumnType.TEXT,
    int: ColumnType.INTEGER,
    float: ColumnType.FLOAT,
    bool: ColumnType.BOOLEAN,
    datetime: ColumnType.TIME,
}
_KINDS: Final = {column: kind for kind, column in PYTHON_TYPES.items()}
FORMS: Final[Mapping[object, ColumnType]] = {date: ColumnType.DATE, UUID: ColumnType.UUID}
DATE: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
UUID_PATTERN: Final = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_DATE, _UUID = re.compile(DATE), re.compile(UUID_PATTERN)


def is_exact(kind: ColumnType) -> bool:
    """Whether JSON has values of this type as texts that are checked: decimals, dates and UUIDs."""
    return kind in (ColumnType.DATE, ColumnType.UUID) or kind.is_decimal


def exact_value(value: Any, kind: ColumnType) -> Decimal | str | None:
    """What a JSON value stands for, of a type that `is_exact`; None if it is none. `spark_exact` is its Spark SQL."""
    if kind.is_decimal:
        return exact_decimal(value, kind.digits, kind.places)
    if not isinstance(value, str):
        return None
    if kind is ColumnType.UUID:
        return value.lower() if _UUID.fullmatch(value) else None
    if not _DATE.fullmatch(value):
        return None
    try:
        return date.fromisoformat(value).isoformat()
    except ValueError:
        return None


def spark_exact(text: str, kind: ColumnType) -> str:
    """Spark SQL of `exact_value` of a text: a decimal, or the text of a date or UUID."""
    if kind.is_decimal:
        return spark_decimal(text, kind.digits, kind.places)
    if kind is ColumnType.UUID:
        return f"if({text} rlike '\\\\A{UUID_PATTERN}\\\\z', lower({text}), null)"
    matching = f"{text} rlike '\\\\A{DATE}\\\\z' and not startswith({text}, '0000')"
    return f"if({matching} and try_cast({text} as date) is not null, {text}, null)"


def spark_value_type(kind: ColumnType) -> str:
    """The type in Spark SQL of the value of an expression."""
    return f"decimal({kind.digits},{kind.places})" if kind.is_decimal else SPARK_TYPES[kind]


def spark_stored(value: str, field: ColumnType) -> str:
    """Spark SQL of a value in the form of rows. field: the type of the field that has it."""
    return spark_text(value, field.digits, field.places) if field.is_decimal else value


def common_type(kinds: Collection[ColumnType]) -> ColumnType | None:
    """The type that holds all values of these types: one type, or the widest decimal; None if there is none.

    Raises ValueError if a decimal would need too many digits.
    """
    several = set(kinds)
    if len(several) == 1:
        return several.pop()
    if not all(kind.is_decimal or kind is ColumnType.INTEGER for kind in several):
        return None
    if not any(kind.is_decimal for kind in several):
        return None
    wide = [(kind.digits, kind.places) if kind.is_decimal else (INTEGER_DIGITS, 0) for kind in several]
    places = max(places for _, places in wide)
    digits = places + max(digits - places for digits, places in wide)
    if digits > MAX_DIGITS:
        shown = " and ".join(sorted(kind.value for kind in several))
        raise ValueError(f"{shown} together need {digits} digits, but a decimal has at most {MAX_DIGITS}")
    return ColumnType.decimal(digits, places)


INTEGER_DIGITS: Final = 19
"""Of an integer with 64 bits."""


def canonical(value: Any, kind: ColumnType) -> Any:
    """A value of an expression in the form of state fields: times in milliseconds, JSON and decimals as text."""
    if kind.is_decimal and value is not None:
        return decimal_text(value, kind.places)
    match value:
        case str() if kind is ColumnType.TIME:
            time = datetime.fromisoformat(value)
            return format_time(time if time.tzinfo else time.replace(tzinfo=UTC))
        case int() if kind is ColumnType.FLOAT:
            return float(value)
        case dict() | list() | bool() | int() | float() if kind is ColumnType.JSON:
            return dumps(value)
        case _:
            return value


def format_time(time: datetime) -> str:
    """RFC 3339 in UTC with milliseconds, as Spark's `to_json` writes a timestamp; as text, it sorts by time."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def within_years(column: str) -> str:
    """Spark SQL of a time that is null outside the years 1 to 9999 in UTC, as in Python (see `is_time`)."""
    return f"if({column} between {_FIRST} and {_LAST}, {column}, null)"


def finite(column: str) -> str:
    """Spark SQL of a number as a double that is null if it is infinite or NaN, which JSON does not have."""
    return f"if(isnan({column}) or abs({column}) = double('infinity'), null, double({column}))"


def is_outside_years(column: str) -> str:
    """Spark SQL of whether a time is outside these years; false if it is null."""
    return f"coalesce({column} not between {_FIRST} and {_LAST}, false)"


def in_milliseconds(column: str) -> str:
    """Spark SQL of a time in an event, as rows have it."""
    return f"date_trunc('millisecond', {within_years(column)})"


def fits(value: Any, kind: ColumnType) -> bool:
    """Whether a JSON value is of this type, as Spark reads it. Any value that is not null is JSON."""
    if is_exact(kind):
        return exact_value(value, kind) is not None
    return kinds_of_fields.fits(value, _KINDS.get(kind, object))


def fitting(value: Any, kind: ColumnType) -> Any:
    """A JSON value as Spark reads it for this type: null if it does not fit, except that any value is a text."""
    if kind is ColumnType.TEXT and value is not None:
        return as_text(value)
    if kind in (ColumnType.DATE, ColumnType.UUID):
        return exact_value(value, kind)
    return value if fits(value, kind) else None


def spark_time(text: str) -> str:
    """Spark SQL of the time that a text stands for; null if it is none in RFC 3339 (see `is_time`)."""
    pattern = TIME.replace("\\", "\\\\")
    return f"if({text} rlike '\\\\A{pattern}\\\\z', try_cast({text} as timestamp), null)"


def field_types(model: type[BaseModel]) -> dict[str, ColumnType]:
    """The column type of each field of an event, by its name in JSON; JSON if it is not a scalar."""
    return {name: type_of(kind) for name, kind in field_kinds(model).items()}


def type_of(kind: FieldKind) -> ColumnType:
    """The column type of a field; JSON if views have no type for it."""
    if kind.kind is not object:
        return PYTHON_TYPES.get(kind.kind, ColumnType.JSON)
    if isinstance(kind.form, Digits):
        digits, places = kind.form.total, kind.form.places
        fits = 1 <= digits <= MAX_DIGITS and 0 <= places <= digits
        return ColumnType.decimal(digits, places) if fits else ColumnType.JSON
    return FORMS.get(kind.form, ColumnType.JSON)


def item_model(model: type[BaseModel], name: str) -> type[BaseModel]:
    """The model of the items in a list of objects; raises ValueError if the field is not such a list."""
    known = field_kinds(model)
    if name not in known:
        kind = getattr(model, "type", model.__name__)
        raise ValueError(f'event "{kind}" has no field "{name}"; it has {", ".join(sorted(known))}')
    inner = item_model_of(model, name)
    if inner is None:
        raise ValueError(f'field "{name}" is not a list of objects: declare it as list[…] of a pydantic model')
    return inner
