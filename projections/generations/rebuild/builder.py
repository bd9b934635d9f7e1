"""What every rebuild does: a new generation is registered, filled, caught up and made live, or dropped."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

from headwater.eventlog.ports import EventLog
from headwater.eventlog.settings import LogSettings
from headwater.projections.errors import NotPublished, ProjectionError, RebuildFailed, StoreUnavailable
from headwater.projections.generations.rebuild.build import DEFAULT, Build, Options, Step
from headwater.projections.generations.rebuild.catching_up import loading
from headwater.projections.generations.rebuild.cooperation import wait_for
from headwater.projections.generations.rebuild.engine import (
    BulkResult,
    Engine,
    Failure,
    Load,
    StreamQueries,
    failed,
)
from headwater.projections.generations.rebuild.resources import Resources
from headwater.projections.generations.rebuild.strategies import strategy_of
from headwater.projections.generations.rebuild.top_up import top_up
from headwater.projections.generations.registry.dropping import Drop, drop_unfinished
from headwater.projections.generations.registry.generation import Generation, paused_text
from headwater.projections.generations.registry.publishing import publish_everywhere
from headwater.projections.generations.registry.rebuild_progress import ProgressNotes
from headwater.projections.generations.registry.registry import Generations
from headwater.projections.generations.registry.selection import Selection
from headwater.projections.generations.registry.sources import Ends, Noted
from headwater.projections.generations.registry.state_places import why_not_here
from headwater.projections.loading.dead_letters import DeadLetters
from headwater.projections.loading.loader import Loader
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.open import opened
from headwater.projections.stores.store import Target
from headwater.projections.view import View

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Builder:
    """Builds generations of views of one deployment.

    engine: folds the log. queries: of views that are not folded.
    """

    settings: LogSettings
    stores: StoreSettings
    log: EventLog
    generations: Generations
    engine: Engine
    queries: StreamQueries

    @contextmanager
    def resources(self, view: View) -> Iterator[Resources]:
        """What a rebuild of `view` works with, under its rebuild lock.

        Raises RebuildFailed for every error that does not name the view yet, except NotPublished.
        """
        with (
            named_failures(view.name, lambda: "start"),
            self.generations.rebuilding(view.name) as lock,
            opened(view, self.stores) as stores,
        ):
            if (since := self.generations.paused().get(view.name)) is not None:  # nobody pauses it under the lock
                raise RebuildFailed(view.name, "start", f"it is paused {paused_text(view.name, since)}")
            letters = DeadLetters(self.settings)
            yield Resources(self.settings, self.log, self.generations, self.engine, lock, stores, letters)

    @contextmanager
    def building(
        self,
        view: View,
        on_step: Callable[[Step], None],
        options: Options = DEFAULT,
        source: str | None = None,
        ends: Ends | None = None,
    ) -> Iterator[Build]:
        """A new generation of `view`, registered and still empty, under the rebuild lock of the view.

        Afterwards it is dropped, unless it was made live. source: the view that a view made with --as is made from.
        ends: shared with other builds; None: those of the log now.

        Raises RebuildFailed for every error, also one before the context begins, except NotPublished.
        """
        began = time.monotonic()
        with self.resources(view) as using:
            drop_unfinished(view, self.generations, self.stores)
            noted = (ends or Ends(self.log, self.settings)).noted(view)
            target = Target(view, self._begun(view, noted, options.selection, source).generation)
            with self._noting(view.name, on_step) as step:
                build = Build(target, using, noted, step, options, began, source)
                try:
                    with failures_of(build):
                        yield build
                finally:
                    self.drop_if_possible(drop_unfinished, view)

    @contextmanager
    def _noting(self, view: str, on_step: Callable[[Step], None]) -> Iterator[Callable[[Step], None]]:
        """What a build calls with each step, which is noted in the registry for those who measure it."""
        notes = ProgressNotes(view, partial(self.generations.note_rebuild, view))

        def step(each: Step) -> None:
            on_step(each)
            notes.take(each.phase, each.done, each.total)

        try:
            yield step
        finally:
            try:
                self.generations.forget_rebuild(view)
            except StoreUnavailable as error:  # its lock is gone, so nobody takes it for one that runs
                log.warning("cannot note the end of the rebuild of %s: %s", view, error)

    def _begun(self, view: View, noted: Noted, selection: Selection, source: str | None) -> Generation:
        """The next generation, in the registry."""
        covered = {each: end for each, (_, end) in selection.ranges(noted.bulk_ends).items()}
        base = covered if strategy_of(view).has_bulk else {}
        return self.generations.begin(
            view, base, noted.patch_starts, noted.topics, source, None if selection.is_all else str(selection)
        )

    def bulk(self, builds: Sequence[Build]) -> None:
        """Load the events of all generations in one pass; see Build.take_loaded."""
        with ExitStack() as phases:
            for build in builds:
                phases.enter_context(build.phase("bulk"))
            loads = [_load_of(build) for build in builds]
            found = iter(self._bulk_load([load for load in loads if isinstance(load, Load)]))
            for build, load in zip(builds, loads, strict=True):
                build.loaded = next(found) if isinstance(load, Load) else load

    def _bulk_load(self, loads: Sequence[Load[View]]) -> Sequence[BulkResult | Failure]:
        try:
            return self.engine.bulk_load(loads)
        except Exception as error:  # noqa: BLE001 (it fails these views, and no other part of the process)
            return [failed(load.view.name, "bulk", error) for load in loads]

    def loading(self, build: Build) -> AbstractContextManager[Sequence[Loader]]:
        """Loaders of a generation, beside the regular ones."""
        return loading(build.target, self.settings, self.stores)

    @contextmanager
    def going_live(self, build: Build) -> Iterator[None]:
        """Catch up with the live query through `patches`, and swap.

        The regular loaders see the swap within REFRESH_S; until then, in this context, loaders of its own continue.
        """
        with self.loading(build) as loaders:
            wait_for(build.catch_up(loaders))
            self.swap(build)
            yield

    def go_live_from_log(self, build: Build) -> None:
        """Catch up from the log and swap, because there may be no live query for this version.

        The previous generation serves and is kept up to date by the code of its version, until that code ends.
        """
        with build.phase("top-up"):
            for _ in range(2):  # what came during bulk, then what came during that
                top_up(build.target, build.using)
        self.swap(build)

    def swap(self, build: Build) -> None:
        """Make the generation live: its result has the seconds until then."""
        with build.phase("swap"):
            self._swap(build)
        build.result.seconds = time.monotonic() - build.began

    def _swap(self, build: Build) -> None:
        """Update the registry, which is the swap, then the plain names if they lead to this version."""
        name, generation = build.target.view.name, build.target.generation
        lock, allow_older = build.using.lock, build.options.allow_older
        is_current = self.generations.swap(name, generation, lock=lock, allow_older=allow_older)
        build.is_live = True
        if not is_current:
            log.warning(
                '%s g%d is live for this code, but a later version of "%s" is current and keeps the plain names; '
                "`replay rollback %s` moves them back",
                build.target.view.tag, generation, name, name,
            )  # fmt: skip
            return
        places = 1 + len(build.stores)
        build.on_step(Step(name, "swap", 1, places))
        publish_everywhere(
            build.target,
            build.stores,
            self.generations,
            lambda done: build.on_step(Step(name, "swap", 1 + done, places)),
        )

    def check_state_place(self, view: View, phase: str) -> None:
        """Raise RebuildFailed if the read side could not continue what this process computes: see state_places."""
        with named_failures(view.name, lambda: phase):
            places = self.generations.state_places()
            problem = why_not_here(self.settings, places)
        if problem is not None:
            raise RebuildFailed(view.name, phase, problem)
        if phase == "start" and not any(each.is_fresh for each in places):
            log.warning(
                'no running read side has said where it keeps the state of "%s": if it has another folder than %s '
                "(HEADWATER_STATE), it computes the view again",
                view.name, self.settings.state.absolute(),
            )  # fmt: skip

    def drop_if_possible(self, drop: Drop, view: View) -> None:
        """Drop what is no longer needed; if a store is unavailable, the next rebuild does it."""
        try:
            drop(view, self.generations, self.stores)
        except (ProjectionError, OSError) as error:
            log.warning('could not drop old generations of "%s", the next rebuild drops them: %s', view.name, error)
        except Exception:  # it neither undoes a swap, nor hides why a rebuild failed
            log.exception('could not drop old generations of "%s", the next rebuild drops them', view.name)


@contextmanager
def named_failures(view: str, phase: Callable[[], str]) -> Iterator[None]:
    """Raise RebuildFailed, with the view and the phase at that time, for every error that does not name them."""
    try:
        yield
    except (NotPublished, RebuildFailed):
        raise
    except Exception as error:
        raise failed(view, phase(), error) from error


@contextmanager
def failures_of(build: Build) -> Iterator[None]:
    """Likewise for a build. An error after the swap is only logged, because the generation is live."""
    try:
        with named_failures(build.target.view.name, lambda: build.doing):
            yield
    except RebuildFailed as error:
        if not build.is_live:
            raise
        view, generation = build.target.id
        log.error('generation %d of "%s" is live; an error came after that: %s', generation, view, error.cause)


def _load_of(build: Build) -> Load[View] | Failure | None:
    """Its load, or why there can be none; None if there is nothing to load."""
    try:
        return build.bulk()
    except Exception as error:  # noqa: BLE001 (it stops no other view)
        return failed(build.target.view.name, "bulk", error)
