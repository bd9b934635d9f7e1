"""A rebuild: builds a new generation from offset zero while the live one serves, and swaps them when it caught up."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from eventlog.errors import EventLogError
from eventlog.ports import EventLog
from eventlog.settings import LogSettings
from eventlog.topics import PATCHES
from projections.errors import NotPublished, ProjectionError, RebuildFailed
from projections.generations.building import DEFAULT, Build, Loaded, Options, Rebuilt, Step, loading
from projections.generations.dropping import Drop, drop_old, drop_unfinished
from projections.generations.engine import Engine, Failure, Load, StreamQueries, holds_events, offsets_in
from projections.generations.publishing import publish_everywhere
from projections.generations.registry import Generation, Generations, RebuildLock
from projections.generations.sources import ends, sources
from projections.generations.stream_report import read_report
from projections.generations.top_up import top_up
from projections.loading.loader import REFRESH_S
from projections.settings import StoreSettings
from projections.stores.open import opened
from projections.stores.store import Target, ViewStore
from projections.view import View, has_state

log = logging.getLogger(__name__)

HAND_OVER_S = 4 * REFRESH_S
MAX_TOGETHER = 16
"""Views that are rebuilt in one pass: each has loaders of its own until the running ones take over."""
Failed = ProjectionError | EventLogError


class Noted(NamedTuple):
    """Ends of the log: bulk loads events below `bulk_ends`, by source, and patches from `patch_starts` follow."""

    patch_starts: Mapping[int, int]
    bulk_ends: Mapping[str, int]


@dataclass
class _Run:
    """The rebuild of one of several views. build: the generation. loaded: the result of its bulk load."""

    view: View
    steps: Generator[Build, Loaded, Rebuilt]
    outcome: Rebuilt | Failed | None = None
    build: Build | None = None
    loaded: Loaded = None

    def ended(self) -> list[tuple[View, Rebuilt | Failed]]:
        """The view and the outcome; empty if it has not ended."""
        return [] if self.outcome is None else [(self.view, self.outcome)]

    def advance(self) -> None:
        """Do what can be done without waiting for the other views."""
        try:
            self.build = self.steps.send(self.loaded)
        except StopIteration as end:
            self.outcome = end.value
        except (ProjectionError, EventLogError) as error:
            self.outcome = error
        self.loaded = None


@dataclass(frozen=True)
class Rebuilder:
    """Rebuilds views of one deployment.

    engine: folds the log. queries: of views that are not folded. taken_over: whether loaders run that take over a view
    after the swap. If they do not run, they begin with its new generation, so nothing waits for them.
    """

    settings: LogSettings
    stores: StoreSettings
    log: EventLog
    generations: Generations
    engine: Engine
    queries: StreamQueries
    taken_over: Callable[[View], bool] = lambda _: True

    def rebuild(
        self, view: View, on_step: Callable[[Step], None] = lambda _: None, *, skip_poison: bool = False
    ) -> Rebuilt:
        """Build the next generation of `view` and make it live.

        Raises RebuildFailed with the phase: then the live generation has not changed, and the new one is dropped (by
        the next rebuild, if a store is unavailable). Raises NotPublished if it failed after the swap.
        """
        ((_, outcome),) = self.rebuild_all([view], on_step, skip_poison=skip_poison)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def rebuild_all(
        self,
        views: Sequence[View],
        on_step: Callable[[Step], None] = lambda _: None,
        *,
        skip_poison: bool = False,
    ) -> Iterator[tuple[View, Rebuilt | Failed]]:
        """Rebuild several views in one pass over the log; yields each with its result, or why it failed.

        See `rebuild`. A view that fails does not stop the others. Views with a query of their own come last.
        """
        folded = [view for view in views if not view.has_own_query]
        for first in range(0, len(folded), MAX_TOGETHER):
            yield from self._rebuild_together(folded[first : first + MAX_TOGETHER], on_step, skip_poison)
        for view in views:
            if view.is_realtime:
                yield view, self._rebuild_realtime(view, on_step)
            elif view.has_own_query:
                yield view, self._rebuild_stream(view, on_step)

    def _rebuild_stream(self, view: View, on_step: Callable[[Step], None]) -> Rebuilt | Failed:
        """Rebuild a view by its own query, which afterwards continues elsewhere from where it stopped here."""
        began = time.monotonic()
        try:
            with self.building(view, on_step) as build:
                with self.filled(build):
                    with build.phase("swap"):
                        self._swap(build)
                    build.result.seconds = time.monotonic() - began
                report = read_report(self.settings, build.target.tag)
                build.result.events, build.result.rows = report.records if report else 0, None
                self._drop_if_possible(drop_old, view)
            return build.result
        except (ProjectionError, EventLogError) as error:
            return error

    def _rebuild_realtime(self, view: View, on_step: Callable[[Step], None]) -> Rebuilt | Failed:
        """Rebuild a view by its query over the log; afterwards it takes the patches of the running query."""
        began = time.monotonic()
        try:
            with self.building(view, on_step) as build:
                self._compute(build)
                for _ in self._go_live(build, began):
                    time.sleep(HAND_OVER_S)
                self._drop_if_possible(drop_old, view)
            return build.result
        except (ProjectionError, EventLogError) as error:
            return error

    def _compute(self, build: Build) -> None:
        """Create a generation of a real-time view, and compute its rows up to the end of the log."""
        build.create(covered={})
        build.finish()  # first: patches need the keys of tables
        with build.phase("bulk"):
            began = time.monotonic()
            build.result.rows = top_up(build.target, build.stores, self.settings, self.log, self.engine)
            build.result.events = offsets_in(build.ranges)
            build.measured(build.result.events, time.monotonic() - began)

    @contextmanager
    def filled(self, build: Build) -> Iterator[None]:
        """A context in which a generation is filled and kept up to date, beginning when it has caught up."""
        view = build.target.view
        if not has_state(view):
            (self._compute if view.is_realtime else self.load)(build)
            with loading(build.target, self.settings, self.stores) as loaders:
                build.catch_up(loaders)
                yield
            return
        if holds_events(self.log, {each: (0, end) for each, end in build.bulk_ends.items()}):
            build.create(covered={})  # its own query says how far it has read
            build.finish()
            with self._streaming(build, anew=True):
                yield
        else:
            build.create()
            build.finish()
            self.queries.begin(build.target)
            yield

    @contextmanager
    def _streaming(self, build: Build, *, anew: bool) -> Iterator[None]:
        """A context in which the generation's own query runs, and loaders of its own load its patches.

        They continue shortly after the query has stopped: the regular loaders see a swap within REFRESH_S.
        """
        with loading(build.target, self.settings, self.stores) as loaders:
            with ExitStack() as query:
                with build.phase("bulk"):
                    query.enter_context(self.queries.running(build.target, anew=anew))
                build.catch_up(loaders)
                yield
            with build.phase("hand-over"):
                time.sleep(HAND_OVER_S)

    def _rebuild_together(
        self, views: Sequence[View], on_step: Callable[[Step], None], skip_poison: bool
    ) -> Iterator[tuple[View, Rebuilt | Failed]]:
        try:
            noted = self._noted(views)
        except EventLogError as error:
            yield from ((view, RebuildFailed(view.name, "start", str(error))) for view in views)
            return
        options = Options(skip_poison=skip_poison)
        runs = [_Run(view, self._steps(view, noted, on_step, options)) for view in views]
        with ExitStack() as closing_all:
            for run in runs:
                closing_all.callback(run.steps.close)
            for run in runs:
                run.advance()
            building = [run for run in runs if run.build is not None]
            results = self._bulk([run.build for run in building if run.build is not None])
            for run, result in zip(building, results, strict=True):
                run.loaded = result
            for run in runs:
                if run.outcome is None:
                    run.advance()
                yield from run.ended()
            waiting = [run for run in runs if run.outcome is None]
            if waiting:
                time.sleep(HAND_OVER_S)
            for run in waiting:
                run.advance()
                yield from run.ended()

    def load(self, build: Build) -> None:
        """Create one generation, load all its events, and build its indexes."""
        build.create()
        build.loaded(*self._bulk([build]))
        build.finish()

    def _bulk(self, builds: Sequence[Build]) -> list[Loaded]:
        """Load the events of all generations in one pass; returns the result of each, or why it failed."""
        with ExitStack() as phases:
            for build in builds:
                phases.enter_context(build.phase("bulk"))
            loads = [_load_of(build) for build in builds]
            found = iter(self.engine.bulk_load([load for load in loads if isinstance(load, Load)]))
            return [next(found) if isinstance(load, Load) else load for load in loads]

    def _steps(
        self, view: View, noted: Noted, on_step: Callable[[Step], None], options: Options
    ) -> Generator[Build, Loaded, Rebuilt]:
        """Rebuild a view; waits twice for others: until its rows are written, and until running loaders take over."""
        began = time.monotonic()
        with self.building(view, on_step, options, noted=noted) as build:
            build.create()
            build.loaded((yield build))
            build.finish()
            yield from self._go_live(build, began)
            self._drop_if_possible(drop_old, view)
        return build.result

    def _go_live(self, build: Build, began: float) -> Generator[Build, Loaded, None]:
        """Catch up and swap; if loaders take over, it yields once, and they need HAND_OVER_S for that."""
        view = build.target.view
        current = self.generations.live().get(view.name)
        if current is not None and current.tag != view.tag:
            self._go_live_from_log(build)
            build.result.seconds = time.monotonic() - began
            return
        with self._going_live(build):
            build.result.seconds = time.monotonic() - began
            if current is not None and self.taken_over(view):
                with build.phase("hand-over"):
                    yield build

    @contextmanager
    def _going_live(self, build: Build) -> Iterator[None]:
        """Catch up with the live query through `patches`, and swap.

        The regular loaders see the swap within REFRESH_S; until then, in this context, loaders of its own continue.
        """
        with loading(build.target, self.settings, self.stores) as loaders:
            build.catch_up(loaders)
            with build.phase("swap"):
                self._swap(build)
            yield

    def _noted(self, views: Sequence[View]) -> Noted:
        """The ends of `patches`, then those of the sources.

        In this order, patches of events after the noted end of a source come after the noted end of `patches`.
        """
        patch_starts = {each: self.log.end(PATCHES, each) for each in range(self.settings.patch_partitions)}
        return Noted(patch_starts, ends(self.log, sources(views, self.settings)))

    def _go_live_from_log(self, build: Build) -> None:
        """Catch up from the log and swap, because there may be no live query for this version.

        The previous generation serves and is kept up to date by the code of its version, until that code ends.
        """
        with build.phase("top-up"):
            for _ in range(2):  # what came during bulk, then what came during that
                top_up(build.target, build.stores, self.settings, self.log, self.engine)
        with build.phase("swap"):
            self._swap(build)

    def build_part(
        self,
        view: View,
        name: str,
        options: Options,
        on_step: Callable[[Step], None] = lambda _: None,
    ) -> Rebuilt:
        """Build a separate view, `name`, from selected events of `view`; it never changes afterwards."""
        began = time.monotonic()
        if view.has_own_query:
            raise RebuildFailed(name, "start", f'"{view.name}" is a stream view, which is only built from all records')
        with self.building(view.named(name), on_step, options, source=view.name) as build:
            self.load(build)
            with build.phase("swap"):
                self._swap(build)
            build.result.seconds = time.monotonic() - began
            self._drop_if_possible(drop_old, build.target.view)
        return build.result

    def roll_back(self, view: View, on_step: Callable[[Step], None] = lambda _: None) -> Rebuilt:
        """Make the previous generation live again, once it has caught up.

        Raises RebuildFailed if there is none, or if this code declares another version.
        """
        began = time.monotonic()
        with self.generations.rebuilding(view.name) as lock, opened(view, self.stores) as stores:
            before = self._before(view)
            target, result = Target(view, before.generation), Rebuilt(view.name, before.generation)
            build = self._build(target, stores, lock, {}, {}, on_step, result, Options(allow_older=True))
            try:
                if has_state(view):
                    with self._streaming(build, anew=False), build.phase("swap"):
                        self._swap(build)
                    result.seconds = time.monotonic() - began
                    return result
                with build.phase("top-up"):
                    result.events = top_up(target, stores, self.settings, self.log, self.engine)
                with self._going_live(build):
                    result.seconds = time.monotonic() - began
                    with build.phase("hand-over"):
                        time.sleep(HAND_OVER_S)
            except NotPublished:
                raise
            except (ProjectionError, EventLogError, OSError) as error:
                raise RebuildFailed(view.name, build.doing, str(error)) from error
        return result

    def _before(self, view: View) -> Generation:
        """The generation to roll back to: the one with this declaration that was live last."""
        current = self.generations.live().get(view.name)
        others = [
            each
            for each in self.generations.of(view.name)
            if each.state != "building" and (current is None or each.generation != current.generation)
        ]
        if not others:
            raise RebuildFailed(view.name, "start", "there is no previous generation")
        own = [each for each in others if each.fingerprint == view.fingerprint]
        last = max(own or others, key=lambda each: each.live_at or each.created_at)
        if not own:
            raise RebuildFailed(
                view.name,
                "start",
                f"generation {last.generation} is {last.tag}, but this code has another declaration, {view.tag}: "
                "run the code of that version",
            )
        return last

    @contextmanager
    def building(
        self,
        view: View,
        on_step: Callable[[Step], None],
        options: Options = DEFAULT,
        source: str | None = None,
        noted: Noted | None = None,
    ) -> Iterator[Build]:
        """A new generation of `view`, registered and still empty, under the rebuild lock of the view.

        Afterwards it is dropped, unless it was made live. source: the view that a view made with --as is made from.
        noted: ends of the log, as of a moment ago; None: those now.
        """
        with self.generations.rebuilding(view.name) as lock, opened(view, self.stores) as stores:
            drop_unfinished(view, self.generations, self.stores)
            patch_starts, every_end = noted or self._noted([view])
            bulk_ends = {each: every_end[each] for each in sources([view], self.settings)}
            selection = None if options.selection.is_all else str(options.selection)
            covered = {each: end for each, (_, end) in options.selection.ranges(bulk_ends).items()}
            base = {} if view.has_own_query else covered
            target = Target(view, self.generations.begin(view, base, patch_starts, source, selection).generation)
            result = Rebuilt(view.name, target.generation)
            build = self._build(target, stores, lock, bulk_ends, patch_starts, on_step, result, options)
            try:
                yield build
            except NotPublished:
                raise
            except (ProjectionError, EventLogError, OSError) as error:
                raise RebuildFailed(view.name, build.doing, str(error)) from error
            finally:
                self._drop_if_possible(drop_unfinished, view)

    def _build(
        self,
        target: Target,
        stores: Sequence[ViewStore],
        lock: RebuildLock,
        bulk_ends: Mapping[str, int],
        patch_starts: Mapping[int, int],
        on_step: Callable[[Step], None],
        result: Rebuilt,
        options: Options,
    ) -> Build:
        def measured(events: int, seconds: float) -> None:
            self.generations.measured(target.view.name, target.generation, events, seconds)

        return Build(
            self.settings,
            self.log,
            self.engine,
            lock,
            target,
            stores,
            bulk_ends,
            patch_starts,
            on_step,
            measured,
            result,
            options,
        )

    def _swap(self, build: Build) -> None:
        """Update the registry, which is the swap, then the plain names if they lead to this version."""
        name, generation = build.target.view.name, build.target.generation
        build.lock.check()
        if not self.generations.swap(name, generation, allow_older=build.options.allow_older):
            log.warning(
                '%s g%d is live for this code, but a later version of "%s" is current and keeps the plain names; '
                "`replay rollback %s` moves them back",
                build.target.view.tag, generation, name, name,
            )  # fmt: skip
            return
        places = 1 + len(build.stores)
        build.on_step(Step(name, "swap", 1, places))
        publish_everywhere(build.target, build.stores, lambda done: build.on_step(Step(name, "swap", 1 + done, places)))
        self.generations.published(name, generation)

    def _drop_if_possible(self, drop: Drop, view: View) -> None:
        """Drop what is no longer needed; if a store is unavailable, the next rebuild does it."""
        try:
            drop(view, self.generations, self.stores)
        except (ProjectionError, OSError) as error:
            log.warning('could not drop old generations of "%s", the next rebuild drops them: %s', view.name, error)


def _load_of(build: Build) -> Load[View] | Failure | None:
    """Its load, or why there can be none; None if there is nothing to load."""
    try:
        return build.bulk()
    except (ProjectionError, EventLogError, OSError) as error:
        return error
