"""Until when a generation was kept up to date, and whether it may have missed deletions since then.

Compaction leaves nothing of a deleted row of a captured table once its tombstone is old enough. A generation that was
not kept up for so long would show the row for ever.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from headwater.eventlog.topics import TOMBSTONES_DAYS
from headwater.projections.generations.registry.generation import Generation
from headwater.projections.table.rows import Deleted
from headwater.projections.view import View

KEPT_FOR: Final = timedelta(days=TOMBSTONES_DAYS - 1)
"""After this time without being kept up, deletions may be gone: a day is left to read those that are still there."""


def sees_deletions(view: View) -> bool:
    """Whether its rows change if a row of a captured table is deleted."""
    return any(view.handles(Deleted(table).type) for table in view.tables.values())


def missed_since(view: View, generation: Generation, store: str) -> datetime | None:
    """The time since when it may have missed deletions in a store; None if it has every one, or can still read it."""
    if not sees_deletions(view):
        return None
    # it went live when it had caught up, and upkeep records that it is kept up; it may have applied more
    until, noted = generation.live_at or generation.created_at, generation.kept.get(store)
    if noted is not None:
        until = max(until, datetime.fromtimestamp(noted, UTC))
    return until if generation.read_at - until > KEPT_FOR else None


def missed(since: datetime, view: str) -> str:
    """What to tell about a generation that may have missed deletions."""
    return (
        f"it was last up to date at {since.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC, and the log may not have all "
        f"deletions of captured rows since then: run `replay rebuild {view}`"
    )
