"""A rebuild: a new generation beside the live one, from offset zero, swapped in when it has caught up."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eventlog.errors import EventLogError
from eventlog.ports import EventLog
from eventlog.settings import LogSettings
from eventlog.topics import EVENTS, PATCHES
from projections.errors import ProjectionError, RebuildFailed
from projections.generations import Generation, Generations
from projections.loader import REFRESH_S, Loader
from projections.settings import StoreSettings
from projections.stores.open import open_store
from projections.stores.store import Target, ViewStore
from projections.view import TableView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

CAUGHT_UP_PATCHES = 200
LINGER_S = 4 * REFRESH_S
LOOK_S = 0.02
FEW_RECORDS = 10_000


@dataclass(frozen=True)
class Step:
    """How far a rebuild is.

    phase: bulk, index, catch-up or swap. done, total: events (bulk) or patches (catch-up).
    """

    view: str
    phase: str
    done: int = 0
    total: int = 0


@dataclass
class Rebuilt:
    """What a rebuild did. events: read by bulk; rows: written by bulk; seconds: to the swap, and by phase."""

    view: str
    generation: int
    events: int = 0
    rows: int = 0
    seconds: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Rebuilder:
    """Rebuilds views of one deployment. session: gives the Spark session, started when there is something to fold."""

    settings: LogSettings
    stores: StoreSettings
    log: EventLog
    generations: Generations
    session: Callable[[], SparkSession]

    def rebuild(self, view: TableView, on_step: Callable[[Step], None] = lambda _: None) -> Rebuilt:
        """Build the next generation of `view` and make it live.

        Raises RebuildFailed with the phase; the live generation is then as it was, and what was begun is dropped.
        """
        with self.generations.rebuilding(view.name):
            self._drop_remains(view)
            began, phase = time.monotonic(), "start"
            # `patches` first: whatever is appended to `events` after its end was noted is emitted after this place
            start = {each: self.log.end(PATCHES, each) for each in range(self.settings.patch_partitions)}
            base = {each: self.log.end(EVENTS, each) for each in range(self.settings.partitions)}
            generation = self.generations.begin(view, base, start)
            target = Target(view, generation.generation)
            result = Rebuilt(view.name, target.generation)
            try:
                with self._open(view) as stores:
                    for phase, work in self._phases(target, stores, base, start, result, on_step):
                        at = time.monotonic()
                        work()
                        result.phases[phase] = time.monotonic() - at
                        log.info("%s g%d: %s took %.2f s", view.name, target.generation, phase, result.phases[phase])
                        if phase == "swap":
                            result.seconds = time.monotonic() - began
            except (ProjectionError, EventLogError, OSError) as error:
                self._drop_remains(view)
                raise RebuildFailed(view.name, phase, str(error)) from error
            self._drop_old(view)
        return result

    def _phases(
        self,
        target: Target,
        stores: Sequence[ViewStore],
        base: Mapping[int, int],
        start: Mapping[int, int],
        result: Rebuilt,
        on_step: Callable[[Step], None],
    ) -> Iterator[tuple[str, Callable[[], None]]]:
        name = target.view.name

        def create() -> None:
            for store in stores:
                store.create(target, base, start)

        def bulk() -> None:
            if self._holds_events(base):
                self._bulk(target, stores, base, result, on_step)

        def index() -> None:
            on_step(Step(name, "index"))
            for store in stores:
                store.finish(target)

        def swap() -> None:
            on_step(Step(name, "swap"))
            self.generations.swap(name, target.generation)
            for store in stores:
                store.publish(target)

        yield "create", create
        yield "bulk", bulk
        yield "index", index
        with self._catching_up(target) as loaders:
            yield "catch-up", lambda: self._catch_up(name, loaders, on_step)
            yield "swap", swap
            if target.generation > 1:
                # the loaders that serve everything see the swap within REFRESH_S; until then these go on
                yield "hand-over", lambda: time.sleep(LINGER_S)

    def _bulk(
        self,
        target: Target,
        stores: Sequence[ViewStore],
        base: Mapping[int, int],
        result: Rebuilt,
        on_step: Callable[[Step], None],
    ) -> None:
        from projections.spark.bulk import bulk_load  # noqa: PLC0415 - Spark is loaded where it is used

        ranges = {partition: (0, end) for partition, end in base.items() if end > 0}
        for store in stores:
            loaded = bulk_load(
                self.session(),
                target.view,
                self.settings,
                ranges,
                store.bulk_writer(target),
                lambda done, total: on_step(Step(target.view.name, "bulk", done, total)),
            )
            result.events, result.rows = loaded.events, loaded.rows

    @contextmanager
    def _catching_up(self, target: Target) -> Iterator[list[Loader]]:
        """Loaders of the new generation only, one a store, each in a thread with a store of its own."""
        stop, partitions = threading.Event(), range(self.settings.patch_partitions)
        with self._open(target.view) as stores:
            loaders = [Loader(store, lambda: [target], self.settings, partitions) for store in stores]
            threads = [threading.Thread(target=loader.run, args=[stop], daemon=True) for loader in loaders]
            for thread in threads:
                thread.start()
            try:
                yield loaders
            finally:
                stop.set()
                for thread in threads:
                    thread.join()

    def _catch_up(self, view: str, loaders: Sequence[Loader], on_step: Callable[[Step], None]) -> None:
        partitions = range(self.settings.patch_partitions)
        total = 0
        while True:
            ends = {each: self.log.end(PATCHES, each) for each in partitions}
            behind = max(
                sum(max(0, end - loader.stats.positions.get(each, 0)) for each, end in ends.items())
                for loader in loaders
            )
            total = max(total, behind)
            on_step(Step(view, "catch-up", total - behind, total))
            if behind <= CAUGHT_UP_PATCHES:
                return
            if any(loader.failed for loader in loaders):
                raise RebuildFailed(view, "catch-up", "a loader stopped; see the log")
            time.sleep(LOOK_S)

    @contextmanager
    def _open(self, view: TableView) -> Iterator[list[ViewStore]]:
        stores = [open_store(each.name, self.stores) for each in view.stores]
        try:
            yield stores
        finally:
            for store in stores:
                store.close()

    def _holds_events(self, base: Mapping[int, int]) -> bool:
        """Whether the log holds more than heartbeats; a look is quicker than Spark where there is little to look at."""
        if sum(base.values()) > FEW_RECORDS:
            return True
        return any(
            not record.key.startswith("heartbeat/")
            for partition, end in base.items()
            for record in self.log.read(EVENTS, partition, 0, end)
        )

    def _drop_remains(self, view: TableView) -> None:
        self._drop(view, [each for each in self._of(view) if each.state == "building"])

    def _drop_old(self, view: TableView) -> None:
        """Keep the generation before the live one, for a rollback; drop what is older."""
        self._drop(view, [each for each in self._of(view) if each.state == "retired"][:-1])

    def _of(self, view: TableView) -> list[Generation]:
        return [each for each in self.generations.all() if each.view == view.name]

    def _drop(self, view: TableView, generations: Sequence[Generation]) -> None:
        with self._open(view) as stores:
            for generation in generations:
                for store in stores:
                    store.drop(Target(view, generation.generation))
                self.generations.forget(view.name, generation.generation)
