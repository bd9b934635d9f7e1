"""A rebuild: builds a new generation from offset zero while the live one serves, and swaps them when it caught up."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from eventlog.topics import PATCHES
from projections.errors import NotPublished, RebuildFailed
from projections.generations.builder import Builder, Noted, named_failures, wait_for_loaders
from projections.generations.building import Build, Loaded, Options, Rebuilt, Step
from projections.generations.dropping import drop_old
from projections.generations.engine import failed
from projections.generations.kept import missed, missed_since
from projections.generations.registry import Generation
from projections.generations.stream_report import read_report
from projections.generations.top_up import top_up
from projections.stores.ledgers import gap
from projections.stores.open import opened
from projections.stores.store import Target, ViewStore
from projections.view import View, has_state

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
            if view.is_realtime:
                yield view, self._rebuild_realtime(view, on_step)
            elif view.has_own_query:
                yield view, self._rebuild_stream(view, on_step)

    def _rebuild_stream(self, view: View, on_step: Callable[[Step], None]) -> Ended:
        """Rebuild a view by its own query, which afterwards continues elsewhere from where it stopped here."""
        began = time.monotonic()
        try:
            with self.building(view, on_step) as build:
                with self.filled(build):
                    with build.phase("swap"):
                        self.swap(build)
                    build.result.seconds = time.monotonic() - began
                report = read_report(self.settings, build.target.tag)
                build.result.events, build.result.rows = report.records if report else 0, None
                self.drop_if_possible(drop_old, view)
            return build.result
        except (NotPublished, RebuildFailed) as error:
            return error

    def _rebuild_realtime(self, view: View, on_step: Callable[[Step], None]) -> Ended:
        """Rebuild a view by its query over the log; afterwards it takes the patches of the running query."""
        began = time.monotonic()
        try:
            with self.building(view, on_step) as build:
                self.compute(build)
                for _ in self._go_live(build, began):
                    wait_for_loaders()
                self.drop_if_possible(drop_old, view)
            return build.result
        except (NotPublished, RebuildFailed) as error:
            return error

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
        began = time.monotonic()
        with self.building(view, on_step, options, noted=noted) as build:
            build.create()
            build.loaded((yield build))
            build.finish()
            yield from self._go_live(build, began)
            self.drop_if_possible(drop_old, view)
        return build.result

    def _go_live(self, build: Build, began: float) -> Generator[Build, Loaded, None]:
        """Catch up and swap; if loaders take over, it yields once, so that they have time for it."""
        view = build.target.view
        current = self.generations.live().get(view.name)
        if current is not None and current.tag != view.tag:
            self.go_live_from_log(build)
            build.result.seconds = time.monotonic() - began
            return
        with self.going_live(build):
            build.result.seconds = time.monotonic() - began
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
        began = time.monotonic()
        if view.has_own_query:
            raise RebuildFailed(name, "start", f'"{view.name}" is a stream view, which is only built from all records')
        with self.building(view.named(name), on_step, options, source=view.name) as build:
            self.load(build)
            with build.phase("swap"):
                self.swap(build)
            build.result.seconds = time.monotonic() - began
            self.drop_if_possible(drop_old, build.target.view)
        return build.result

    def roll_back(self, view: View, on_step: Callable[[Step], None] = lambda _: None) -> Rebuilt:
        """Make the previous generation live again, once it has caught up.

        Raises RebuildFailed if there is none, if this code declares another version, or if it may have missed deletions
        of captured rows that the log no longer has.
        """
        began = time.monotonic()
        with (
            named_failures(view.name, lambda: "start"),
            self.generations.rebuilding(view.name) as lock,
            opened(view, self.stores) as stores,
        ):
            before = self._before(view)
            target, result = Target(view, before.generation), Rebuilt(view.name, before.generation)
            self._check_deletions(before, target, stores)
            build = self.new_build(target, stores, lock, {}, {}, on_step, result, Options(allow_older=True))
            with named_failures(view.name, lambda: build.doing):
                if has_state(view):
                    self._check_continues(target, stores)
                    with self.streaming(build, anew=False), build.phase("swap"):
                        self.swap(build)
                    result.seconds = time.monotonic() - began
                    return result
                with build.phase("top-up"):
                    result.events = top_up(target, stores, self.settings, self.log, self.engine)
                with self.going_live(build):
                    result.seconds = time.monotonic() - began
                    with build.phase("hand-over"):
                        wait_for_loaders()
        return result

    def _check_deletions(self, before: Generation, target: Target, stores: Sequence[ViewStore]) -> None:
        view = target.view
        for store in stores:
            since = missed_since(view, before, store.name, store.ledgers(target), self.log)
            if since is not None:
                raise RebuildFailed(view.name, "start", f"generation {before.generation}: {missed(since, view.name)}")

    def _check_continues(self, target: Target, stores: Sequence[ViewStore]) -> None:
        """Raise RebuildFailed if a generation with state cannot continue from where it was."""
        name, ledgers = target.view.name, [store.ledgers(target) for store in stores]
        first = {each: self.log.first(PATCHES, each) for each in range(self.settings.patch_partitions)}
        if any(gap(found, first, first.__getitem__) for found in ledgers):
            raise RebuildFailed(name, "start", f"the patches that it needs are gone: run `replay rebuild {name}`")
        if (lost := self.queries.why_lost(target, ledgers, self.log)) is not None:
            raise RebuildFailed(name, "start", f"its state {lost}: run `replay rebuild {name}`")

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
