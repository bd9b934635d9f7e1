"""Mapping and settings of a view's index, and the texts by which it has decimals and dates exactly.

Elasticsearch's own numbers are doubles, and would round. The column itself has its nearest type, for your own queries;
the API filters and sorts by a text that sorts like the value.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any, Final

from headwater.projections.stores.clear_columns import KEYS
from headwater.projections.stores.declared import Elasticsearch
from headwater.projections.table.decimals import decimal_text, exact_decimal, from_sortable, sortable_text
from headwater.projections.table.layout import DELETED
from headwater.projections.table.types import ByType, ColumnType
from headwater.projections.view import View

SORTED: Final = "_sorted"
"""The object with the texts, by column."""

GUARD = "_guard"
STATE = "_state"
CLEAR = "clear"
"""In the index's `_meta`: the plaintext columns, if it has any."""
ERASED = "erased"
"""In the index's `_meta`: the number of the last erasure whose keys no row shows in clear."""
COMPLETE = "complete"
"""In the index's `_meta`: false until all rows of bulk are on disk.

A snapshot has the metadata of an index as of its start, and its rows as of a later moment: never the mark without them.
"""
MAX_TERM_CHARACTERS = 8191
"""Lucene allows terms of 32,766 bytes, and a character has up to four. Longer text is stored, but not indexed."""
# bulk neither refreshes nor flushes on its own: `finish` does both, once
BULK_SETTINGS: Mapping[str, Any] = {
    "number_of_shards": 1,
    "number_of_replicas": 0,
    "refresh_interval": "-1",
    "translog.durability": "async",
}
# the default refreshes every second while somebody searches, and else at the next search: a refresh takes as much
# processor time as a tenth of the commands of that second
LIVE_SETTINGS: Mapping[str, Any] = {
    "auto_expand_replicas": "0-1",
    "refresh_interval": None,
    "translog.durability": "request",
}
LEDGER_SETTINGS: Mapping[str, Any] = {"number_of_shards": 1, "auto_expand_replicas": "0-1"}
LEDGER_MAPPING: Mapping[str, Any] = {"dynamic": False, "properties": {}}


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
    decimal_value = exact_decimal(value, kind.digits, kind.places)
    if decimal_value is None:
        raise ValueError(f"{value!r} is not a {kind.value}")
    return sortable_text(decimal_value, kind.digits, kind.places)


def value_of(text: str, kind: ColumnType) -> str:
    """The value of a text, in the form of rows."""
    return decimal_text(from_sortable(text, kind.places), kind.places) if kind.is_decimal else text


class _ColumnTypes(ByType[str]):
    def of_decimal(self, kind: ColumnType) -> str:
        return "double"  # the nearest one: the API uses the text of `text_of`


COLUMN_TYPES: Mapping[ColumnType, str] = _ColumnTypes(
    {
        ColumnType.TEXT: "keyword",
        ColumnType.INTEGER: "long",
        ColumnType.FLOAT: "double",
        ColumnType.BOOLEAN: "boolean",
        ColumnType.TIME: "date",
        ColumnType.POINT: "geo_point",
        ColumnType.JSON: "keyword",
        ColumnType.DATE: "date",
        ColumnType.UUID: "keyword",
    }
)
"""Of visible columns; a list has no mapping: it is stored in the document, and not indexed."""


def mapping(view: View) -> dict[str, Any]:
    """The mapping of a view's index: its columns by type; state and guard are stored, not indexed.

    A column for full-text search has a sub-field `text`, and is itself a keyword for filters and facets.
    """
    declared = view.store("elasticsearch")
    searched = declared.text if isinstance(declared, Elasticsearch) else ()
    hidden = {"type": "object", "enabled": False}
    properties = {
        name: _property(kind, name in searched) for name, kind in view.types.items() if kind is not ColumnType.LIST
    }
    if declared is not None and declared.clear:
        properties[KEYS] = {"type": "keyword"}
    sorted_by = {name: {"type": "keyword"} for name, kind in view.types.items() if has_text(kind)}
    if sorted_by:
        properties[SORTED] = {"properties": sorted_by}
    return {
        "dynamic": False,
        "properties": {**properties, STATE: hidden, GUARD: hidden, DELETED: {"type": "boolean"}},
    }


def _property(kind: ColumnType, searched: bool) -> dict[str, Any]:
    if kind is ColumnType.JSON:
        return {"type": "keyword", "index": False, "doc_values": False}
    indexed: dict[str, Any] = {"type": COLUMN_TYPES[kind]}
    if kind is ColumnType.TEXT:
        indexed["ignore_above"] = MAX_TERM_CHARACTERS
    if kind is ColumnType.DATE:
        indexed["format"] = "strict_date"
    if searched:
        indexed["fields"] = {"text": {"type": "text"}}
    return indexed
