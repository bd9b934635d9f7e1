"""A rebuild: builds a new generation from offset zero while the live one serves, and swaps them when it caught up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from projections.errors import NotPublished, RebuildFailed
from projections.generations.builder import Builder, wait_for_loaders
from projections.generations.building import Build, Loaded, Noted, Options, Rebuilt, Step
from projections.generations.dropping import drop_old
from projections.generations.engine import failed
from projections.generations.stream_report import read_report
from projections.view import View

log = logging.getLogger(__name__)

MAX_TOGETHER = 16
"""Views that are rebuilt in one pass: each has loaders of its own until the running ones take over."""
Ended = Rebuilt | RebuildFailed | NotPublished
"""The result of a rebuild, or why it failed."""


@dataclass
class _Run:
    """The rebuild of one of several views. build: the generation. loaded: the result of its bulk load."""

    view: View
    steps: Generator[Build, Loaded, Rebuilt]
    outcome: Ended | None = None
    build: Build | None = None
    loaded: Loaded = None

    def ended(self) -> list[tuple[View, Ended]]:
        """The view and the outcome; empty if it has not ended."""
        return [] if self.outcome is None else [(self.view, self.outcome)]

    def advance(self) -> None:
        """Do what can be done without waiting for the other views."""
        try:
            self.build = self.steps.send(self.loaded)
        except StopIteration as end:
            self.outcome = end.value
        except (NotPublished, RebuildFailed) as error:
            self.outcome = error
        self.loaded = None


@dataclass(frozen=True)
class Rebuilder(Builder):
    """Rebuilds views of one deployment.

    taken_over: whether loaders run that take over a view after the swap. If they do not run, they begin with its new
    generation, so nothing waits for them.
    """

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
    ) -> Iterator[tuple[View, Ended]]:
        """Rebuild several views in one pass over the log; yields each with its result, or why it failed.

        See `rebuild`. A view that fails does not stop the others. Views with a query of their own come last.
        """
        folded = [view for view in views if not view.has_own_query]
        for first in range(0, len(folded), MAX_TOGETHER):
            yield from self._rebuild_together(folded[first : first + MAX_TOGETHER], on_step, skip_poison)
        for view in views:
            if view.has_own_query:
                yield view, self._rebuild_alone(view, on_step)

    def _rebuild_alone(self, view: View, on_step: Callable[[Step], None]) -> Ended:
        """Rebuild a view by its own query."""
        try:
            with self.building(view, on_step) as build:
                if view.is_realtime:
                    self._take_over(build)
                else:
                    self._hand_over(build)
                self.drop_if_possible(drop_old, view)
        except (NotPublished, RebuildFailed) as error:
            return error
        return build.result

    def _hand_over(self, build: Build) -> None:
        """Make a generation live by its own query, which afterwards continues elsewhere from where it stopped here."""
        with self.filled(build):
            self.swap(build)
        report = read_report(self.settings, build.target.tag)
        build.result.events, build.result.rows = report.records if report else 0, None

    def _take_over(self, build: Build) -> None:
        """Make a generation live by its query over the log; afterwards it takes the patches of the running query."""
        self.compute(build)
        for _ in self._go_live(build):
            wait_for_loaders()

    def _rebuild_together(
        self, views: Sequence[View], on_step: Callable[[Step], None], skip_poison: bool
    ) -> Iterator[tuple[View, Ended]]:
        try:
            noted = self.noted(views)
        except Exception as error:  # noqa: BLE001 (it fails these views, and no other part of the process)
            yield from ((view, failed(view.name, "start", error)) for view in views)
            return
        options = Options(skip_poison=skip_poison)
        runs = [_Run(view, self._steps(view, noted, on_step, options)) for view in views]
        with ExitStack() as closing_all:
            for run in runs:
                closing_all.callback(run.steps.close)
            for run in runs:
                run.advance()
            building = [run for run in runs if run.build is not None]
            results = self.bulk([run.build for run in building if run.build is not None])
            for run, result in zip(building, results, strict=True):
                run.loaded = result
            for run in runs:
                if run.outcome is None:
                    run.advance()
                yield from run.ended()
            waiting = [run for run in runs if run.outcome is None]
            if waiting:
                wait_for_loaders()
            for run in waiting:
                run.advance()
                yield from run.ended()

    def _steps(
        self, view: View, noted: Noted, on_step: Callable[[Step], None], options: Options
    ) -> Generator[Build, Loaded, Rebuilt]:
        """Rebuild a view; waits twice for others: until its rows are written, and until running loaders take over."""
        with self.building(view, on_step, options, noted=noted) as build:
            build.create()
            build.loaded((yield build))
            build.finish()
            yield from self._go_live(build)
            self.drop_if_possible(drop_old, view)
        return build.result

    def _go_live(self, build: Build) -> Generator[Build, Loaded, None]:
        """Catch up and swap; if loaders take over, it yields once, so that they have time for it."""
        view = build.target.view
        current = self.generations.live().get(view.name)
        if current is not None and current.tag != view.tag:
            self.go_live_from_log(build)
            return
        with self.going_live(build):
            if current is not None and self.taken_over(view):
                with build.phase("hand-over"):
                    yield build

    def build_part(
        self,
        view: View,
        name: str,
        options: Options,
        on_step: Callable[[Step], None] = lambda _: None,
    ) -> Rebuilt:
        """Build a separate view, `name`, from selected events of `view`; it never changes afterwards."""
        if view.has_own_query:
            raise RebuildFailed(name, "start", f'"{view.name}" is a stream view, which is only built from all records')
        with self.building(view.named(name), on_step, options, source=view.name) as build:
            self.load(build)
            self.swap(build)
            self.drop_if_possible(drop_old, build.target.view)
        return build.result
