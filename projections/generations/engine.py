"""What folds the log for a rebuild; the composition passes one in, so that nothing here knows Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from eventlog.ports import EventLog
from eventlog.topics import EVENTS
from projections.generations.selection import Selection
from projections.stores.store import BulkWriter
from projections.table.view import TableView

Ranges = Mapping[int, tuple[int, int]]
"""By partition of `events`, the first offset and the one after the last."""


@dataclass(frozen=True, slots=True)
class BulkResult:
    """What a bulk load did.

    events: log offsets covered. rows: written. seconds: in all. skipped: records that cannot be read, left out.
    """

    events: int
    rows: int
    seconds: float
    skipped: int = 0


class Engine(Protocol):
    """Reads events of the log and folds them."""

    def bulk_load(
        self,
        view: TableView,
        ranges: Ranges,
        writers: Sequence[BulkWriter],
        on_progress: Callable[[int, int], None],
        *,
        selection: Selection,
        skip_poison: bool,
        start_over: Callable[[], None],
    ) -> BulkResult:
        """Fold the events in `ranges` and write the rows through `writers`, one per store.

        on_progress: called from another thread with (log records read, offsets in all). selection: of the events.
        skip_poison: send to `dead-letters` what cannot be read; otherwise it raises PoisonEvent, after the other rows
        are written. start_over: removes what the writers wrote, because all is written again. Raises BulkLoadFailed.
        """

    def patches(self, view: TableView, ranges: Ranges) -> Iterable[tuple[str, str, int]]:
        """Key, value and partition of the patches of these events, in the order of each partition of the log."""


def holds_events(log: EventLog, ranges: Ranges) -> bool:
    """Whether there are records other than heartbeats in `ranges`; raises LogUnavailable."""
    return any(
        not record.key.startswith("heartbeat/")
        for partition, (start, end) in ranges.items()
        for record in log.read(EVENTS, partition, start, end)
    )
