"""The types of columns and event fields, and their names in Spark."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from pydantic import BaseModel

from commands.declaring.field_kinds import annotated_kind, field_kinds, item_model_of
from projections.table.declared import storage_word
from projections.table.json_text import dumps


@storage_word("ColumnType")
class ColumnType(Enum):
    """A type that a column can have in every store.

    TEXT, INTEGER (64 bits), FLOAT (64 bits), BOOLEAN, TIME (UTC, milliseconds), POINT ({"lat", "lon"} in degrees),
    JSON (a JSON text), LIST (a list of JSON values, in folded columns only) and, in hidden fields only, COUNTS (an
    object of value to count), SKETCH (the registers of an approximate count, a character each) and ENTRIES (a list of
    objects).
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


SPARK_TYPES: Mapping[ColumnType, str] = {
    ColumnType.TEXT: "string",
    ColumnType.INTEGER: "bigint",
    ColumnType.FLOAT: "double",
    ColumnType.BOOLEAN: "boolean",
    ColumnType.TIME: "timestamp",
    ColumnType.POINT: "struct<lat: double, lon: double>",
    ColumnType.JSON: "string",
}
"""Of an event's values."""

_FIRST, _LAST = "timestamp'0001-01-01 00:00:00Z'", "timestamp'9999-12-31 23:59:59.999999Z'"
"""Spark SQL of the first and the last time that every store has."""

PYTHON_TYPES: Mapping[type, ColumnType] = {
    str: ColumnType.TEXT,
    int: ColumnType.INTEGER,
    float: ColumnType.FLOAT,
    bool: ColumnType.BOOLEAN,
    datetime: ColumnType.TIME,
}


def canonical(value: Any, kind: ColumnType) -> Any:
    """A JSON `value` in the form of state fields: times in milliseconds, JSON as text."""
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


def field_types(model: type[BaseModel]) -> dict[str, ColumnType]:
    """The column type of each field of an event, by its name in JSON; JSON if it is not a scalar."""
    return {name: PYTHON_TYPES.get(each.kind, ColumnType.JSON) for name, each in field_kinds(model).items()}


def earlier_type(model: type[BaseModel], name: str) -> ColumnType:
    """The column type that earlier releases gave the field with this name in JSON."""
    info = next(info for own, info in model.model_fields.items() if name == (info.alias or own))
    return PYTHON_TYPES.get(annotated_kind(info.annotation), ColumnType.JSON)


def is_required(model: type[BaseModel], name: str) -> bool:
    """Whether the field with this name in JSON may be neither null nor missing."""
    info = next(info for own, info in model.model_fields.items() if name == (info.alias or own))
    return info.is_required() and not field_kinds(model)[name].nullable


def item_model(model: type[BaseModel], name: str) -> type[BaseModel]:
    """The model of the items in a list of objects; raises ValueError if the field is not such a list."""
    known = field_kinds(model)
    if name not in known:
        kind = getattr(model, "type", model.__name__)
        raise ValueError(f'event "{kind}" has no field "{name}"; it has {", ".join(sorted(known))}')
    found = item_model_of(model, name)
    if found is None:
        raise ValueError(f'field "{name}" is not a list of objects: declare it as list[…] of a pydantic model')
    return found


def item_types(model: type[BaseModel], name: str) -> dict[str, ColumnType]:
    """The column type of each field of the items in a list of objects."""
    return field_types(item_model(model, name))


def is_required_item(model: type[BaseModel], name: str, field: str) -> bool:
    """Whether that field of the items in a list of objects may be neither null nor missing."""
    return is_required(item_model(model, name), field)
