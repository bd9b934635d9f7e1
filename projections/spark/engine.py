"""Spark as the engine of rebuilds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eventlog.settings import LogSettings
from eventlog.topics import PATCHES
from projections.generations.engine import BulkResult, Ranges
from projections.generations.selection import Selection
from projections.stores.store import BulkWriter
from projections.table.view import TableView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class SparkEngine:
    """An Engine; session: starts Spark at its first use."""

    settings: LogSettings
    session: Callable[[], SparkSession]

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
        """See Engine.bulk_load."""
        from projections.spark.bulk import bulk_load  # noqa: PLC0415 - a rebuild of an empty log needs no Spark

        return bulk_load(
            self.session(),
            view,
            self.settings,
            ranges,
            writers,
            on_progress,
            selection=selection,
            skip_poison=skip_poison,
            start_over=start_over,
        )

    def patches(self, view: TableView, ranges: Ranges) -> Iterable[tuple[str, str, int]]:
        """See Engine.patches."""
        from projections.spark.kafka_source import read_ranges  # noqa: PLC0415 - likewise
        from projections.spark.patch_sql import patch_records  # noqa: PLC0415

        made = patch_records(read_ranges(self.session(), self.settings, ranges), [view], self.settings)
        # nothing is shuffled: rows come in the order in which they were read
        for row in made.where(made.topic == self.settings.topic(PATCHES)).toLocalIterator():
            yield row["key"], row["value"], row["partition"]
