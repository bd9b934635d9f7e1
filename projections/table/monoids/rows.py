"""State fields with several values, in the form of rows."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from headwater.projections.table.monoids.sketches import dense
from headwater.projections.table.types import ColumnType, format_time


def row_value(value: Any, kind: ColumnType) -> Any:
    """The result of a Spark fold, as Arrow returns it, in the form of rows."""
    match value:
        case datetime():
            return format_time(value)
        case list() if kind is ColumnType.COUNTS:
            return {str(each["v"]): each["n"] for each in value if each["n"]}
        case list() if kind is ColumnType.SKETCH:
            return dense((each["v"], each["n"]) for each in value)
        case list() if kind is ColumnType.ENTRIES:
            entries = ({name: row_value(each, ColumnType.TEXT) for name, each in entry.items()} for entry in value)
            return [{name: each for name, each in entry.items() if each is not None} for entry in entries]
        case {"lat": None} | {"lon": None}:
            return None
        case _:
            return value
