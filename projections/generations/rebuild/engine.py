"""The engine that folds the log for a rebuild; it is passed in, so that this package does not depend on Spark."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from headwater.eventlog.errors import EventLogError
from headwater.eventlog.heartbeats import is_heartbeat_key
from headwater.eventlog.ports import EventLog
from headwater.eventlog.source_positions import topic_and_partition
from headwater.projections.errors import SHOWN_CHARACTERS, ProjectionError, RebuildFailed
from headwater.projections.generations.registry.sources import ALL, Selection
from headwater.projections.stores.store import BulkWriter, Ledger, Target
from headwater.projections.table.patch import Patch
from headwater.projections.view import View

log = logging.getLogger(__name__)

REPORT_S: Final = 0.25
"""Time between progress reports."""
POLL_S: Final = 0.02

Waits = Generator[None, None, None]
"""Work in steps: it has to wait before the next one, so that other work can be done then."""

Ranges = Mapping[str, tuple[int, int]]
"""By source, the first offset and the one after the last."""


def run_alone(work: Waits) -> None:
    """Do work that has to wait, with nothing else to do meanwhile."""
    for _ in work:
        time.sleep(POLL_S)


def offsets_in(ranges: Ranges) -> int:
    """The number of offsets."""
    return sum(end - start for start, end in ranges.values())


@dataclass(frozen=True, slots=True)
class BulkResult:
    """The result of a bulk load.

    offsets: of the log that were read, with those of heartbeats and of transactions.
    rows: written.
    seconds: in total.
    skipped: unreadable records that were skipped.
    refused: by writer, the keys of the rows that its store refused; these are not written.
    events: among the offsets, or changes of captured rows; None if they were not counted, because Spark read them.
    """

    offsets: int
    rows: int
    seconds: float
    skipped: int = 0
    refused: Sequence[Set[str]] = ()
    events: int | None = None


Kind_co = TypeVar("Kind_co", bound=View, covariant=True)


@dataclass(frozen=True)
class Load(Generic[Kind_co]):
    """A bulk load: fold the events in `ranges`, and write the rows through `writers`, one per store.

    on_progress: called from another thread with (log records read, total offsets). selection: of the events.
    skip_poison: send unreadable records to `dead-letters`; otherwise they are a PoisonEvent, after the other rows are
    written.
    """

    view: Kind_co
    ranges: Ranges
    writers: Sequence[BulkWriter]
    on_progress: Callable[[int, int], None] = lambda _done, _total: None
    selection: Selection = ALL
    skip_poison: bool = False


Failure = ProjectionError | EventLogError | OSError
FAILURES: Final = (ProjectionError, EventLogError, OSError)
"""Each kind of Failure, for `except`."""


def failed(view: str, phase: str, error: Exception) -> RebuildFailed:
    """Why the rebuild of a view failed; the traceback of an error that no part of it foresees is logged."""
    if isinstance(error, Failure):
        return RebuildFailed(view, phase, str(error))
    log.error('unexpected error in the rebuild of "%s" during %s', view, phase, exc_info=error)
    return RebuildFailed(view, phase, f"{type(error).__name__}: {error}"[:SHOWN_CHARACTERS])


class Engine(Protocol):
    """Reads events of the log and folds them."""

    def bulk_load(self, loads: Sequence[Load[View]]) -> list[BulkResult | Failure]:
        """Load several views; those with the same ranges and selection are folded in one pass over the log.

        Returns for each its result, or why it failed: for example PoisonEvent, BulkLoadFailed or LogUnavailable. A view
        that fails does not stop the others. The next load of the same views reuses what was folded of a long log.
        """

    def row_patches(
        self, load: Load[View], keys: Set[str] | None, streams: Collection[str] | None = None
    ) -> Iterable[Patch]:
        """The patches of the rows with these keys, from the events of a bulk load, in the order of each log partition.

        keys: None for all rows. streams: those that have all events of these rows; None: any may have. `load.writers`
        are not used.

        Raises BulkLoadFailed or LogUnavailable.
        """

    def patches(self, view: View, ranges: Ranges) -> Iterable[tuple[str, str, int]]:
        """Key, value and partition of the patches of these events, in the order of each log partition.

        Unreadable records become dead letters, like those of the live query. Raises LogUnavailable.
        """


class StreamQueries(Protocol):
    """Runs the queries of views that have their own (`View.has_own_query`)."""

    def begin(self, target: Target) -> None:
        """Let the query of a new generation begin elsewhere, with the first record; nothing runs here."""

    def why_lost(self, target: Target, ledgers: Iterable[Mapping[int, Ledger]], log: EventLog) -> str | None:
        """Why the query of a generation with state cannot continue here, after "its state"; None if it can.

        ledgers: those of the generation in each store. Raises LogUnavailable.
        """

    def running(self, target: Target, *, anew: bool) -> AbstractContextManager[Waits]:
        """A context in which the query of a generation runs.

        What it returns ends when all records that were in the sources are computed, and their rows are in `patches`.
        anew: from the first record; else from where it stopped. Raises StreamQueryFailed or ViewDeclarationError, and
        so does what it returns.
        """


def holds_events(log: EventLog, ranges: Ranges) -> bool:
    """Whether `ranges` contain records other than heartbeats; raises LogUnavailable."""
    return any(
        not is_heartbeat_key(record.key, record.topic)
        for source, (start, end) in ranges.items()
        for record in log.read(*topic_and_partition(source), start, end)
    )


@contextmanager
def watched(read: Callable[[], int], total: int, on_progress: Callable[[int, int], None]) -> Iterator[None]:
    """Report from another thread, while a bulk load runs, how many records of `total` were read; see Engine."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(REPORT_S):
            on_progress(min(read(), total), total)

    thread = threading.Thread(target=watch, name="bulk-progress", daemon=True)
    on_progress(0, total)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    on_progress(total, total)
