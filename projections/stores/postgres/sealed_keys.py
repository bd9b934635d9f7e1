"""Rows by the keys with which texts in their columns are sealed: an index, and the condition that it serves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headwater.eventlog.personal.sealed_text import KEY_ID, START

_SEALED: Final = f'"{START}'
_BETWEEN: Final = f"(?=:|^).*?(?:{_SEALED}(?={KEY_ID}:)|$)"
"""What is between two ids: so the parts of a column that it splits are ids, and nothing that is longer than an index
takes, whatever somebody writes into a text. It begins with a constraint, because PostgreSQL takes the longest match if
the first part is an alternative."""


def quoted(column: str) -> str:
    """A column of JSON as its text: each sealed text in it begins with a quote."""
    return f'"{column}"'


def begun_with_quote(column: str) -> str:
    """The text of a column that is one sealed text, or JSON with some, so that each of them begins with a quote."""
    return f"""('"' || "{column}")"""


def sealed_with_any(text: str) -> str:
    """The condition that a text has one that is sealed with one of some keys; its parameter is their ids."""
    return f"({_keys_in(text)} && %s::text[] AND {_has_any(text)})"


def sealed_index(texts: Sequence[str]) -> str:
    """What follows CREATE INDEX … ON a table: rows without sealed texts are not in the index."""
    return f"USING gin ({', '.join(map(_keys_in, texts))}) WHERE {' OR '.join(map(_has_any, texts))}"


def _keys_in(text: str) -> str:
    return f"regexp_split_to_array({text}, '{_BETWEEN}')"


def _has_any(text: str) -> str:
    return f"strpos({text}, '{_SEALED}') > 0"
