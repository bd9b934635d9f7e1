"""Rows by the keys with which texts in a column of JSON are sealed: an index, and the condition that it serves."""

from __future__ import annotations

from typing import Final

from eventlog.personal.sealed_text import KEY_ID, START

_SEALED: Final = f'"{START}'
_BETWEEN: Final = f"(?=:|^).*?(?:{_SEALED}(?={KEY_ID}:)|$)"
"""What is between two ids: so the parts of a column that it splits are ids, and nothing that is longer than an index
takes, whatever somebody writes into a text. It begins with a constraint, because PostgreSQL takes the longest match if
the first part is an alternative."""


def sealed_with_any(column: str) -> str:
    """The condition that a column has a text that is sealed with one of some keys; its parameter is their ids."""
    return f"({_keys_in(column)} && %s::text[] AND {_has_any(column)})"


def sealed_index(column: str) -> str:
    """What follows CREATE INDEX … ON a table: rows without sealed texts are not in the index."""
    return f"USING gin ({_keys_in(column)}) WHERE {_has_any(column)}"


def _keys_in(column: str) -> str:
    return f"""regexp_split_to_array("{column}", '{_BETWEEN}')"""


def _has_any(column: str) -> str:
    return f"""strpos("{column}", '{_SEALED}') > 0"""
