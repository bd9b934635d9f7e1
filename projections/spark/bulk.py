"""The bulk path: one Spark batch job folds a view's whole log and writes its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eventlog.settings import LogSettings
from projections.stores.store import BulkWriter
from projections.view import TableView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class BulkResult:
    """What a bulk load did.

    events: log records read, handled or not. rows: written. phases: seconds by name. skipped: poison records left out.
    """

    events: int
    rows: int
    seconds: float
    phases: Mapping[str, float]
    skipped: int = 0


def bulk_load(
    session: SparkSession,
    view: TableView,
    settings: LogSettings,
    ranges: Mapping[int, tuple[int, int]],
    writer: BulkWriter,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    *,
    skip_poison: bool = False,
) -> BulkResult:
    """Fold the events in `ranges` (by source partition: start, end exclusive) and write the rows through `writer`.

    on_progress: called from another thread with (offsets read, offsets in all).
    skip_poison: leave out what the live query sends to `dead-letters`; otherwise it raises PoisonEvent.
    """
    raise NotImplementedError
