"""Looks up rows of a captured MariaDB or MySQL table by their keys, which are given as texts per column."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, time
from decimal import Decimal
from typing import Any

from headwater.eventlog.capturing.columns import Kind
from headwater.eventlog.capturing.declaring import Captured
from headwater.eventlog.capturing.mysql.database import CapturedServer, quoted


def absent(server: CapturedServer, table: type[Captured], keys: Sequence[Sequence[str]]) -> list[int]:
    """Which of these keys have no row. Texts are compared exactly, whatever the column's collation says."""
    kinds = [table.columns[name].kind for name in table.key]
    names = [f"`{name}`" for name in table.key]
    marks = ", ".join(["%s"] * len(names))
    shown = ", ".join(f"CAST({name} AS CHAR) AS key_{number}" for number, name in enumerate(names))
    query = (
        f"SELECT {shown} "  # noqa: S608 - names are declared, and values are sent apart
        f"FROM {quoted(table.table)} WHERE ({', '.join(names)}) IN ({', '.join([f'({marks})'] * len(keys))})"
    )
    values = [_literal(kind, text) for key in keys for kind, text in zip(kinds, key, strict=True)]
    there = {_comparable(kinds, list(row.values())) for row in server.rows(query, values)}
    return [number for number, key in enumerate(keys) if _comparable(kinds, key) not in there]


def _literal(kind: Kind, text: str) -> Any:
    """A value that the server compares as the type of the column: a number with a text would be compared as floats."""
    match kind:
        case Kind.INTEGER | Kind.DECIMAL:
            return Decimal(text)
        case Kind.BOOLEAN:
            return text == "true"
        case Kind.TIMESTAMP:
            return datetime.fromisoformat(text).replace(tzinfo=None)
        case _:
            return text


def _comparable(kinds: Sequence[Kind], texts: Sequence[str]) -> tuple[Any, ...]:
    """A key whose values, written by Debezium or by the server, are equal if the values of the row are."""
    return tuple(_value(kind, text) for kind, text in zip(kinds, texts, strict=True))


def _value(kind: Kind, text: str) -> Any:
    match kind:
        case Kind.INTEGER | Kind.DECIMAL:
            return Decimal(text)
        case Kind.BOOLEAN:
            return text in ("true", "1")
        case Kind.TIMESTAMP:
            return datetime.fromisoformat(text).replace(tzinfo=None)
        case Kind.TIME:
            return time.fromisoformat(text)
        case _:
            return text
