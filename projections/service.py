"""`python -m projections`: builds what is missing, then keeps the live query and a loader for each store alive."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from eventlog.admin import prepare
from eventlog.kafka import KafkaLog
from eventlog.settings import LogSettings
from projections.errors import StoreUnavailable
from projections.generations import Generation, Generations
from projections.lag import Lags, position
from projections.loader import Loader
from projections.rebuild import Rebuilder, publish_live
from projections.registry import ViewRegistry
from projections.settings import StoreSettings
from projections.stores.open import STORES, open_store
from projections.stores.store import Target
from projections.supervision.process import Backoff, ProcessSpec
from projections.supervision.supervisor import Supervisor
from projections.upkeep import Upkeep
from projections.view import TableView

log = logging.getLogger(__name__)

# these wait for servers that may be away for hours: they are never given up
PATIENCE = Backoff(first_s=0.5, longest_s=10.0, limit=1_000_000)
LIVE_START_S = 300.0
LIVE, EVERYTHING = "live", "projections"


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

    def build_missing(self) -> list[TableView]:
        """Build every view that has no live generation of its declared version; returns those built.

        Raises ViewDeclarationError where a declaration changed without a new version.
        """
        self.generations.prepare()
        missing, unpublished = [], []
        for view in self.views.views.values():
            live = self.generations.check(view)
            if live is None or live.version != view.version:
                missing.append(view)
            elif not live.published:  # a rebuild was killed right after the swap
                unpublished.append(view)
        self._build(missing)
        for view in unpublished:
            log.info("the plain names of %s lead to its live generation again", view.name)
            publish_live(view, self.generations, self.stores)
        return missing

    def _build(self, views: Sequence[TableView]) -> None:
        if not views:
            return
        log.info("building %s", ", ".join(view.tag for view in views))
        with self._rebuilding() as rebuild:
            for view in views:
                rebuild(view)

    @contextmanager
    def _rebuilding(self, *, skip_poison: bool = False) -> Iterator[Callable[[TableView], object]]:
        """What rebuilds a view, with one Spark session for all of them, which starts when it is needed."""
        from projections.spark.session import SparkSettings, lazy_session  # noqa: PLC0415

        spark = SparkSettings.from_environment(os.environ)
        with (
            closing(KafkaLog(self.settings)) as event_log,
            lazy_session(spark, name="build", threads=os.cpu_count() or 2) as session,
        ):
            rebuilder = Rebuilder(self.settings, self.stores, event_log, self.generations, session)
            yield partial(rebuilder.rebuild, skip_poison=skip_poison)

    @contextmanager
    def upkeep(self) -> Iterator[Upkeep]:
        """Reports on the views, and replays those that lag too far for patches.

        What cannot be read goes to `dead-letters` then, as the live query does with it.
        """
        with closing(KafkaLog(self.settings)) as event_log:
            lags = Lags(self.settings, self.stores, self.views, self.generations, event_log)
            yield Upkeep(lags, partial(self._rebuilding, skip_poison=True))

    def run_live(self) -> None:
        """Run the live query until it dies or the process is told to stop."""
        from projections.spark.live import SPARE_THREADS, checkpoint_directory, run_live  # noqa: PLC0415
        from projections.spark.session import SparkSettings, start_session  # noqa: PLC0415

        cluster = prepare(self.settings)
        views = list(self.views.views.values())
        checkpoint = checkpoint_directory(self.settings, views, cluster)
        starting = self.starting(checkpoint)
        threads = self.settings.partitions + SPARE_THREADS
        spark = SparkSettings.from_environment(os.environ)
        session = start_session(spark, name="live", threads=threads, lasting=True)
        ready = ready_file(self.settings, LIVE)
        run_live(session, views, self.settings, checkpoint=checkpoint, starting=starting, on_running=ready.touch)

    def starting(self, checkpoint: Path) -> dict[int, int] | None:
        """Where the live query begins: at what all views have. While a store is away, at its checkpoint, and where it
        began last (None: at the first event) should it have died before it wrote one.

        The checkpoint is older: it is written when a batch ends, and knows nothing of a replay.
        """
        noted = checkpoint.with_suffix(".json")
        try:
            starting = self.applied()
        except StoreUnavailable as error:
            if not checkpoint.exists() and not noted.exists():
                raise
            log.warning("going on from the checkpoint: %s", error)
            return _offsets(noted) if noted.exists() else None
        noted.parent.mkdir(parents=True, exist_ok=True)
        part = noted.with_suffix(".part")
        part.write_text(json.dumps(starting))
        part.replace(noted)
        shutil.rmtree(checkpoint, ignore_errors=True)
        return starting

    def applied(self) -> dict[int, int]:
        """By source partition, the offset below which every live generation has applied everything.

        What comes before is not needed again, and what is emitted twice is skipped by the ledgers. A generation
        without a ledger cannot be loaded, only replayed, so it does not count. One that is being built waits for the
        patches of what came after its bulk.
        """
        positions = [
            {int(source): offset for source, offset in each.base.items()}
            for each in self.generations.all()
            if each.state == "building"
        ]
        for target in self.targets(tuple(self.views.views.values())):
            for declared in target.view.stores:
                with closing(open_store(declared.name, self.stores)) as store:
                    ledgers = store.ledgers(target)
                if ledgers:
                    positions.append(position(ledgers, range(self.settings.partitions)))
        return {
            source: min((each.get(source, 0) for each in positions), default=0)
            for source in range(self.settings.partitions)
        }

    def run_loader(self, store: str, stop: threading.Event) -> None:
        """Load into one store until `stop` is set."""
        views = self.views.in_store(store)
        with closing(open_store(store, self.stores)) as opened, self.generations.followed() as live:
            Loader(opened, lambda: _served(views, live()), self.settings).run(stop)

    def targets(self, views: Sequence[TableView]) -> list[Target]:
        """The live generations of `views` that are of the declared version."""
        return _served(views, self.generations.live())

    def supervise(self, stop: threading.Event) -> None:
        """Create topics and tables, build what is missing, and keep the parts alive until `stop` is set."""
        everything = ready_file(self.settings, EVERYTHING)
        everything.unlink(missing_ok=True)
        prepare(self.settings)
        self.build_missing()
        parts = [self._live_part(), *self._loader_parts()]
        with self.upkeep() as upkeep:
            # before the live query starts: what is replayed now it need not turn into patches first
            upkeep.look()
            supervisor = Supervisor(parts, PATIENCE)
            supervisor.start()
            keeper = threading.Thread(target=upkeep.run, args=[stop], name="upkeep", daemon=True)
            keeper.start()
            try:
                everything.touch()
                log.info("projections are up: %s", ", ".join(each.name for each in supervisor.status()))
                stop.wait()
            finally:
                everything.unlink(missing_ok=True)
                supervisor.stop()

    def _loader_parts(self) -> list[ProcessSpec]:
        return [
            self._part(f"load-{name}" + (f"-{number}" if number else ""), ("load", name))
            for name in STORES
            if self.views.in_store(name)
            for number in range(self.stores.loaders)
        ]

    def _live_part(self) -> ProcessSpec:
        """The live query: healthy once it takes in events, which Spark needs some seconds for."""
        ready = ready_file(self.settings, LIVE)
        return replace(
            self._part(LIVE, (LIVE,)),
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


def _served(views: Sequence[TableView], live: Mapping[str, Generation]) -> list[Target]:
    return [
        Target(view, live[view.name].generation)
        for view in views
        if view.name in live and live[view.name].tag == view.tag
    ]


def _offsets(file: Path) -> dict[int, int]:
    return {int(partition): offset for partition, offset in json.loads(file.read_text()).items()}


def ready_file(settings: LogSettings, part: str) -> Path:
    """The file that is there while `part` (LIVE or EVERYTHING) of this deployment is ready."""
    folder = settings.state.absolute() / "ready"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{settings.environment}.{part}"
