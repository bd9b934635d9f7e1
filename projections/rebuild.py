"""A rebuild: a new generation beside the live one, from offset zero, swapped in when it has caught up."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eventlog.errors import EventLogError
from eventlog.ports import EventLog
from eventlog.settings import LogSettings
from eventlog.topics import EVENTS, PATCHES
from projections.building import Build, Rebuilt, Step, loading, opened
from projections.errors import GenerationMissing, NotPublished, ProjectionError, RebuildFailed, StoreUnavailable
from projections.generations import Generation, Generations
from projections.loader import REFRESH_S
from projections.settings import StoreSettings
from projections.stores.open import open_store
from projections.stores.store import Target
from projections.view import TableView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

LINGER_S = 4 * REFRESH_S


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

        Raises RebuildFailed with the phase: the live generation is then as it was, and what was begun is dropped (by
        the next rebuild, where a store is away). Raises NotPublished where it failed after the swap.
        """
        began = time.monotonic()
        with self.building(view, on_step) as build:
            build.load()
            with loading(build.target, self.settings, self.stores) as loaders:
                build.catch_up(loaders)
                with build.phase("swap"):
                    self._swap(build)
                build.result.seconds = time.monotonic() - began
                if build.target.generation > 1:
                    with build.phase("hand-over"):
                        # the loaders that serve everything see the swap within REFRESH_S; until then these go on
                        time.sleep(LINGER_S)
            self._leave_or(view, lambda: self._drop_old(view))
        return build.result

    @contextmanager
    def building(self, view: TableView, on_step: Callable[[Step], None]) -> Iterator[Build]:
        """A new generation of `view`, registered and still empty, under the right to rebuild the view.

        Where the work in it fails, what is not live is dropped.
        """
        with self.generations.rebuilding(view.name) as right, opened(view, self.stores) as stores:
            self._drop_remains(view)
            # `patches` first: whatever is appended to `events` after its end was noted is emitted after this place
            start = {each: self.log.end(PATCHES, each) for each in range(self.settings.patch_partitions)}
            base = {each: self.log.end(EVENTS, each) for each in range(self.settings.partitions)}
            target = Target(view, self.generations.begin(view, base, start).generation)
            result = Rebuilt(view.name, target.generation)
            build = Build(self.settings, self.log, self.session, right, target, stores, base, start, on_step, result)
            try:
                yield build
            except NotPublished:
                raise
            except (ProjectionError, EventLogError, OSError) as error:
                self._leave_or(view, lambda: self._drop_remains(view))
                raise RebuildFailed(view.name, build.doing, str(error)) from error
            except BaseException:
                self._leave_or(view, lambda: self._drop_remains(view))
                raise

    def _swap(self, build: Build) -> None:
        """Update the registry's row, which is the swap, then the plain names."""
        name, generation = build.target.view.name, build.target.generation
        build.right.check()
        self.generations.swap(name, generation)
        places = 1 + len(build.stores)
        build.on_step(Step(name, "swap", 1, places))
        for done, store in enumerate(build.stores, 2):
            try:
                store.publish(build.target)
            except StoreUnavailable as error:
                raise NotPublished(name, generation, str(error)) from error
            build.on_step(Step(name, "swap", done, places))
        self.generations.published(name, generation)

    def _leave_or(self, view: TableView, drop: Callable[[], None]) -> None:
        """Drop what is not needed any more; where a store is away, that is left for the next rebuild."""
        try:
            drop()
        except (ProjectionError, OSError) as error:
            log.warning('old generations of "%s" are left for the next rebuild to drop: %s', view.name, error)

    def _drop_remains(self, view: TableView) -> None:
        self.drop(view, [each for each in self.generations.of(view.name) if each.state == "building"])

    def _drop_old(self, view: TableView) -> None:
        """Keep the generation before the live one, for a rollback; drop what is older."""
        self.drop(view, [each for each in self.generations.of(view.name) if each.state == "retired"][:-1])

    def drop(self, view: TableView, generations: Sequence[Generation]) -> None:
        """Drop generations, none of them live, in every store that they were built in."""
        for name in sorted({name for generation in generations for name in generation.stores}):
            store = open_store(name, self.stores)
            try:
                for generation in generations:
                    store.drop(Target(view, generation.generation))
            finally:
                store.close()
        for generation in generations:
            self.generations.forget(view.name, generation.generation)


def publish_live(view: TableView, generations: Generations, settings: StoreSettings) -> Generation:
    """Point every plain name of `view` at its live generation; raises GenerationMissing, StoreUnavailable."""
    live = generations.live().get(view.name)
    if live is None:
        raise GenerationMissing(view.name)
    with opened(view, settings) as stores:
        for store in stores:
            store.publish(Target(view, live.generation))
    generations.published(view.name, live.generation)
    return live
