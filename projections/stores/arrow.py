"""Values of rows as Arrow arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from headwater.projections.table.types import ByType, ColumnType

ARROW_TYPES: Final = ByType[pa.DataType](
    {
        ColumnType.TEXT: pa.string(),
        ColumnType.INTEGER: pa.int64(),
        ColumnType.FLOAT: pa.float64(),
        ColumnType.BOOLEAN: pa.bool_(),
        ColumnType.TIME: pa.timestamp("us", "UTC"),
        ColumnType.POINT: pa.struct({"lat": pa.float64(), "lon": pa.float64()}),
        ColumnType.JSON: pa.string(),
        ColumnType.SKETCH: pa.string(),
        ColumnType.COUNTS: pa.list_(pa.struct({"v": pa.string(), "n": pa.int64()})),
        ColumnType.DATE: pa.string(),
        ColumnType.UUID: pa.string(),
    }
)
"""Of state fields and visible columns; lists have no type of their own."""


def arrow_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Values in the form of rows, in which times are texts."""
    return pa.array(values, pa.string()).cast(kind) if pa.types.is_timestamp(kind) else pa.array(values, kind)
