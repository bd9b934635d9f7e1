"""Partitions that were exchanged for other tables, by the statements that a connector has stored.

A partition that is exchanged twice has its first number again, and its rows may have changed in a table that is not
captured. Nothing that the server says of the partition differs, so what Debezium stores of definitions is searched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from eventlog.capturing.declaring import Source
from eventlog.capturing.schema_history import read_statements
from eventlog.settings import LogSettings

_EXCHANGE: Final = re.compile(r"\bEXCHANGE\s+PARTITION\b", re.IGNORECASE)
REMEMBERED: Final = 1_000
"""How many statements are known when they are read again."""


@dataclass(frozen=True, slots=True)
class Searched:
    """How far a history was searched. end: an offset. statements: the exchanges that were found, the last of them."""

    end: int = 0
    statements: tuple[str, ...] = ()


def find_exchanged(settings: LogSettings, source: Source, searched: Searched) -> tuple[frozenset[str], Searched]:
    """The declared tables that new statements of a source's history name, and how far it is searched now.

    A source without a history has none. Raises LogUnavailable.
    """
    stored, end = read_statements(settings, source, searched.end)
    known = set(searched.statements)
    # a connector that starts again reads, and stores, statements since its last row again
    new = {each.id: each.ddl or "" for each in stored if _EXCHANGE.search(each.ddl or "") and each.id not in known}
    return frozenset(_named(source, new.values())), Searched(end, (*searched.statements, *new)[-REMEMBERED:])


def _named(source: Source, statements: Iterable[str]) -> set[str]:
    """The tables that these statements name, also if it is one of that name in another database."""
    texts = [statement.replace("``", "`") for statement in statements]
    names = {table.table: re.escape(table.table.partition(".")[2]) for table in source.tables}
    return {
        table
        for table, name in names.items()
        if any(re.search(rf"(?<![\w$]){name}(?![\w$])", text, re.IGNORECASE) for text in texts)
    }
