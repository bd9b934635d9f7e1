"""Decimals and dates in Elasticsearch, by texts that sort like them: its own numbers are doubles, and would round.

The column itself has Elasticsearch's nearest type, for your own queries; the API filters and sorts by the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any, Final

from headwater.projections.table.decimals import decimal_text, exact_decimal, from_sortable, sortable_text
from headwater.projections.table.types import ColumnType

SORTED: Final = "_sorted"
"""The object with the texts, by column."""


def has_text(kind: ColumnType) -> bool:
    """Whether columns of this type have such a text."""
    return kind is ColumnType.DATE or kind.is_decimal


def field_of(column: str, kind: ColumnType) -> str:
    """The field by which a column is filtered, sorted and counted."""
    return f"{SORTED}.{column}" if has_text(kind) else column


def texts(kinds: Mapping[str, ColumnType], shown: Mapping[str, Any]) -> dict[str, str]:
    """The texts of a row. kinds: of the columns that have one. shown: the row."""
    return {name: text_of(shown[name], kind) for name, kind in kinds.items() if shown.get(name) is not None}


def text_of(value: str | Decimal | date, kind: ColumnType) -> str:
    """The text of a value, as rows or filters have it; raises ValueError if it is none of this type."""
    if not kind.is_decimal:
        return str(value)
    made = exact_decimal(value, kind.digits, kind.places)
    if made is None:
        raise ValueError(f"{value!r} is not a {kind.value}")
    return sortable_text(made, kind.digits, kind.places)


def value_of(text: str, kind: ColumnType) -> str:
    """The value of a text, in the form of rows."""
    return decimal_text(from_sortable(text, kind.places), kind.places) if kind.is_decimal else text
