"""Rebuilds views: several at once, or a part of one; and rolls them back."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final

from headwater.commands.declaring.registry import CommandRegistry
from headwater.eventlog.audit.trail import last_of_each, read_trail
from headwater.eventlog.topics import EVENTS
from headwater.projections.errors import (
    NotPublished,
    ProjectionError,
    RebuildFailed,
    RollbackFailed,
    StillNamed,
    StoreUnavailable,
)
from headwater.projections.generations.rebuild.engine import (
    POLL_S,
    run_alone,
)
from headwater.projections.generations.rebuild.rebuild import (
    DEFAULT,
    Ended,
    OnStep,
    Options,
    Rebuild,
    RebuildContext,
    Rebuilt,
    Step,
    fold,
    named_failures,
)
from headwater.projections.generations.registry.database import RebuildLock
from headwater.projections.generations.registry.generation import (
    Generation,
    missed,
    missed_since,
    paused_text,
    previous,
)
from headwater.projections.generations.registry.publishing import Drop, drop_old, drop_unfinished
from headwater.projections.generations.registry.registry import ProgressNotes
from headwater.projections.generations.registry.sources import (
    Ends,
    Noted,
    made_again,
    topic_ids,
)
from headwater.projections.limits import MAX_TOGETHER, QUERIES_TOGETHER
from headwater.projections.stores.open import opened
from headwater.projections.stores.store import Target, ViewStore
from headwater.projections.view import View

log = logging.getLogger(__name__)

ERASE: Final = "replay erase"
"""The verb that erases events, in the audit trail."""


@dataclass
class _Run:
    """The rebuild of one of several views."""

    view: View
    steps: Generator[Rebuild, None, Rebuilt]
    rebuild: Rebuild | None = None


@dataclass(frozen=True)
class Rebuilder(RebuildContext):
    """Rebuilds views of one deployment."""

    def rebuild(self, view: View, on_step: OnStep = lambda _: None, *, skip_poison: bool = False) -> Rebuilt:
        """Build the next generation of `view` and make it live.

        Raises RebuildFailed with the phase: then the live generation has not changed, and the new one is dropped (by
        the next rebuild, if a store is unavailable). Raises NotPublished if it failed after the swap.
        """
        ((_, outcome),) = self.rebuild_all([view], on_step, skip_poison=skip_poison)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def rebuild_all(
        self, views: Sequence[View], on_step: OnStep = lambda _: None, *, skip_poison: bool = False
    ) -> Iterator[tuple[View, Ended]]:
        """Rebuild several views in one pass over the log; yields each with its result, or why it failed.

        See `rebuild`. A view that fails does not stop the others. Views with a query of their own come last, a few at a
        time; at their end real-time views, of which each is computed in one call.
        """
        folded = [view for view in views if not view.has_own_query]
        for first in range(0, len(folded), MAX_TOGETHER):
            options, ends = Options(skip_poison=skip_poison), Ends(self.log, self.settings)
            yield from self._rebuild_together(
                folded[first : first + MAX_TOGETHER], MAX_TOGETHER, on_step, options, ends
            )
        queried = sorted((view for view in views if view.has_own_query), key=lambda view: not view.has_state)
        yield from self._rebuild_together(queried, QUERIES_TOGETHER, on_step, DEFAULT, None)

    def _rebuild_together(
        self, views: Sequence[View], most: int, on_step: OnStep, options: Options, ends: Ends | None
    ) -> Iterator[tuple[View, Ended]]:
        """Rebuild so many views at once: while one waits for its query, for loaders or for a fold, another one goes on.

        The query of one whose generation is live has stopped.
        """
        left, runs = iter(views), list[_Run]()
        with ExitStack() as closing_all:
            while True:
                for view in islice(left, most - sum(not (run.rebuild and run.rebuild.is_live) for run in runs)):
                    runs.append(_Run(view, self._steps(view, on_step, options, ends)))
                    closing_all.callback(runs[-1].steps.close)
                if not runs:
                    return
                for run in list(runs):
                    try:
                        run.rebuild = next(run.steps)
                        continue
                    except StopIteration as end:
                        outcome: Ended = end.value
                    except (NotPublished, RebuildFailed) as error:
                        outcome = error
                    runs.remove(run)
                    yield run.view, outcome
                rebuilds = [run.rebuild for run in runs if run.rebuild is not None]
                if unfolded := [
                    rebuild for rebuild in rebuilds if not (rebuild.is_folded or rebuild.view.has_own_query)
                ]:
                    fold(self.engine, unfolded)
                elif runs:
                    time.sleep(POLL_S)

    def _steps(
        self, view: View, on_step: OnStep, options: Options, ends: Ends | None
    ) -> Generator[Rebuild, None, Rebuilt]:
        """Rebuild a view; whenever it has to wait, it yields, so that others go on."""
        if view.has_state:
            self.check_state_place(view, "start")
        with self.building(view, on_step, options, ends=ends) as rebuild:
            with closing(rebuild.run()) as waits:
                for _ in waits:
                    yield rebuild
            self._drop_if_possible(drop_old, view)
        return rebuild.result

    def build_part(self, view: View, name: str, options: Options, on_step: OnStep = lambda _: None) -> Rebuilt:
        """Build a separate view, `name`, from selected events of `view`; it never changes afterwards."""
        if view.has_own_query:
            raise RebuildFailed(name, "start", f'"{view.name}" is a stream view, which is only built from all records')
        with self.building(view.named(name).without_expiry(), on_step, options, source=view.name) as rebuild:
            run_alone(rebuild.fill())
            rebuild.promote()
            self._drop_if_possible(drop_old, rebuild.view)
        return rebuild.result

    def roll_back(self, view: View, on_step: OnStep = lambda _: None) -> Rebuilt:
        """Make the previous generation live again, once it has caught up.

        Raises RollbackFailed if there is none, if this code declares another version, or if it may have missed
        deletions of captured rows that the log no longer has.
        """
        began = time.monotonic()
        try:
            with self._locked(view) as (lock, stores):
                target = Target(view, self._previous(view, stores).generation)
                options, noted = Options(allow_older=True), Noted({}, {})
                rebuild = Rebuild(self, target, lock, stores, noted, on_step, options, began)
                with rebuild.failures():
                    run_alone(rebuild.roll_back())
        except RebuildFailed as error:
            raise RollbackFailed(error.view, error.phase, error.cause) from error
        return rebuild.result

    def _previous(self, view: View, stores: Sequence[ViewStore]) -> Generation:
        """The generation to roll back to: the one with this declaration that was live last.

        Raises RebuildFailed if there is none, or if the log does not have all that it lacks.
        """
        name = view.name
        current = self.generations.live().get(name)
        own, others = previous(view, self.generations.of(name), None if current is None else current.generation)
        if not others:
            raise RebuildFailed(name, "start", f"there is no previous generation: see `replay generations {name}`")
        if own is None:
            raise RebuildFailed(
                name,
                "start",
                f"generation {others[-1].generation} is {others[-1].tag}, but this code has another declaration, "
                f"{view.tag}: run the code of that version",
            )
        for topic in made_again(own.topics, topic_ids(self.log, [view])):
            cause = f'generation {own.generation}: topic "{topic}" was recreated since it was built'
            raise RebuildFailed(name, "start", f"{cause}: run `replay rebuild {name}`")
        if view.reads(EVENTS) and (erased := self._erased_since(view, own)) is not None:
            cause = f"generation {own.generation} is older than `replay erase {erased}`, and may have what was erased"
            raise RebuildFailed(name, "start", f"{cause}: run `replay rebuild {name}`, then `replay prune {name}`")
        for store in stores:
            if (since := missed_since(view, own, store.name)) is not None:
                raise RebuildFailed(name, "start", f"generation {own.generation}: {missed(since, name)}")
        return own

    def _erased_since(self, view: View, own: Generation) -> str | None:
        """What was erased since a generation was begun, of which the view may have rows; None if nothing was.

        Tombstones say it for some days only, and the audit trail for ever.
        """
        aggregates = CommandRegistry.load(self.settings.modules).aggregates
        for record in last_of_each(filter(None, read_trail(self.log, own.created_at))):
            target = str(record.arguments.get("target", ""))
            of = aggregates.get(target.partition("/")[0])
            if record.verb != ERASE or record.outcome == "refused" or (of and not any(map(view.handles, of.events))):
                continue
            return target
        return None

    @contextmanager
    def building(
        self,
        view: View,
        on_step: OnStep,
        options: Options = DEFAULT,
        source: str | None = None,
        ends: Ends | None = None,
    ) -> Iterator[Rebuild]:
        """A new generation of `view`, registered and still empty, under the rebuild lock of the view.

        Afterwards it is dropped, unless it was made live. source: the view that a view made with --as is made from.
        ends: shared with other builds; None: those of the log now.

        Raises RebuildFailed for every error, also one before the context begins, except NotPublished.
        """
        began, name = time.monotonic(), view.name
        with self._locked(view) as (lock, stores):
            try:
                drop_unfinished(view, self.generations, self.stores)
            except StillNamed as error:  # it can be dropped once the new one has the names
                log.warning("%s", error)
            noted = (ends or Ends(self.log, self.settings)).noted(view)
            covered = {partition: end for partition, (_, end) in options.selection.ranges(noted.bulk_ends).items()}
            selection = None if options.selection.is_all else str(options.selection)
            above = max((store.shown(name) or 0 for store in stores), default=0)
            bulk_ends = {} if view.has_own_query else covered
            begun = self.generations.begin(view, bulk_ends, noted.patch_starts, noted.topics, source, selection, above)
            notes = ProgressNotes(name, partial(self.generations.note_rebuild, name))

            def step(step: Step) -> None:
                on_step(step)
                notes.take(step.phase, step.done, step.total)

            target = Target(view, begun.generation)
            rebuild = Rebuild(self, target, lock, stores, noted, step, options, began, source)
            try:
                with rebuild.failures():
                    yield rebuild
            finally:
                self._drop_if_possible(drop_unfinished, view)
                try:
                    self.generations.forget_rebuild(name)
                except StoreUnavailable as error:  # its lock is gone, so nobody takes it for one that runs
                    log.warning("cannot note the end of the rebuild of %s: %s", name, error)

    @contextmanager
    def _locked(self, view: View) -> Iterator[tuple[RebuildLock, Sequence[ViewStore]]]:
        """The rebuild lock of a view, and its stores, opened for one rebuild. Raises RebuildFailed for every error."""
        with (
            named_failures(view.name, lambda: "start"),
            self.generations.rebuilding(view.name) as lock,
            opened(view, self.stores) as stores,
        ):
            if (since := self.generations.paused().get(view.name)) is not None:  # nobody pauses it under the lock
                raise RebuildFailed(view.name, "start", f"it is paused {paused_text(view.name, since)}")
            yield lock, stores

    def _drop_if_possible(self, drop: Drop, view: View) -> None:
        """Drop what is no longer needed; if a store is unavailable, the next rebuild does it."""
        try:
            drop(view, self.generations, self.stores)
        except (ProjectionError, OSError) as error:
            log.warning('could not drop old generations of "%s", the next rebuild drops them: %s', view.name, error)
        except Exception:  # it neither undoes a swap, nor hides why a rebuild failed
            log.exception('could not drop old generations of "%s", the next rebuild drops them', view.name)
