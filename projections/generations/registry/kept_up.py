"""Until when a generation was kept up to date, and whether it may have missed deletions since then.

Compaction leaves nothing of a deleted row of a captured table once its tombstone is old enough. A generation that was
not kept up for so long would show the row for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from eventlog.ports import EventLog
from eventlog.topics import PATCHES, TOMBSTONES_DAYS
from projections.generations.registry.generation import Generation
from projections.stores.store import Ledger
from projections.table.rows import Deleted
from projections.view import View

KEPT_FOR: Final = timedelta(days=TOMBSTONES_DAYS - 1)
"""After this time without being kept up, deletions may be gone: a day is left to read those that are still there."""
LATEST_PATCHES: Final = 1_000
"""So many offsets before a ledger's are searched for its last patch."""


def sees_deletions(view: View) -> bool:
    """Whether its rows change if a row of a captured table is deleted."""
    return any(view.handles(Deleted(table).type) for table in view.tables.values())


def missed_since(
    view: View, generation: Generation, store: str, ledgers: Mapping[int, Ledger], log: EventLog
) -> datetime | None:
    """The time since when it may have missed deletions in a store; None if it has every one, or can still read it.

    Raises LogUnavailable.
    """
    if not sees_deletions(view):
        return None
    until = _kept_until(generation, store, ledgers, log)
    return until if generation.read_at - until > KEPT_FOR else None


def missed(since: datetime, view: str) -> str:
    """What to tell about a generation that may have missed deletions."""
    return (
        f"it was last up to date at {since.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC, and the log may not have all "
        f"deletions of captured rows since then: run `replay rebuild {view}`"
    )


def _kept_until(generation: Generation, store: str, ledgers: Mapping[int, Ledger], log: EventLog) -> datetime:
    """A time up to which it has applied everything; it may have applied more.

    It went live when it had caught up, and upkeep records that it is kept up. Earlier releases did not: then the last
    patch that it applied tells, if retention has not deleted that.
    """
    live = generation.live_at or generation.created_at
    noted = generation.kept.get(store)
    if noted is not None:
        return max(live, datetime.fromtimestamp(noted, UTC))
    patched = [_time_before(log, partition, ledger.next_offset) for partition, ledger in ledgers.items()]
    return max(live, min((each or live for each in patched), default=live))


def _time_before(log: EventLog, partition: int, offset: int) -> datetime | None:
    """When the last record of `patches` before an offset was written; None if there is none near it."""
    start, last = max(log.first(PATCHES, partition), offset - LATEST_PATCHES), None
    if start < offset:
        for record in log.read(PATCHES, partition, start, offset):
            last = record
    return None if last is None else datetime.fromtimestamp(last.timestamp_ms / 1000, UTC)
