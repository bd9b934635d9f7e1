"""Spark as workers of a fold: it runs the same tasks as a local pool, and reads records as the live query does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from msgspec.structs import replace
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from headwater.eventlog.settings import LogSettings
from headwater.eventlog.source_positions import source_id, topic_and_partition
from headwater.eventlog.topics import DEAD_LETTERS, PATCHES
from headwater.projections.errors import BulkLoadFailed
from headwater.projections.folding.erasures import Tombstones
from headwater.projections.folding.fold_records import Erased, UnclearRecord
from headwater.projections.folding.program import Program
from headwater.projections.folding.states import States
from headwater.projections.folding.tasks import FoldTask, Letter, Share, chunks, fold, groups, pieces_of, write
from headwater.projections.folding.workers import TaskFailed
from headwater.projections.folding.writing import Written, together
from headwater.projections.generations.rebuild.engine import Ranges
from headwater.projections.generations.registry.selection import Selection
from headwater.projections.kinds import stream_view, table_view
from headwater.projections.limits import GROUP_BYTES, ROWS_IN_MEMORY
from headwater.projections.loading.dead_letters import DeadLetters
from headwater.projections.loading.decoding import PROGRESS, read_into
from headwater.projections.spark.erasing import remaining, tombstones
from headwater.projections.spark.kafka_source import read_ranges
from headwater.projections.spark.patch_sql import patch_records
from headwater.projections.spark.selected_records import selected
from headwater.projections.spark.stream_queries.realtime import realtime_records
from headwater.projections.stores.names import NUL, REPLACEMENT, patch_key
from headwater.projections.stores.store import Batch, BulkWriter
from headwater.projections.table.json_text import JsonTexts
from headwater.projections.table.patch import Patch
from headwater.projections.table.view import TableView
from headwater.projections.view import View

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

JVM_DIED: Final = (
    "Spark's JVM has ended, its last output is above; if it is an OutOfMemoryError, give Spark more memory "
    "(HEADWATER_SPARK_MEMORY)"
)
NAMED_LETTERS: Final = 1_000
"""Of one task at most: all unreadable records are counted, but only this many are named and become dead letters."""
_RECORDS: Final = "topic string, key binary, value binary, `partition` int, `offset` bigint, timestamp timestamp"


class SparkTasks:
    """SparkWorkers in one session, for one fold at a time.

    On a cluster, the rows of what was folded last stay on the executors until they are written.
    """

    def __init__(self, session: SparkSession, settings: LogSettings) -> None:
        self._session, self._settings = session, settings
        self._context = session.sparkContext
        self._count = self._context.accumulator(0)
        self._folded: RDD[Share] | None = None

    @property
    def size(self) -> int:
        """Tasks that run at a time."""
        return self._context.defaultParallelism

    @property
    def on_one_disk(self) -> bool:
        """Whether the tasks run in this machine's own JVM."""
        return (self._context.master or "").partition("[")[0] == "local"

    @property
    def read(self) -> int:
        """Records that were read by tasks that have ended."""
        return int(self._count.value)

    def refuses(self, program: Program) -> str:
        """See Workers.refuses; Spark sends what Python's own pickle cannot."""
        return ""

    def fold(self, tasks: Sequence[FoldTask]) -> list[Share]:
        """See Workers.fold."""
        return self._shares(self._context.parallelize(tasks, len(tasks)).flatMap(partial(_fold, self._count)))

    def fold_patches(self, view: TableView, ranges: Ranges, selection: Selection, task: FoldTask) -> list[Share]:
        """See SparkWorkers.fold_patches."""
        with _translated():
            made = self._selected_patches(view, ranges, selection, task.erased)
        return self._shares(made.rdd.mapPartitions(partial(_fold_patches, task, self._count)))

    def _selected_patches(self, view: TableView, ranges: Ranges, selection: Selection, erased: Erased) -> DataFrame:
        """What the live query makes of the selected events that are not erased."""
        records = read_ranges(self._session, self._settings, ranges)
        if erased:
            records = remaining(records, erased, self._settings)
        return patch_records(selected(records, view, selection, self._settings), [view], self._settings)

    def row_patches(
        self, view: TableView, ranges: Ranges, selection: Selection, erased: Erased, keys: Set[str]
    ) -> Iterator[Patch]:
        """See SparkWorkers.row_patches."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        with _of_view(view):
            made = self._selected_patches(view, ranges, selection, erased)
            few = F.broadcast(
                self._session.createDataFrame([(patch_key(view.tag, key),) for key in keys], "wanted string")
            )
            # nothing is shuffled: rows come in the order in which they were read
            made = made.where(made.topic == self._settings.topic(PATCHES))
            found = made.join(few, F.translate(made.key, NUL, REPLACEMENT) == few.wanted, "left_semi")
            for row in found.toLocalIterator():
                batch = Batch(0)
                texts = {view.tag: view.layout.json_texts}
                read_into(batch, row["key"].encode(), row["value"].encode(), json_texts=texts)
                yield from batch.patches[view.tag]

    def write(self, view: int, program: Program, shares: Sequence[Share], writers: Sequence[BulkWriter]) -> Written:
        """See Workers.write."""
        written = partial(write, program, writers)
        with _translated():
            if self._folded is None:
                pieces = groups(shares, view, program, self.size)
                return together(self._context.parallelize(pieces, max(1, len(pieces))).map(written).collect())
            own = self._context.parallelize([share for share in shares if share.content])
            tasks = max(self.size, sum(chunk.size for share in shares for chunk in share.chunks) // GROUP_BYTES)
            if program.retraction is not None:
                tasks = 1  # its rows change common groups
            exchanged = self._folded.union(own).flatMap(partial(pieces_of, view=view)).partitionBy(tasks)
            return together(exchanged.values().mapPartitions(lambda pieces: [written(pieces)]).collect())

    def tombstones(self, ranges: Ranges) -> Tombstones:
        """See SparkWorkers.tombstones."""
        with _translated():
            return tombstones(read_ranges(self._session, self._settings, ranges), self._settings)

    def patches_of(self, view: TableView, records: Sequence[UnclearRecord]) -> tuple[list[Patch], list[Letter]]:
        """See SparkWorkers.patches_of."""
        rows = [
            (self._settings.topic(topic), each.key, each.value, partition, each.offset, _time(each.timestamp_ms))
            for each in records
            for topic, partition in [topic_and_partition(each.source)]
        ]
        with _translated():
            frame = self._session.createDataFrame(rows, _RECORDS)
            found = patch_records(frame, [view], self._settings).collect()
        batch, letters = Batch(0), list[Letter]()
        for topic, key, value, _ in found:
            _take(batch, letters, (topic, key, value), {view.tag: view.layout.json_texts})
        return batch.patches.get(view.tag, []), letters

    def patches(self, view: View, ranges: Ranges) -> Iterable[tuple[str, str, int]]:
        """See SparkWorkers.patches."""
        with _of_view(view):
            records = read_ranges(self._session, self._settings, ranges)
            if view.has_own_query:
                made = realtime_records(records, stream_view(view), self._settings)
            else:
                made = patch_records(records, [table_view(view)], self._settings)
            letters, patches = DeadLetters(self._settings), self._settings.topic(PATCHES)
            # nothing is shuffled: rows come in the order in which they were read
            for row in made.toLocalIterator():
                if row["topic"] == patches:
                    yield row["key"], row["value"], row["partition"]
                else:
                    letters.put(row["key"], row["value"].encode())
            letters.flush()

    def _shares(self, folded: RDD[Share]) -> list[Share]:
        with _translated():
            if self.on_one_disk:
                return folded.collect()
            from pyspark import StorageLevel  # noqa: PLC0415

            if self._folded is not None:
                self._folded.unpersist()
            self._folded = folded.persist(StorageLevel.DISK_ONLY)
            return self._folded.map(_without_content).collect()


def _fold(count: Any, task: FoldTask) -> Iterator[Share]:
    return fold(task, count.add)


def _fold_patches(task: FoldTask, count: Any, rows: Iterable[Any]) -> Iterator[Share]:
    """Runs in an executor on the output of the live query's SQL."""
    states, letters, poison = States(task.programs[0]), list[Letter](), 0
    path = None if task.path is None else task.path / uuid4().hex
    texts = {task.programs[0].tag: task.programs[0].json_texts}
    with chunks(path, task.buckets) as held:
        for topic, key, value, _ in rows:
            batch, unreadable = Batch(0), list[Letter]()
            _take(batch, unreadable, (topic, key, value), texts)
            states.add(patch for patches in batch.patches.values() for patch in patches)
            poison += len(unreadable)
            letters += unreadable[: NAMED_LETTERS - len(letters)]
            count.add(1)
            if len(states) > ROWS_IN_MEMORY:
                held.add(0, states.drain())
                yield from held.full()
        held.add(0, states.drain())
        yield held.share(letters=letters, poison=poison)


