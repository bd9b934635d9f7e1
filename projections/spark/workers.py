"""Spark as workers of a fold: it runs the same tasks as a local pool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from headwater.eventlog.settings import LogSettings
from headwater.projections.errors import BulkLoadFailed
from headwater.projections.folding.tasks import FoldTask, Share, TaskFailed, Written, fold, groups, pieces_of, write
from headwater.projections.generations.rebuild.engine import Ranges
from headwater.projections.kinds import stream_view
from headwater.projections.limits import GROUP_BYTES
from headwater.projections.reading.program import Decoders, Program
from headwater.projections.spark.live import read_ranges
from headwater.projections.spark.stream_queries.realtime import realtime_records
from headwater.projections.stores.store import BulkWriter
from headwater.projections.view import View

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import SparkSession

JVM_DIED: Final = (
    "Spark's JVM has ended, its last output is above; if it is an OutOfMemoryError, give Spark more memory "
    "(HEADWATER_SPARK_MEMORY)"
)


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

    def refuses(self, program: Program, decoders: Decoders) -> str:
        """See Workers.refuses; Spark sends what Python's own pickle cannot."""
        return ""

    def fold(self, tasks: Sequence[FoldTask]) -> list[Share]:
        folded = self._context.parallelize(tasks, len(tasks)).flatMap(partial(_fold, self._count))
        with _translated():
            if self.on_one_disk:
                return folded.collect()
            from pyspark import StorageLevel  # noqa: PLC0415

            if self._folded is not None:
                self._folded.unpersist()
            self._folded = folded.persist(StorageLevel.DISK_ONLY)
            return self._folded.map(partial(replace, content=b"")).collect()

    def write(self, view: int, program: Program, shares: Sequence[Share], writers: Sequence[BulkWriter]) -> Written:
        written = partial(write, program, writers)
        with _translated():
            if self._folded is None:
                pieces = groups(shares, view, program, self.size)
                return Written.together(self._context.parallelize(pieces, max(1, len(pieces))).map(written).collect())
            own = self._context.parallelize([share for share in shares if share.content])
            tasks = max(self.size, sum(chunk.size for share in shares for chunk in share.chunks) // GROUP_BYTES)
            if program.retraction is not None:
                tasks = 1  # its rows change common groups
            exchanged = self._folded.union(own).flatMap(partial(pieces_of, view=view)).partitionBy(tasks)
            return Written.together(exchanged.values().mapPartitions(lambda pieces: [written(pieces)]).collect())

    def patches(self, view: View, ranges: Ranges) -> Iterable[tuple[str, str, int]]:
        try:
            with _translated():
                records = read_ranges(self._session, self._settings, ranges)
                # nothing is shuffled: rows come in the order in which they were read
                for row in realtime_records(records, stream_view(view), self._settings).toLocalIterator():
                    yield row["key"], row["value"], row["partition"]
        except TaskFailed as error:
            raise BulkLoadFailed(view.name, str(error)) from error


def _fold(count: Any, task: FoldTask) -> Iterator[Share]:
    return fold(task, count.add)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (Py4JNetworkError, ConnectionError) as error:
        raise TaskFailed(JVM_DIED) from error
    except (PySparkException, Py4JError) as error:
        raise TaskFailed(_last_cause(str(error))) from error


def _last_cause(trace: str) -> str:
    """The line of a trace, of Spark or Python, that says what happened; the chained error has the whole trace."""
    lines = [line.strip() for line in trace.splitlines() if line.strip() and not line.startswith((" ", "\t"))]
    messages = [line for line in lines if not line.startswith(("SQLSTATE", "JVM stacktrace", "Traceback"))]
    return (messages or [trace])[-1][:500]
