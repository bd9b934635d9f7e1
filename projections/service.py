"""`python -m projections`: builds what is missing, then keeps the live query and a loader for each store alive."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from eventlog.admin import prepare
from eventlog.kafka import KafkaLog
from eventlog.settings import LogSettings
from projections.generations import Generations
from projections.loader import Loader
from projections.rebuild import Rebuilder
from projections.registry import ViewRegistry
from projections.settings import StoreSettings
from projections.stores.open import STORES, open_store
from projections.stores.store import Target
from projections.supervision.process import Backoff, ProcessSpec
from projections.supervision.supervisor import Supervisor
from projections.view import TableView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
        missing = []
        for view in self.views.views.values():
            live = self.generations.check(view)
            if live is None or live.version != view.version:
                missing.append(view)
        if missing:
            log.info("building %s", ", ".join(view.tag for view in missing))
            event_log = KafkaLog(self.settings)
            try:
                rebuilder = Rebuilder(self.settings, self.stores, event_log, self.generations, _session)
                for view in missing:
                    rebuilder.rebuild(view)
            finally:
                event_log.close()
        return missing

    def run_live(self) -> None:
        """Run the live query until it dies or the process is told to stop."""
        from projections.spark.live import SPARE_THREADS, checkpoint_directory, run_live  # noqa: PLC0415
        from projections.spark.session import SparkSettings, start_session  # noqa: PLC0415

        cluster = prepare(self.settings)
        views = list(self.views.views.values())
        checkpoint = checkpoint_directory(self.settings, views, cluster)
        starting = None if checkpoint.exists() else self.applied()
        threads = self.settings.partitions + SPARE_THREADS
        session = start_session(SparkSettings.from_environment(os.environ), name="live", threads=threads)
        ready = ready_file(self.settings, LIVE)
        run_live(session, views, self.settings, checkpoint=checkpoint, starting=starting, on_running=ready.touch)

    def applied(self) -> dict[int, int]:
        """By source partition, the offset below which every live generation has applied everything.

        Where the live query starts without a checkpoint: what comes before is not needed again, and what is emitted
        twice is skipped by the ledgers.
        """
        lowest: dict[int, int] = {}
        for target in self.targets(tuple(self.views.views.values())):
            for declared in target.view.stores:
                store = open_store(declared.name, self.stores)
                try:
                    ledgers = store.ledgers(target)
                finally:
                    store.close()
                for source in range(self.settings.partitions):
                    reached = min(
                        (each.applied[source].offset if source in each.applied else 0 for each in ledgers.values()),
                        default=0,
                    )
                    lowest[source] = min(reached, lowest.get(source, reached))
        return lowest

    def run_loader(self, store: str, stop: threading.Event) -> None:
        """Load into one store until `stop` is set."""
        views = self.views.in_store(store)
        opened = open_store(store, self.stores)
        try:
            Loader(opened, lambda: self.targets(views), self.settings).run(stop)
        finally:
            opened.close()

    def targets(self, views: Sequence[TableView]) -> list[Target]:
        """The live generations of `views` that are of the declared version."""
        live = self.generations.live()
        return [
            Target(view, live[view.name].generation)
            for view in views
            if view.name in live and live[view.name].tag == view.tag
        ]

    def supervise(self, stop: threading.Event) -> None:
        """Create topics and tables, build what is missing, and keep the parts alive until `stop` is set."""
        everything = ready_file(self.settings, EVERYTHING)
        everything.unlink(missing_ok=True)
        prepare(self.settings)
        self.build_missing()
        loaders = [self._part(f"load-{name}", ("load", name)) for name in STORES if self.views.in_store(name)]
        supervisor = Supervisor([self._live_part(), *loaders], PATIENCE)
        supervisor.start()
        try:
            everything.touch()
            log.info("projections are up: %s", ", ".join(each.name for each in supervisor.status()))
            stop.wait()
        finally:
            everything.unlink(missing_ok=True)
            supervisor.stop()

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


def ready_file(settings: LogSettings, part: str) -> Path:
    """The file that is there while `part` (LIVE or EVERYTHING) of this deployment is ready."""
    folder = settings.state.absolute() / "ready"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{settings.environment}.{part}"


def _session() -> SparkSession:
    from projections.spark.session import SparkSettings, start_session  # noqa: PLC0415 - only a full log needs Spark

    return start_session(SparkSettings.from_environment(os.environ), name="build", threads=os.cpu_count() or 2)
