"""The types of columns and event fields, and what each is called in Spark, PostgreSQL and Elasticsearch."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import Any

from pydantic import BaseModel

from commands.upcasting import kind_of


class ColumnType(Enum):
    """A type that a column can have in every store.

    TEXT, INTEGER (64 bits), FLOAT (64 bits), BOOLEAN, TIME (UTC, milliseconds), POINT ({"lat", "lon"} in degrees),
    JSON (a JSON text) and, in hidden fields only, COUNTS (an object of value to count).
    """

    TEXT = "text"
    INTEGER = "integer"
    FLOAT = "float"
    BOOLEAN = "boolean"
    TIME = "time"
    POINT = "point"
    JSON = "json"
    COUNTS = "counts"


SPARK_TYPES: Mapping[ColumnType, str] = {
    ColumnType.TEXT: "string",
    ColumnType.INTEGER: "bigint",
    ColumnType.FLOAT: "double",
    ColumnType.BOOLEAN: "boolean",
    ColumnType.TIME: "timestamp",
    ColumnType.POINT: "struct<lat: double, lon: double>",
    ColumnType.JSON: "string",
    ColumnType.COUNTS: "array<struct<v: bigint, n: bigint>>",
}

POSTGRES_TYPES: Mapping[ColumnType, str] = {
    ColumnType.TEXT: "text",
    ColumnType.INTEGER: "bigint",
    ColumnType.FLOAT: "double precision",
    ColumnType.BOOLEAN: "boolean",
    ColumnType.TIME: "timestamptz",
    ColumnType.POINT: "point",
    ColumnType.JSON: "text",
    ColumnType.COUNTS: "text",
}

ELASTICSEARCH_TYPES: Mapping[ColumnType, str] = {
    ColumnType.TEXT: "keyword",
    ColumnType.INTEGER: "long",
    ColumnType.FLOAT: "double",
    ColumnType.BOOLEAN: "boolean",
    ColumnType.TIME: "date",
    ColumnType.POINT: "geo_point",
    ColumnType.JSON: "keyword",
    ColumnType.COUNTS: "object",
}

PYTHON_TYPES: Mapping[type, ColumnType] = {
    str: ColumnType.TEXT,
    int: ColumnType.INTEGER,
    float: ColumnType.FLOAT,
    bool: ColumnType.BOOLEAN,
    datetime: ColumnType.TIME,
}


def column_type(annotation: Any) -> ColumnType:
    """The column type of a pydantic field's annotation; whatever is no scalar is JSON."""
    return PYTHON_TYPES.get(kind_of(annotation), ColumnType.JSON)


def field_types(model: type[BaseModel]) -> dict[str, ColumnType]:
    """The column type of each field of an event, by its name in JSON."""
    return {info.alias or name: column_type(info.annotation) for name, info in model.model_fields.items()}


def is_required(model: type[BaseModel], name: str) -> bool:
    """Whether the field of this name, in JSON, may be neither null nor left out."""
    info = next(info for own, info in model.model_fields.items() if name == (info.alias or own))
    annotation = info.annotation
    nullable = annotation in (None, Any) or type(None) in typing.get_args(annotation)
    return info.is_required() and not nullable
