"""Times as people write them in a request or a command line: RFC 3339, with the zone."""

from __future__ import annotations

from datetime import UTC, datetime


def read_time(text: str) -> datetime:
    """The time that `text` names, in UTC; raises ValueError saying what to write.

    A time without a zone is refused: whoever wrote it meant some zone, and a guess would be hours off without a word.
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
    """The beginning of a text that somebody sent, short enough for a message."""
    return text if len(text) <= 100 else text[:100] + "…"
