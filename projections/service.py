"""`python -m projections`: builds missing views, then supervises the live query and a loader per store."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

from eventlog.admin import prepare
from eventlog.backoff import RETRY_FOREVER
from eventlog.capturing.declaring import Captured
from eventlog.capturing.naming import table_topic
from eventlog.errors import LogUnavailable
from eventlog.kafka import KafkaLog
from eventlog.kafka_heartbeats import beating
from eventlog.settings import LogSettings
from projections.errors import NotPublished, StoreUnavailable
from projections.folding.slices import remove_left
from projections.generations.dropping import drop_leftovers
from projections.generations.engine import holds_events
from projections.generations.lag import Lags, position
from projections.generations.publishing import publish_live
from projections.generations.rates import LOCAL, SPARK, Bulk, Rates
from projections.generations.rebuild import Rebuilder
from projections.generations.registry import Generation, Generations
from projections.generations.selection import ALL
from projections.generations.sources import ends, sources
from projections.generations.stream_report import note_start
from projections.generations.upkeep import Replay, Upkeep
from projections.loading.loader import Loader
from projections.parts import LIVE, STREAMS, NoParts, Parts, SupervisedParts
from projections.registry import ViewRegistry
from projections.settings import StoreSettings
from projections.spark.streams.checkpoint import Checkpoint, sweep
from projections.stores.open import STORES, open_store
from projections.stores.store import Target
from projections.stream.view import StreamView
from projections.supervision.process import ProcessSpec
from projections.supervision.supervisor import Supervisor
from projections.table.view import TableView
from projections.view import View, generation_tag, has_state

log = logging.getLogger(__name__)

LIVE_START_S = 300.0
EVERYTHING, REPLAYING = "projections", "replaying"
LIVE_HELD_BY = "HEADWATER_LIVE_HELD_BY"
"""Names a file; while it exists, the live query does not start, because a replay may move its starting offsets."""
HELD_LOOK_S, HEALTH_LOOK_S, RECORDS_LOOK_S = 0.05, 0.1, 1.0
FINAL_BEAT_S, STATE_BEAT_S = 15.0, 60.0
"""Between heartbeats, each of which is a batch of every stream view: if a view sends rows when they are final, so that
they come on quiet streams too, and if heartbeats only remove state that is no longer needed."""
PROGRESS_BEAT_S = 5.0
"""In sources of real-time views: as often as in idle partitions of `events`."""


@dataclass(frozen=True)
class Service:
    """The read side of one deployment."""

    settings: LogSettings
    stores: StoreSettings
    views: ViewRegistry

    @property
    def generations(self) -> Generations:
        """The registry of generations."""
        return Generations(self.stores.postgres, self.settings.environment)

    def _prepare(self) -> str:
        """Create and check the topics, with those of the captured tables; returns Kafka's cluster id."""
        return prepare(self.settings, [table_topic(each, self.settings) for each in self._tables])

    @property
    def _tables(self) -> list[type[Captured]]:
        """The captured tables that views read."""
        classes = dict.fromkeys(each for view in self.views.views.values() for each in view.classes)
        return [each for each in classes if issubclass(each, Captured)]

    def build_missing(self) -> list[View]:
        """Build the views without a live generation of their version, or with an older current one; returns them.

        Raises ViewDeclarationError if a declaration changed without a new version.
        """
        self.generations.prepare()
        drop_leftovers(self.generations, self.stores)
        remove_left(self.settings)
        missing, unpublished, current = [], [], self.generations.live()
        for view in self.views.views.values():
            own, now = self.generations.check(view), current.get(view.name)
            if own is None or own.version != view.version or now is None or now.version < own.version:
                missing.append(view)
            elif _has_lost_state(view, own, self.settings):
                log.warning("the state of %s g%d is not on this machine: computing it again", view.tag, own.generation)
                missing.append(view)
            elif now.version > own.version:
                log.warning(
                    "the plain names of %s lead to %s, but this code uses %s: `replay rollback %s` moves them back",
                    view.name, now.tag, own.tag, view.name,
                )  # fmt: skip
            elif not own.published:  # a rebuild was killed right after the swap
                unpublished.append(view)
        self._build(missing)
        for view in unpublished:
            try:
                publish_live(view, self.generations, self.stores)
                log.info("the plain names of %s lead to its live generation again", view.name)
            except NotPublished as error:  # the API reads it anyway
                log.error("%s", error)
        return missing

    def _build(self, views: Sequence[View]) -> None:
        if not views:
            return
        log.info("building %s", ", ".join(view.tag for view in views))
        with self._rebuilding() as rebuilder:
            outcomes = [outcome for _, outcome in rebuilder.rebuild_all(views)]
        failed = [each for each in outcomes if isinstance(each, Exception)]
        first = next((each for each in failed if not isinstance(each, NotPublished)), None)  # those are live
        for each in failed:
            if each is not first:
                log.error("%s", each)
        if first is not None:
            raise first

    @contextmanager
    def _rebuilding(self) -> Iterator[Rebuilder]:
        """A context with what rebuilds views; Spark starts if it is needed, once for all of them."""
        from projections.engines import SparkQueries, new_engine  # noqa: PLC0415
        from projections.spark.session import SparkSettings, lazy_session  # noqa: PLC0415

        spark = SparkSettings.from_environment(os.environ)
        with (
            closing(KafkaLog(self.settings)) as event_log,
            lazy_session(spark, name="build", threads=os.cpu_count() or 2) as session,
        ):
            engine = new_engine(self.settings, event_log, session)
            queries = SparkQueries(self.settings, session)
            yield Rebuilder(self.settings, self.stores, event_log, self.generations, engine, queries)

    @contextmanager
    def upkeep(self, parts: Parts | None = None) -> Iterator[Upkeep]:
        """Reports on the views, replays those that are too far behind for patches, and restarts stuck `parts`.

        A replay sends unreadable records to `dead-letters`, like the live query.
        """
        rates = Rates(self.settings.state.absolute() / "rates" / f"{self.settings.environment}.json")
        with closing(KafkaLog(self.settings)) as event_log:
            lags = Lags(self.settings, self.stores, self.views, self.generations, event_log)
            replaying = partial(self._replaying, parts or NoParts())
            yield Upkeep(lags, replaying, rates, parts or NoParts(), _expected_bulk)

    @contextmanager
    def _replaying(self, parts: Parts) -> Iterator[Replay]:
        def taken_over(view: View) -> bool:
            return any(parts.is_up(store.name) for store in view.stores)

        with self._rebuilding() as rebuilder:
            yield partial(replace(rebuilder, taken_over=taken_over).rebuild_all, skip_poison=True)

    def run_live(self, held_by: Path | None = None) -> None:
        """Run the live query until it fails or the process is stopped.

        held_by: once Spark's session has started, wait until this file is gone. Only then the starting offsets are
        known.
        """
        from projections.spark.live import SPARE_THREADS, checkpoint_directory, run_live  # noqa: PLC0415
        from projections.spark.session import SparkSettings, start_session  # noqa: PLC0415

        cluster = self._prepare()
        views = self.views.of_kind(TableView)
        checkpoint = checkpoint_directory(self.settings, views, cluster)
        threads = len(sources(views, self.settings)) + SPARE_THREADS
        spark = SparkSettings.from_environment(os.environ)
        session = start_session(spark, name="live", threads=threads, lasting=True)
        while held_by is not None and held_by.exists():
            time.sleep(HELD_LOOK_S)
        starting_offsets = self.starting_offsets(checkpoint)
        ready = ready_file(self.settings, LIVE)
        with beating(self.settings, [table.topic() for table in self._tables]):
            run_live(
                session,
                views,
                self.settings,
                checkpoint=checkpoint,
                starting_offsets=starting_offsets,
                on_running=ready.touch,
            )

    def run_streams(self, stop: threading.Event) -> None:
        """Run the queries of the stream views until `stop` is set. Spark starts when their sources have a record."""
        from projections.spark.session import SparkSettings, has_died, start_session  # noqa: PLC0415
        from projections.spark.streams.process import Streams, run_streams, starter, trigger_s  # noqa: PLC0415

        self._prepare()
        views = self.views.of_kind(StreamView)
        sweep(self.settings, self._registered_tags)
        ready = ready_file(self.settings, STREAMS)
        ready.touch()
        if not self._have_records(views, stop):
            return
        ready.unlink(missing_ok=True)
        self._note_start(views)
        spark = SparkSettings.from_environment(os.environ)
        cores, realtime = os.cpu_count() or 2, [view for view in views if view.realtime]
        readers = sum(len(sources([view], self.settings)) for view in realtime)
        session = start_session(spark, name="streams", threads=cores + readers, lasting=bool(realtime))
        with self.generations.followed() as live, self._beating(views):
            batches = trigger_s(len(views) - len(realtime), cores)
            start = starter(session, self.settings, batches, lambda target: self.applied([target.view]))
            streams = Streams(self.settings, lambda: _served(views, live()), start, time.monotonic)
            run_streams(streams, stop, has_died, ready.touch)

    @contextmanager
    def _beating(self, views: Sequence[StreamView]) -> Iterator[None]:
        """Heartbeats in the sources of these views that get none from others. Those of real-time views go to every
        partition, because they say how far each is read; one partition is enough for a watermark."""
        followed = {topic for view in views if view.realtime for topic in view.beaten}
        waiting = {topic for view in views for topic in view.beaten} - followed
        beat_s = FINAL_BEAT_S if any(view.final for view in views) else STATE_BEAT_S
        with (
            beating(self.settings, sorted(followed), PROGRESS_BEAT_S),
            beating(self.settings, sorted(waiting), beat_s, partitions=1),
        ):
            yield

    def _note_start(self, views: Sequence[StreamView]) -> None:
        try:
            for target in self.targets(views):
                note_start(self.settings, target.tag)
        except StoreUnavailable as error:
            log.warning("`replay status` cannot say that queries are starting: %s", error)

    def _have_records(self, views: Sequence[StreamView], stop: threading.Event) -> bool:
        """Wait until a source of `views` has a record; False if `stop` was set before."""
        with closing(KafkaLog(self.settings)) as event_log:
            while not stop.is_set():
                try:
                    found = ends(event_log, sources(views, self.settings))
                    if holds_events(event_log, {each: (0, end) for each, end in found.items()}):
                        return True
                except LogUnavailable as error:
                    log.warning("cannot look for records of stream views: %s", error)
                stop.wait(RECORDS_LOOK_S)
        return False

    def _registered_tags(self) -> list[str]:
        found = self.generations.all()
        return [*(generation_tag(each.tag, each.generation) for each in found), *(each.tag for each in found)]

    def starting_offsets(self, checkpoint: Path) -> dict[str, int] | None:
        """Where the live query begins: at the offset that all views have applied. While a store is unavailable, at its
        checkpoint, and without a checkpoint where it began last (None: at the first event).

        The checkpoint is older: it is written when a batch ends, and does not include replays.
        """
        noted = checkpoint.with_suffix(".json")
        try:
            starting_offsets = self.applied()
        except StoreUnavailable as error:
            if not checkpoint.exists() and not noted.exists():
                raise
            log.warning("continuing from the checkpoint: %s", error)
            return _offsets(noted) if noted.exists() else None
        noted.parent.mkdir(parents=True, exist_ok=True)
        part = noted.with_suffix(".part")
        part.write_text(json.dumps(starting_offsets))
        part.replace(noted)
        shutil.rmtree(checkpoint, ignore_errors=True)
        return starting_offsets

    def applied(self, views: Sequence[View] | None = None) -> dict[str, int]:
        """By source, the offset below which every live generation of these views has applied everything; None: of all
        table views.

        Earlier events are not needed again, and the ledgers skip repeated patches. A generation without a ledger can
        only be replayed, so it does not count. A generation that is being built needs the patches after its bulk,
        unless its builder is dead, or it is a view made with --as, or of a real-time view: their queries begin at the
        live generation, and what that has was in `patches` before.
        """
        views = self.views.of_kind(TableView) if views is None else views
        tags = {view.tag for view in views}
        positions: list[Mapping[str, int]] = [
            each.bulk_ends for each in self.generations.being_built() if each.source is None and each.tag in tags
        ]
        for target in self.targets(views):
            for declared in target.view.stores:
                with closing(open_store(declared.name, self.stores)) as store:
                    ledgers = store.ledgers(target)
                if ledgers:
                    positions.append(position(ledgers, sources([target.view], self.settings)))
        return {
            source: min((each[source] for each in positions if source in each), default=0)
            for source in sources(views, self.settings)
        }

    def run_loader(self, store: str, stop: threading.Event) -> None:
        """Load into one store until `stop` is set."""
        views = self.views.in_store(store)
        with closing(open_store(store, self.stores)) as opened, self.generations.followed() as live:
            Loader(opened, lambda: _served(views, live()), self.settings, code=_code(views)).run(stop)

    def targets(self, views: Sequence[View]) -> list[Target]:
        """The live generations of `views` with the declared version."""
        return _served(views, self.generations.serving(views).values())

    def supervise(self, stop: threading.Event) -> None:
        """Create topics and tables, build missing views, and supervise the parts until `stop` is set."""
        everything, replaying = ready_file(self.settings, EVERYTHING), ready_file(self.settings, REPLAYING)
        everything.unlink(missing_ok=True)
        self._prepare()
        self.build_missing()
        loaders = {name: self._loader_parts(name) for name in STORES if self.views.in_store(name)}
        live = self._live_part(replaying)
        queries = {LIVE: [live]} | ({STREAMS: [self._stream_part()]} if self.views.of_kind(StreamView) else {})
        supervisor = Supervisor([*chain(*queries.values()), *chain(*loaders.values())], RETRY_FOREVER)
        parts = SupervisedParts(
            {part: [each.name for each in specs] for part, specs in (queries | loaders).items()}, supervisor
        )

        def keep(upkeep: Upkeep) -> None:
            # Spark's session starts beside the replay; the query need not make patches of replayed events
            supervisor.begin(*(each.name for each in chain(*queries.values())))
            upkeep.try_to_look()
            replaying.unlink(missing_ok=True)
            if stop.is_set():
                return
            supervisor.begin(*(each.name for each in chain(*loaders.values())))
            upkeep.run(stop)

        replaying.touch()
        with self.upkeep(parts) as upkeep:
            keeper = threading.Thread(target=keep, args=[upkeep], name="upkeep", daemon=True)
            keeper.start()
            try:
                while not supervisor.is_healthy and not stop.wait(HEALTH_LOOK_S):
                    pass
                if not stop.is_set():
                    everything.touch()
                    log.info("projections are up: %s", ", ".join(each.name for each in supervisor.status()))
                stop.wait()
            finally:
                everything.unlink(missing_ok=True)
                supervisor.stop()

    def _loader_parts(self, store: str) -> list[ProcessSpec]:
        return [
            self._part(f"load-{store}" + (f"-{number}" if number else ""), ("load", store))
            for number in range(self.stores.loaders)
        ]

    def _live_part(self, held_by: Path) -> ProcessSpec:
        """The live query: healthy once it receives events, for which Spark needs some seconds."""
        ready = ready_file(self.settings, LIVE)
        return replace(
            self._part(LIVE, (LIVE,)),
            env={LIVE_HELD_BY: str(held_by)},
            prepare=lambda: ready.unlink(missing_ok=True),
            probe=lambda: None if ready.exists() else "Spark is starting",
            held=held_by.exists,
            start_timeout_s=LIVE_START_S,
        )

    def _stream_part(self) -> ProcessSpec:
        """The queries of stream views: healthy once it waits for records."""
        ready = ready_file(self.settings, STREAMS)
        return replace(
            self._part(STREAMS, (STREAMS,)),
            prepare=lambda: ready.unlink(missing_ok=True),
            probe=lambda: None if ready.exists() else "Spark is starting",
            start_timeout_s=LIVE_START_S,
        )

    def _part(self, name: str, words: tuple[str, ...]) -> ProcessSpec:
        return ProcessSpec(
            name=name,
            argv=(sys.executable, "-m", "projections", *words),
            log=self.settings.state.absolute() / "logs" / f"projections-{name}.log",
            probe=lambda: None,
        )