def _take(
    batch: Batch, letters: list[Letter], record: tuple[str, str, str], json_texts: Mapping[str, JsonTexts]
) -> None:
    """Take one output record of the live query's SQL: topic, key and value of a patch, or of a dead letter."""
    topic, key, value = record
    if topic.endswith(DEAD_LETTERS):
        place, _, offset = key.rpartition("/")
        topic, _, partition = place.rpartition("/")
        letters.append(Letter(source_id(topic, int(partition)), int(offset), value.encode()))
    elif not key.startswith(PROGRESS.decode()):
        read_into(batch, key.encode(), value.encode(), json_texts=json_texts)


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _without_content(share: Share) -> Share:
    return replace(share, content=b"")


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (Py4JNetworkError, ConnectionError) as error:
        raise TaskFailed(JVM_DIED) from error
    except (PySparkException, Py4JError) as error:
        raise TaskFailed(_last_cause(str(error))) from error


@contextmanager
def _of_view(view: View) -> Iterator[None]:
    """Like _translated, for patches that are read outside of a pass: raises BulkLoadFailed."""
    try:
        with _translated():
            yield
    except TaskFailed as error:
        raise BulkLoadFailed(view.name, str(error)) from error


def _last_cause(trace: str) -> str:
    """The line of a trace, of Spark or Python, that says what happened; the chained error has the whole trace."""
    lines = [line.strip() for line in trace.splitlines() if line.strip() and not line.startswith((" ", "\t"))]
    messages = [line for line in lines if not line.startswith(("SQLSTATE", "JVM stacktrace", "Traceback"))]
    return (messages or [trace])[-1][:500]
