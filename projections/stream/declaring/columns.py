"""The types of a stream view's columns, by the names that declarations use."""

from __future__ import annotations

from typing import Final

from headwater.eventlog.declaring import WrongArguments, shown
from headwater.projections.table.types import ColumnType

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
DATE: Final = ColumnType.DATE


def DECIMAL(digits: int, places: int) -> ColumnType:  # noqa: N802 - it stands among types
    """Exact decimals with so many digits, `places` of them behind the point, as in SQL; at most 38 digits.

    Raises WrongArguments.
    """
    try:
        return ColumnType.decimal(digits, places)
    except ValueError as error:
        raise WrongArguments(f"DECIMAL({shown(digits)}, {shown(places)}): {error}") from error