def _has_lost_state(view: View, own: Generation, settings: LogSettings) -> bool:
    """Whether its query cannot continue here."""
    return has_state(view) and not Checkpoint.of(settings, view.patch_tag(own.generation)).exists


def _served(views: Sequence[View], live: Iterable[Generation]) -> list[Target]:
    """The generations that this code loads: code of another version loads its own."""
    found = {(each.view, each.tag): each.generation for each in live}
    return [Target(view, found[view.name, view.tag]) for view in views if (view.name, view.tag) in found]


def _code(views: Sequence[View]) -> str:
    """Identifies a set of declarations, the same in every process with these declarations."""
    return hashlib.sha256("\n".join(sorted(view.tag for view in views)).encode()).hexdigest()[:8]


def _expected_bulk(view: View, offsets: int) -> Bulk:
    """How fast a replay of so many offsets is expected to be, with the engine that would run it."""
    from projections.engines import why_spark  # noqa: PLC0415 - few deployments ever replay

    return LOCAL if why_spark(view, offsets, ALL) is None else SPARK


def _offsets(file: Path) -> dict[str, int]:
    return dict(json.loads(file.read_text()))


def ready_file(settings: LogSettings, part: str) -> Path:
    """The file that exists while `part` of this deployment is ready, or at work (REPLAYING)."""
    folder = settings.state.absolute() / "ready"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{settings.environment}.{part}"
