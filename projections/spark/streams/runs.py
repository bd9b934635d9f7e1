"""Runs the query of one generation for a rebuild, until another process continues it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError

from eventlog.kafka_heartbeats import beating
from eventlog.settings import LogSettings
from projections.errors import StreamQueryFailed
from projections.generations.stream_report import write_report
from projections.generations.waits import Waits
from projections.spark.streams.checkpoint import Checkpoint
from projections.spark.streams.failures import reason
from projections.spark.streams.progress import progress_sender
from projections.spark.streams.query import TRIGGER_S, StreamQuery, stream_session
from projections.spark.streams.watched import Watched
from projections.stores.store import Target
from projections.stream.view import stream_view

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STOP_S: Final = 10.0
"""How long to wait for the end of a batch before the query is stopped."""
BATCHES: Final = 2
"""The first reads all records, and moves the watermark at its end; the second sends the rows that are final then. If
owners of `events` are down, no heartbeat causes the second: then Spark makes one without records if it sends rows."""


@contextmanager
def running(session: SparkSession, settings: LogSettings, target: Target, *, anew: bool) -> Iterator[Waits]:
    """See StreamQueries.running."""
    view = stream_view(target.view)
    checkpoint = Checkpoint.of(settings, target.tag)
    with checkpoint.held() as is_ours:
        if not is_ours:
            raise StreamQueryFailed(target.tag, "another process runs it: wait until it has stopped")
        if anew:
            checkpoint.create()
            write_report(settings, target.tag, None)
        elif not checkpoint.exists:
            raise StreamQueryFailed(
                target.tag,
                f"its state is not on this machine: run `replay rebuild {view.name}`, which computes it again",
            )
        with _named(target.tag), progress_sender(settings) as progress, ExitStack() as heartbeats:
            heartbeats.enter_context(beating(settings, view.beaten, partitions=1))
            until = checkpoint.committed() + BATCHES
            own = stream_session(session, without_heartbeats=not view.beaten)
            query = StreamQuery(own, progress, view, target.tag, settings, checkpoint).start(TRIGGER_S)
            watched, stop_s = Watched(query, settings, target.tag), 0.0
            try:
                yield _computed(watched, target, checkpoint, until)
                stop_s = STOP_S
            finally:
                heartbeats.close()  # with a batch per second, a slow machine is never between two batches
                watched.look()
                watched.stop(stop_s)


def _computed(watched: Watched, target: Target, checkpoint: Checkpoint, until: int) -> Waits:
    """Until the batch with this number has ended, or without heartbeats, until nothing is left to do.

    Raises StreamQueryFailed if the query fails before.
    """
    idle = None if stream_view(target.view).beaten else watched.when_idle()
    while checkpoint.committed() < until and not (idle and idle.is_set()):
        if (cause := watched.failure()) is not None:
            raise StreamQueryFailed(target.tag, cause)
        yield


@contextmanager
def _named(tag: str) -> Iterator[None]:
    """If Spark's JVM ends, say whose query that stopped."""
    try:
        yield
    except Py4JError as error:
        raise StreamQueryFailed(tag, f"Spark does not answer: {reason(error)}") from error
