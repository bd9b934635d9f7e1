"""Texts for PostgreSQL."""

from __future__ import annotations

from typing import Any, Final

import orjson

from headwater.projections.stores.names import NUL, REPLACEMENT
from headwater.projections.table.types import ColumnType

NAME: Final = "PostgreSQL"


def json_text(held: Any, kind: ColumnType) -> str | None:
    """A state field with entries in the form of its column: a sketch is already text, others are JSON."""
    if held is None or kind is ColumnType.SKETCH:
        return held  # type: ignore[no-any-return]
    text = orjson.dumps(held).decode()
    return orjson.dumps(without_nul(held)).decode() if "\\u0000" in text else text


def without_nul(value: Any) -> Any:
    """`value` with every NUL in its texts replaced."""
    match value:
        case str():
            return value.replace(NUL, REPLACEMENT)
        case list():
            return [without_nul(each) for each in value]
        case dict():
            return {without_nul(name): without_nul(each) for name, each in value.items()}
        case _:
            return value
