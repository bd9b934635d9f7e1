"""What compiled source calls: values in the form of rows, null-safe operators, and lists of rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import msgspec

from commands.declaring.times import TIME
from eventlog.integers import HIGHEST, LOWEST
from projections.folding.lists import Gathered, PartRows, Ranks, Values, combined
from projections.table.expressions import format_milliseconds
from projections.table.json_text import canonical_text, dumps, loads
from projections.table.key_parts import key_of_parts
from projections.table.monoids.sketches import register_of
from projections.table.types import format_time

__all__ = [
    "Gathered",
    "PartRows",
    "Ranks",
    "Unclear",
    "Values",
    "above",
    "as_float",
    "at_least",
    "at_most",
    "below",
    "combined",
    "differing",
    "equal",
    "format_milliseconds",
    "is_null",
    "json_text",
    "kept",
    "key_of_parts",
    "log_place",
    "minus",
    "place",
    "plus",
    "registers",
    "time_text",
    "times",
]
"""The names that compiled source uses."""

_TIME: Final = re.compile(TIME)


class Unclear(ValueError):
    """An event has a value that compiled source does not read; `reference.lift` decides about it."""


@lru_cache(maxsize=1024)
def time_text(text: str | None) -> str | None:
    """A time in the form of rows; raises Unclear if it is none."""
    if text is None:
        return None
    try:
        if not _TIME.fullmatch(text):
            raise Unclear(text)
        time = datetime.fromisoformat(text)
        return format_time(time if time.tzinfo else time.replace(tzinfo=UTC))
    except (ValueError, OverflowError) as error:
        raise Unclear(text) from error


def is_null(raw: msgspec.Raw | None) -> bool:
    """Whether a raw field is missing or null."""
    return raw is None or bytes(raw) == b"null"


def json_text(raw: msgspec.Raw | None) -> str | None:
    """A field that is not a scalar, in the form of rows."""
    value = None if raw is None else loads(bytes(raw))
    if isinstance(value, str):
        return canonical_text(value)
    return None if value is None else dumps(value)


def log_place(timestamp_ms: int, partition: int, offset: int) -> str:
    """See LogPlace."""
    return f"{timestamp_ms:015d}|{partition:05d}|{offset:019d}"


def plus(left: Any, right: Any) -> Any:
    """`left + right`; see Arithmetic."""
    return None if left is None or right is None else _bounded(left + right)


def minus(left: Any, right: Any) -> Any:
    """`left - right`; see Arithmetic."""
    return None if left is None or right is None else _bounded(left - right)


def times(left: Any, right: Any) -> Any:
    """`left * right`; see Arithmetic."""
    return None if left is None or right is None else _bounded(left * right)


def place(latitude: float | None, longitude: float | None) -> dict[str, float] | None:
    """See Point."""
    return None if latitude is None or longitude is None else {"lat": latitude, "lon": longitude}


def equal(left: Any, right: Any) -> bool:
    """`left = right`; see Comparison."""
    return left is not None and right is not None and bool(left == right)


def differing(left: Any, right: Any) -> bool:
    """`left <> right`; see Comparison."""
    return left is not None and right is not None and bool(left != right)


def below(left: Any, right: Any) -> bool:
    """`left < right`; see Comparison."""
    return left is not None and right is not None and bool(left < right)


def at_most(left: Any, right: Any) -> bool:
    """`left <= right`; see Comparison."""
    return left is not None and right is not None and bool(left <= right)


def above(left: Any, right: Any) -> bool:
    """`left > right`; see Comparison."""
    return left is not None and right is not None and bool(left > right)


def at_least(left: Any, right: Any) -> bool:
    """`left >= right`; see Comparison."""
    return left is not None and right is not None and bool(left >= right)


def as_float(value: int | None) -> float | None:
    """An integer in a column of floats."""
    return None if value is None else float(value)


def kept(entries: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> list[dict[str, Any]]:
    """The entries that have all `keys`, without nulls; see Entries."""
    return [
        {name: value for name, value in entry.items() if value is not None}
        for entry in entries
        if all(entry[key] is not None for key in keys)
    ]


def registers(value: Any) -> list[dict[str, int]]:
    """See Register."""
    return [] if value is None else [register_of(value)]


def _bounded(result: Any) -> Any:
    return result if LOWEST <= result <= HIGHEST or isinstance(result, float) else None
