"""The bulk path: one Spark batch job folds a view's whole log and writes its rows."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from eventlog.settings import LogSettings
from eventlog.topics import DEAD_LETTERS
from projections.errors import BulkLoadFailed, PoisonEvent
from projections.generations.engine import BulkResult, watched
from projections.generations.selection import ALL, Selection
from projections.loading.dead_letters import DeadLetters
from projections.spark.erasing import Erasures
from projections.spark.folding import ERASES, GROUPED_IN_MEMORY, MARKER, POISON, fault, groups_in_memory
from projections.spark.kafka_source import read_ranges
from projections.spark.patch_sql import patch_records
from projections.spark.slices import SLICE_OFFSETS, Slices
from projections.stores.store import BulkWriter
from projections.table.view import TableView

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

log = logging.getLogger(__name__)

NAMED_POISON: Final = 1_000
"""Of one task at most: all unreadable records are counted, but only this many are named and become dead letters."""

JVM_DIED: Final = (
    "Spark's JVM has ended, its last output is above; if it is an OutOfMemoryError, give Spark more memory "
    "(HEADWATER_SPARK_MEMORY)"
)

_WRITTEN = "written bigint, poison bigint, named array<string>, erases boolean"


def bulk_load(
    session: SparkSession,
    view: TableView,
    settings: LogSettings,
    ranges: Mapping[int, tuple[int, int]],
    writers: Sequence[BulkWriter],
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
    *,
    selection: Selection = ALL,
    skip_poison: bool = False,
    slice_offsets: int = SLICE_OFFSETS,
    start_over: Callable[[], None],
) -> BulkResult:
    """Fold the events in `ranges` (by source partition: start, end exclusive) and write the rows through `writers`.

    writers: one per store; the rows are folded once, and kept on disk meanwhile if there are several. on_progress:
    called from another thread with (log records read, total offsets); offsets have gaps, so the first may stay below
    the second. selection: of the events in `ranges`. skip_poison: send unreadable records to `dead-letters`, like the
    live query; otherwise they raise PoisonEvent, after the other rows are written. slice_offsets: see Slices.
    start_over: deletes the written rows; called if the log turns out to have tombstones, before all rows are written
    again without the erased events. Raises BulkLoadFailed if the job fails; the next load reuses the slices that were
    folded.
    """
    total = sum(end - start for start, end in ranges.values())
    started = time.monotonic()
    if not total:
        on_progress(0, 0)
        return BulkResult(0, 0, 0.0)
    session.conf.set(GROUPED_IN_MEMORY, groups_in_memory(view))
    slices = Slices(session, settings, view, selection, slice_offsets)
    try:
        tasks = _Load(slices, ranges, writers, on_progress).run(start_over)
    except (Py4JNetworkError, ConnectionError) as error:
        raise BulkLoadFailed(view.name, JVM_DIED) from error
    except (PySparkException, Py4JError) as error:
        raise BulkLoadFailed(view.name, _last_cause(str(error))) from error
    ended = time.monotonic()
    poison = sum(task.poison for task in tasks)
    if poison:
        named = sorted(_place(place) for task in tasks for place in task.named)
        if not skip_poison:
            raise _poison_event(session, settings, view, named[0], poison - 1)
        _write_dead_letters(session, settings, view, named)
    slices.forget()
    return BulkResult(total, sum(task.written for task in tasks), ended - started, poison)


@dataclass(frozen=True)
class _Load:
    """What is folded, and where it is written; see `bulk_load`."""

    slices: Slices
    ranges: Mapping[int, tuple[int, int]]
    writers: Sequence[BulkWriter]
    on_progress: Callable[[int, int], None]

    def run(self, start_over: Callable[[], None]) -> list[Row]:
        """Fold and write; a second time if the fold met tombstones. Returns the reports of the tasks of one store."""
        erasures = Erasures(self.slices.settings)
        if not erasures.are_known:
            tasks = self._fold_and_write(None)
            if not any(task.erases for task in tasks):
                return tasks
            log.info("%s: folding again without the events that tombstones erase", self.slices.view.tag)
            start_over()
        erased = erasures.of(self.slices.session, self.ranges)
        try:
            has_tombstones = erased.count() > 0
            erasures.keep(has_tombstones)
            return self._fold_and_write(erased if has_tombstones else None)
        finally:
            erased.unpersist()

    def _fold_and_write(self, erased: DataFrame | None) -> list[Row]:
        view, total = self.slices.view, sum(end - start for start, end in self.ranges.values())
        with _watched(self.slices.session, total, self.on_progress):
            rows = replace(self.slices, erased=erased).fold(self.ranges)
            with _kept(rows, len(self.writers) > 1):
                results = [
                    rows.mapInArrow(_write_with(each, view.key_name), _WRITTEN).collect() for each in self.writers
                ]
        return results[0]


@contextmanager
def _kept(rows: DataFrame, kept: bool) -> Iterator[None]:
    """Fold rows once that are read several times."""
    if not kept:
        yield
        return
    from pyspark import StorageLevel  # noqa: PLC0415

    rows.persist(StorageLevel.DISK_ONLY)
    try:
        yield
    finally:
        rows.unpersist()


def _poison_event(
    session: SparkSession, settings: LogSettings, view: TableView, place: tuple[int, int], others: int
) -> PoisonEvent:
    partition, offset = place
    there = read_ranges(session, settings, {partition: (offset, offset + 1)})
    (record,) = there.selectExpr("cast(key as string) as key", "cast(value as string) as value").collect()
    shown = f"{record['key']} {record['value']}"
    return PoisonEvent(view.name, f"{partition}:{offset}", fault(there, view), others, shown)


def _write_dead_letters(
    session: SparkSession, settings: LogSettings, view: TableView, places: Sequence[tuple[int, int]]
) -> None:
    """Write the same dead letters as the live query writes for these records."""
    ranges: dict[int, tuple[int, int]] = {}
    for partition, offset in places:
        first, _ = ranges.get(partition, (offset, 0))
        ranges[partition] = (first, offset + 1)
    listed = ", ".join(f"({partition}, {offset}L)" for partition, offset in places)
    records = read_ranges(session, settings, ranges).where(f"(`partition`, `offset`) in ({listed})")
    made = patch_records(records, [view], settings)
    letters = DeadLetters(settings)
    for row in made.where(made.topic == settings.topic(DEAD_LETTERS)).toLocalIterator():
        letters.put(row["key"], row["value"].encode())
    letters.flush()


def _last_cause(trace: str) -> str:
    """The line of a trace, of Spark or Python, that says what happened; the chained error has the whole trace."""
    lines = [line.strip() for line in trace.splitlines() if line.strip() and not line.startswith((" ", "\t"))]
    messages = [line for line in lines if not line.startswith(("SQLSTATE", "JVM stacktrace", "Traceback"))]
    return (messages or [trace])[-1][:500]


def _write_with(writer: BulkWriter, key: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Runs in an executor on the rows of one partition: writes them, and reports their number and the problems."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        poison: list[str] = []
        erases = False

        def rows() -> Iterator[pa.RecordBatch]:
            nonlocal erases
            for batch in batches:
                faults = batch.column(POISON)
                positions = faults.drop_null().to_pylist()
                erases = erases or ERASES in positions
                poison.extend(position for position in positions if position != ERASES)
                keep = pc.and_(pc.is_null(faults), pc.is_valid(batch.column(key)))
                view = batch.drop_columns([POISON, MARKER])
                yield view if pc.all(keep).as_py() else view.filter(keep)

        written = writer.write(rows())
        yield pa.RecordBatch.from_pydict(
            {
                "written": pa.array([written], pa.int64()),
                "poison": [len(poison)],
                "named": pa.array([sorted(poison, key=_place)[:NAMED_POISON]], pa.list_(pa.string())),
                "erases": [erases],
            }
        )

    return write


def _place(position: str) -> tuple[int, int]:
    """Partition and offset, from `partition:offset`."""
    partition, _, offset = position.partition(":")
    return int(partition), int(offset)


@contextmanager
def _watched(session: SparkSession, total: int, on_progress: Callable[[int, int], None]) -> Iterator[None]:
    """Report, while a job runs, how many records its tasks have read."""
    group = f"bulk-{time.monotonic_ns()}"
    session.sparkContext.setJobGroup(group, "bulk load", interruptOnCancel=True)
    with watched(lambda: _records_read(session, group), total, on_progress):
        yield


def _records_read(session: SparkSession, group: str) -> int:
    """Input records of every stage of the group's jobs, as reported by tasks."""
    tracker, store = session.sparkContext.statusTracker(), session.sparkContext._jsc.sc().statusStore()
    jobs = (tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group))
    stages = {stage for job in jobs if job is not None for stage in job.stageIds}
    return sum(int(store.lastStageAttempt(stage).inputRecords()) for stage in stages if tracker.getStageInfo(stage))
