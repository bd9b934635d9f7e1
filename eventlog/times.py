"""The time now, and times in requests and command lines: RFC 3339, with a zone."""

from __future__ import annotations

from datetime import UTC, datetime
from time import time_ns
from typing import Final

FIRST_RECORD_MS: Final = 1
"""The first time that a record can have, in milliseconds since 1970: Kafka's client takes 0 for now."""


def now_ms() -> int:
    """Milliseconds since 1970, as records have their times."""
    return time_ns() // 1_000_000


def read_time(text: str) -> datetime:
    """The time of `text`, in UTC; raises ValueError with the expected form.

    A time without a zone is refused, because guessing the zone could be hours off.
    """
    try:
        time = datetime.fromisoformat(text)
        if "T" in text.upper() and time.tzinfo is not None:
            return time.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f'"{shortened(text)}" is not a time: write it like 2026-01-31T12:00:00Z') from None
    lacks = "zone" if "T" in text.upper() else "time of day"
    zones = "Z for UTC or an offset such as +02:00"
    raise ValueError(f'"{shortened(text)}" has no {lacks}: write it like 2026-01-31T12:00:00Z, with {zones}')


def shortened(text: str) -> str:
    """The beginning of a text, short enough for a message."""
    return text if len(text) <= 100 else text[:100] + "…"
