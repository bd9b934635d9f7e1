"""A rebuild: builds a new generation from offset zero while the live one serves, and swaps them when it caught up."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import islice

from headwater.projections.errors import NotPublished, RebuildFailed
from headwater.projections.generations.rebuild.build import DEFAULT, Build, Options, Rebuilt, Step
from headwater.projections.generations.rebuild.builder import Builder
from headwater.projections.generations.rebuild.catching_up import until_taken_over
from headwater.projections.generations.rebuild.cooperation import LOOK_S, Waits, wait_for
from headwater.projections.generations.rebuild.strategies import FOLDED, REALTIME, STATEFUL, strategy_of
from headwater.projections.generations.registry.dropping import drop_old
from headwater.projections.generations.registry.sources import Ends
from headwater.projections.limits import MAX_TOGETHER, QUERIES_TOGETHER
from headwater.projections.view import View

log = logging.getLogger(__name__)

Ended = Rebuilt | RebuildFailed | NotPublished
"""The result of a rebuild, or why it failed."""


@dataclass
class _Run:
    """The rebuild of one of several views. build: the generation."""

    view: View
    steps: Generator[Build, None, Rebuilt]
    outcome: Ended | None = None
    build: Build | None = None

    @property
    def is_live(self) -> bool:
        """Whether its generation is live. If its view has an own query, that has stopped."""
        return self.build is not None and self.build.is_live

    def ended(self) -> list[tuple[View, Ended]]:
        """The view and the outcome; empty if it has not ended."""
        return [] if self.outcome is None else [(self.view, self.outcome)]

    def advance(self) -> None:
        """Do what can be done without waiting for the other views."""
        try:
            self.build = next(self.steps)
        except StopIteration as end:
            self.outcome = end.value
        except (NotPublished, RebuildFailed) as error:
            self.outcome = error


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

        See `rebuild`. A view that fails does not stop the others. Views with a query of their own come last, a few at a
        time; at their end real-time views, of which each is computed in one call.
        """
        kinds = (FOLDED, STATEFUL, REALTIME)
        folded, stateful, realtime = ([view for view in views if strategy_of(view) is kind] for kind in kinds)
        for first in range(0, len(folded), MAX_TOGETHER):
            yield from self._rebuild_together(folded[first : first + MAX_TOGETHER], on_step, skip_poison)
        yield from self._rebuild_in_turns([*stateful, *realtime], on_step)

    def _rebuild_in_turns(self, views: Sequence[View], on_step: Callable[[Step], None]) -> Iterator[tuple[View, Ended]]:
        """Rebuild views by their own queries: while one waits for its query or for loaders, another one goes on."""
        left, runs = iter(views), list[_Run]()
        with ExitStack() as closing_all:
            while True:
                for view in islice(left, QUERIES_TOGETHER - sum(not run.is_live for run in runs)):
                    runs.append(_Run(view, self._steps(view, on_step)))
                    closing_all.callback(runs[-1].steps.close)
                if not runs:
                    return
                for run in runs:
                    run.advance()
                    yield from run.ended()
                runs = [run for run in runs if run.outcome is None]
                time.sleep(LOOK_S)

    def _steps(
        self, view: View, on_step: Callable[[Step], None], options: Options = DEFAULT, ends: Ends | None = None
    ) -> Generator[Build, None, Rebuilt]:
        """Rebuild a view; whenever it has to wait, it yields, so that others go on."""
        strategy = strategy_of(view)
        strategy.check(self, view)
        with self.building(view, on_step, options, ends=ends) as build:
            with closing(strategy.rebuild(self, build)) as waits:
                for _ in waits:
                    yield build
            self.drop_if_possible(drop_old, view)
        return build.result

    def _rebuild_together(
        self, views: Sequence[View], on_step: Callable[[Step], None], skip_poison: bool
    ) -> Iterator[tuple[View, Ended]]:
        ends, options = Ends(self.log, self.settings), Options(skip_poison=skip_poison)
        runs = [_Run(view, self._steps(view, on_step, options, ends)) for view in views]
        with ExitStack() as closing_all:
            for run in runs:
                closing_all.callback(run.steps.close)
            for run in runs:
                run.advance()
            self.bulk([run.build for run in runs if run.build is not None])
            for run in runs:
                if run.outcome is None:
                    run.advance()
                yield from run.ended()
            waiting = [run for run in runs if run.outcome is None]
            if waiting:
                wait_for(until_taken_over())
            for run in waiting:
                run.advance()
                yield from run.ended()

    def go_live(self, build: Build) -> Waits:
        """Catch up and swap; if loaders take over, it yields once, so that they have time for it."""
        view = build.target.view
        current = self.generations.live().get(view.name)
        if current is not None and current.tag != view.tag:
            self.go_live_from_log(build)
            return
        with self.going_live(build):
            if current is not None and self.taken_over(view):
                with build.phase("hand-over"):
                    yield

    def build_part(
        self,
        view: View,
        name: str,
        options: Options,
        on_step: Callable[[Step], None] = lambda _: None,
    ) -> Rebuilt:
        """Build a separate view, `name`, from selected events of `view`; it never changes afterwards."""
        if strategy_of(view) is not FOLDED:
            raise RebuildFailed(name, "start", f'"{view.name}" is a stream view, which is only built from all records')
        with self.building(view.named(name).without_expiry(), on_step, options, source=view.name) as build:
            FOLDED.load(self, build)
            self.swap(build)
            self.drop_if_possible(drop_old, build.target.view)
        return build.result
