"""The parts of the read side that run queries in Spark: the live query, and the queries of stream views."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.kafka.heartbeats import beating
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.ports import EventLog
from headwater.eventlog.programs.cores import cores
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.tracing.spans import is_configured
from headwater.projections.errors import StoreUnavailable
from headwater.projections.generations.rebuild.engine import holds_events
from headwater.projections.generations.registry.registry import followed
from headwater.projections.generations.registry.sources import ends_of, sources
from headwater.projections.generations.registry.state_files import NOTE_S, note_start
from headwater.projections.live_start import starting_offsets
from headwater.projections.running_parts import LIVE, STREAMS, ready_file
from headwater.projections.service import Service, served
from headwater.projections.spark.stream_queries.checkpoint import sweep
from headwater.projections.stream.view import StreamView
from headwater.projections.table.view import TableView
from headwater.projections.view import View, generation_tag

log = logging.getLogger(__name__)

HELD_LOOK_S: Final = 0.05
RECORDS_LOOK_S: Final = 2.0
FINAL_BEAT_S: Final = 15.0
"""Between heartbeats if a view sends rows when they are final, so that they come on quiet streams too. Each heartbeat
is a batch of every stream view."""
STATE_BEAT_S: Final = 60.0
"""Between heartbeats that only remove state which is no longer needed."""
PROGRESS_BEAT_S: Final = 5.0
"""Between heartbeats in sources of real-time views: as often as in idle partitions of `events`."""


def run_live_query(service: Service, held_by: Path | None = None) -> None:
    """Run the live query until it fails or the process is stopped.

    held_by: once Spark's session has started, wait until this file is gone. Only then the starting offsets are
    known.
    """
    from headwater.projections.spark.live import SPARE_THREADS, checkpoint_directory, run_live  # noqa: PLC0415
    from headwater.projections.spark.session import SparkSettings, start_session  # noqa: PLC0415

    cluster = service.prepare()
    try:
        service = service.servable()
    except StoreUnavailable as error:  # it goes on from its checkpoint
        log.warning("cannot compare declarations with what is built: %s", error)
    views = service.views.of_kind(TableView)
    checkpoint = checkpoint_directory(service.settings, views, cluster)
    threads = len(sources(views, service.settings)) + SPARE_THREADS
    spark = SparkSettings.from_environment(os.environ)
    session = start_session(spark, name="live", threads=threads, lasting=True, state=service.settings.state)
    while held_by is not None and held_by.exists():
        time.sleep(HELD_LOOK_S)
    begins = starting_offsets(service, checkpoint)
    ready = ready_file(service.settings, LIVE)
    with (
        beating(service.settings, [table.topic() for table in service.views.tables]),
        beating(service.settings, service.views.row_views, partitions=service.settings.patch_partitions),
    ):
        run_live(
            session,
            views,
            service.settings,
            checkpoint=checkpoint,
            starting_offsets=begins,
            on_running=ready.touch,
            traced=is_configured(os.environ),
        )


def run_stream_queries(service: Service, stop: threading.Event) -> None:
    """Run the queries of the stream views until `stop` is set. Spark starts when their sources have a record."""
    service.prepare()
    service = service.servable_when_known(stop)
    views = service.views.of_kind(StreamView)
    _sweep(service)
    ready = ready_file(service.settings, STREAMS)
    ready.touch()
    with _noting(service):
        if _have_records(service, views, stop):
            ready.unlink(missing_ok=True)
            try:
                for target in service.targets(views):
                    note_start(service.settings, target.tag)
            except StoreUnavailable as error:
                log.warning("`replay status` cannot say that queries are starting: %s", error)
            _run_stream_queries(service, views, stop)


def _run_stream_queries(service: Service, views: Sequence[StreamView], stop: threading.Event) -> None:
    from headwater.projections.spark.session import SparkSettings, has_died, start_session  # noqa: PLC0415
    from headwater.projections.spark.stream_queries.process import Streams, run_streams, starter, trigger_s  # noqa: PLC0415

    spark = SparkSettings.from_environment(os.environ)
    threads, realtime = max(2, cores()), [view for view in views if view.realtime]
    readers = sum(len(sources([view], service.settings)) for view in realtime)
    # Heartbeats in the sources that get none from others. Those of real-time views go to every partition, because they
    # say how far each is read; one partition is enough for a watermark.
    followed_topics = {topic for view in realtime for topic in view.beaten}
    others = {topic for view in views for topic in view.beaten} - followed_topics
    beat_s = FINAL_BEAT_S if any(view.final for view in views) else STATE_BEAT_S
    session = start_session(
        spark, name="streams", threads=threads + readers, lasting=bool(realtime), state=service.settings.state
    )
    batches = trigger_s(len(views) - len(realtime), threads)
    with (
        closing(service.generations.query_locks("the read side")) as locks,
        followed(service.generations) as live,
        beating(service.settings, sorted(followed_topics), PROGRESS_BEAT_S),
        beating(service.settings, sorted(others), beat_s, partitions=1),
        starter(session, service.settings, batches, service.applied) as start,
    ):
        streams = Streams(
            service.settings,
            lambda: served(views, live()),
            start,
            service.why_lost,
            service.other_state_place,
            locks,
            time.monotonic,
        )
        on_running = ready_file(service.settings, STREAMS).touch
        run_streams(streams, stop, has_died, on_running, lambda: _sweep(service))


@contextmanager
def _noting(service: Service) -> Iterator[None]:
    """Say in the registry, again and again, that the state of stream views is in the folder of this process."""
    done = threading.Event()

    def note() -> None:
        while True:
            service.note_state_place()
            if done.wait(NOTE_S):
                return

    threading.Thread(target=note, name="state place", daemon=True).start()
    try:
        yield
    finally:
        done.set()


def _have_records(service: Service, views: Sequence[StreamView], stop: threading.Event) -> bool:
    """Wait until a source of `views` has a record; False if `stop` was set before."""
    with closing(KafkaLog(service.settings)) as event_log:
        while not stop.is_set():
            try:
                if have_records(event_log, views, service.settings):
                    return True
            except LogUnavailable as error:
                log.warning("cannot look for records of stream views: %s", error)
            stop.wait(RECORDS_LOOK_S)
    return False


def have_records(event_log: EventLog, views: Sequence[View], settings: LogSettings) -> bool:
    """Whether a source of `views` has a record that is no heartbeat; raises LogUnavailable."""
    topics = {topic for view in views for topic in view.topics}
    # one question per topic, where the ends of each partition cost two
    if not any(any(event_log.stored_ends(topic).values()) for topic in topics):
        return False
    ends = ends_of(event_log, sources(views, settings))
    return holds_events(event_log, {topic: (0, end) for topic, end in ends.items()})


def _sweep(service: Service) -> None:
    try:
        sweep(service.settings, lambda: _registered_tags(service))
    except StoreUnavailable as error:
        log.warning("checkpoints of generations that are gone are deleted later: %s", error)


def _registered_tags(service: Service) -> list[str]:
    generations = service.generations.all()
    return [
        *(generation_tag(generation.tag, generation.generation) for generation in generations),
        *(generation.tag for generation in generations),
    ]
