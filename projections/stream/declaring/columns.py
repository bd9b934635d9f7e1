"""The types of a stream view's columns, by the names that declarations use."""

from __future__ import annotations

from typing import Final

from projections.table.types import ColumnType

TEXT: Final = ColumnType.TEXT
INTEGER: Final = ColumnType.INTEGER
"""64 bits."""
FLOAT: Final = ColumnType.FLOAT
"""64 bits; infinity and NaN become null."""
BOOLEAN: Final = ColumnType.BOOLEAN
TIME: Final = ColumnType.TIME
"""UTC, milliseconds."""
POINT: Final = ColumnType.POINT
"""A struct of `lat` and `lon`, in degrees."""
JSON: Final = ColumnType.JSON
"""A JSON text."""
