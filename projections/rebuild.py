"""A rebuild: a new generation beside the live one, from offset zero, swapped in when it has caught up."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eventlog.errors import EventLogError
from eventlog.ports import EventLog
from eventlog.settings import LogSettings
from eventlog.topics import EVENTS, PATCHES
from projections.building import DEFAULT, Build, Options, Rebuilt, Step, loading, opened
from projections.errors import GenerationMissing, NotPublished, ProjectionError, RebuildFailed, StoreUnavailable
from projections.generations import Generation, Generations, Right
from projections.loader import REFRESH_S
from projections.settings import StoreSettings
from projections.stores.open import open_store
from projections.stores.store import Target, ViewStore
from projections.top_up import top_up
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

    def rebuild(
        self, view: TableView, on_step: Callable[[Step], None] = lambda _: None, *, skip_poison: bool = False
    ) -> Rebuilt:
        """Build the next generation of `view` and make it live.

        Raises RebuildFailed with the phase: the live generation is then as it was, and what was begun is dropped (by
        the next rebuild, where a store is away). Raises NotPublished where it failed after the swap.
        """
        began = time.monotonic()
        with self.building(view, on_step, Options(skip_poison=skip_poison)) as build:
            build.load()
            live = self.generations.live().get(view.name)
            if live is not None and live.tag != view.tag:
                self._go_live_alone(build)
            else:
                self._go_live(build, hand_over=live is not None)
            build.result.seconds = time.monotonic() - began - build.result.phases.get("hand-over", 0.0)
            self._leave_or(view, lambda: self._drop_old(view))
        return build.result

    def _go_live(self, build: Build, hand_over: bool) -> None:
        """Catch up with the live query through `patches`, swap, and load until the running loaders take over."""
        with loading(build.target, self.settings, self.stores) as loaders:
            build.catch_up(loaders)
            with build.phase("swap"):
                self._swap(build)
            if hand_over:
                with build.phase("hand-over"):
                    # the loaders that serve everything see the swap within REFRESH_S; until then these go on
                    time.sleep(LINGER_S)

    def _go_live_alone(self, build: Build) -> None:
        """Catch up from the log and swap: no live query makes patches of this version yet.

        The generation before serves and is kept up to date until the swap, by the code of its version.
        """
        with build.phase("top-up"):
            for _ in range(2):  # what came during bulk, then what came during that
                top_up(build.target, build.stores, self.settings, self.log, self.session)
        with build.phase("swap"):
            self._swap(build)

    def build_part(
        self,
        view: TableView,
        name: str,
        options: Options,
        on_step: Callable[[Step], None] = lambda _: None,
    ) -> Rebuilt:
        """Build a view of its own, `name`, from some of the events of `view`; it stays as it is then."""
        began = time.monotonic()
        with self.building(replace(view, name=name), on_step, options, source=view.name) as build:
            build.load()
            with build.phase("swap"):
                self._swap(build)
            build.result.seconds = time.monotonic() - began
            self._leave_or(build.target.view, lambda: self._drop_old(build.target.view))
        return build.result

    def roll_back(self, view: TableView, on_step: Callable[[Step], None] = lambda _: None) -> Rebuilt:
        """Make the generation before the live one live again, once it has caught up.

        Raises RebuildFailed where there is none, or the code that runs declares another version.
        """
        began = time.monotonic()
        with self.generations.rebuilding(view.name) as right, opened(view, self.stores) as stores:
            before = self._before(view)
            target, build_of = Target(view, before.generation), Rebuilt(view.name, before.generation)
            build = self._build(target, stores, right, {}, {}, on_step, build_of, Options())
            try:
                with build.phase("top-up"):
                    build_of.events = top_up(target, stores, self.settings, self.log, self.session)
                self._go_live(build, hand_over=True)
                build_of.seconds = time.monotonic() - began
            except NotPublished:
                raise
            except (ProjectionError, EventLogError, OSError) as error:
                raise RebuildFailed(view.name, build.doing, str(error)) from error
        return build_of

    def _before(self, view: TableView) -> Generation:
        """The generation to roll back to."""
        retired = [each for each in self.generations.of(view.name) if each.state == "retired"]
        if not retired:
            raise RebuildFailed(view.name, "start", "there is no generation before the live one")
        last = max(retired, key=lambda each: each.live_at or each.created_at)
        if last.fingerprint != view.fingerprint:
            raise RebuildFailed(
                view.name,
                "start",
                f"generation {last.generation} is {last.tag}, and the code declares {view.tag}, or declares it "
                "otherwise: run the code of that version",
            )
        return last

    @contextmanager
    def building(
        self,
        view: TableView,
        on_step: Callable[[Step], None],
        options: Options = DEFAULT,
        source: str | None = None,
    ) -> Iterator[Build]:
        """A new generation of `view`, registered and still empty, under the right to rebuild the view.

        Afterwards it is dropped, unless it was made live. source: of a view of some events, the view made from.
        """
        with self.generations.rebuilding(view.name) as right, opened(view, self.stores) as stores:
            self._drop_remains(view)
            # `patches` first: whatever is appended to `events` after its end was noted is emitted after this place
            start = {each: self.log.end(PATCHES, each) for each in range(self.settings.patch_partitions)}
            base = {each: self.log.end(EVENTS, each) for each in range(self.settings.partitions)}
            selection = None if options.selection.is_all else str(options.selection)
            covered = {each: end for each, (_, end) in options.selection.ranges(base).items()}
            target = Target(view, self.generations.begin(view, covered, start, source, selection).generation)
            result = Rebuilt(view.name, target.generation)
            build = self._build(target, stores, right, base, start, on_step, result, options)
            try:
                yield build
            except NotPublished:
                raise
            except (ProjectionError, EventLogError, OSError) as error:
                raise RebuildFailed(view.name, build.doing, str(error)) from error
            finally:
                self._leave_or(view, lambda: self._drop_remains(view))

    def _build(
        self,
        target: Target,
        stores: Sequence[ViewStore],
        right: Right,
        base: Mapping[int, int],
        start: Mapping[int, int],
        on_step: Callable[[Step], None],
        result: Rebuilt,
        options: Options,
    ) -> Build:
        def measured(events: int, seconds: float) -> None:
            self.generations.measured(target.view.name, target.generation, events, seconds)

        mine = self.settings
        return Build(
            mine, self.log, self.session, right, target, stores, base, start, on_step, measured, result, options
        )

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
        retired = [each for each in self.generations.of(view.name) if each.state == "retired"]
        self.drop(view, sorted(retired, key=lambda each: each.live_at or each.created_at)[:-1])

    def drop(self, view: TableView, generations: Sequence[Generation]) -> None:
        """Drop generations, none of them live, in every store that they were built in."""
        for name in sorted({name for generation in generations for name in generation.stores}):
            with closing(open_store(name, self.stores)) as store:
                for generation in generations:
                    store.drop(Target(view, generation.generation))
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
