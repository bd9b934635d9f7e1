"""How a generation is filled, made live and rolled back: a strategy per kind of view."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, ClassVar

from headwater.eventlog.topics import PATCHES
from headwater.projections.errors import RebuildFailed, StreamQueryFailed
from headwater.projections.generations.rebuild.build import Build
from headwater.projections.generations.rebuild.catching_up import until_taken_over
from headwater.projections.generations.rebuild.cooperation import Waits, wait_for
from headwater.projections.generations.rebuild.engine import holds_events, offsets_in
from headwater.projections.generations.rebuild.top_up import top_up
from headwater.projections.generations.registry.stream_report import read_report
from headwater.projections.stores.ledgers import gap
from headwater.projections.stores.store import Target
from headwater.projections.view import View

if TYPE_CHECKING:
    from headwater.projections.generations.rebuild.builder import Builder
    from headwater.projections.generations.rebuild.rebuild import Rebuilder


class Strategy(ABC):
    """What a rebuild does for one kind of view.

    has_bulk: whether bulk gives a generation everything below the ends that were noted before.
    """

    has_bulk: ClassVar[bool] = False

    def check(self, builder: Builder, view: View) -> None:  # noqa: B027 - most kinds can be built anywhere
        """Raise RebuildFailed if no generation of the view can be built by this process."""

    @abstractmethod
    def fill(self, builder: Builder, build: Build, then: Callable[[], None]) -> Waits:
        """Fill a generation, and call `then` when it has caught up; until that returns, it is kept up to date."""

    @abstractmethod
    def rebuild(self, rebuilder: Rebuilder, build: Build) -> Waits:
        """Fill a generation and make it live."""

    @abstractmethod
    def roll_back(self, builder: Builder, build: Build) -> None:
        """Make an earlier generation live again, with everything that it misses."""


class _Patched(Strategy):
    """One running query makes the patches of all generations of a version, so that a new one only needs the past."""

    @abstractmethod
    def load(self, builder: Builder, build: Build) -> None:
        """Create a generation, and fill it up to the end of the log."""

    def fill(self, builder: Builder, build: Build, then: Callable[[], None]) -> Waits:
        self.load(builder, build)
        with builder.loading(build) as loaders:
            yield from build.catch_up(loaders)
            then()

    def roll_back(self, builder: Builder, build: Build) -> None:
        """With the events that it misses, and then the patches of the running query."""
        with build.phase("top-up"):
            build.result.events = top_up(build.target, build.using)
        with builder.going_live(build), build.phase("hand-over"):
            wait_for(until_taken_over())


class Folded(_Patched):
    """The events of a view are folded in bulk, and several views in one pass over the log."""

    has_bulk = True

    def load(self, builder: Builder, build: Build) -> None:
        build.create()
        builder.bulk([build])
        build.take_loaded()
        build.finish()

    def rebuild(self, rebuilder: Rebuilder, build: Build) -> Waits:
        """It waits twice for others: until `Builder.bulk` has loaded it, and until running loaders take over."""
        build.create()
        yield
        build.take_loaded()
        build.finish()
        yield from rebuilder.go_live(build)


class Realtime(_Patched):
    """The query of a view has no state, so that it computes any range of the log apart."""

    def load(self, builder: Builder, build: Build) -> None:
        build.create(covered={})
        build.finish()  # first: patches need the keys of tables
        with build.phase("bulk"):
            began = time.monotonic()
            build.result.rows = top_up(build.target, build.using)
            build.result.events, build.result.offsets = None, offsets_in(build.ranges)
            build.note_bulk(time.monotonic() - began)

    def rebuild(self, rebuilder: Rebuilder, build: Build) -> Waits:
        self.load(rebuilder, build)
        for _ in rebuilder.go_live(build):
            yield from until_taken_over()


class Stateful(Strategy):
    """Each generation has a query of its own, which computes it from the first record, and continues elsewhere."""

    def check(self, builder: Builder, view: View) -> None:
        builder.check_state_place(view, "start")

    def fill(self, builder: Builder, build: Build, then: Callable[[], None]) -> Waits:
        if holds_events(builder.log, {each: (0, end) for each, end in build.noted.bulk_ends.items()}):
            build.create(covered={})  # its own query says how far it has read
            build.finish()
            yield from self._run(builder, build, then, anew=True)
        else:
            build.create()
            build.finish()
            builder.queries.begin(build.target)
            then()

    def rebuild(self, rebuilder: Rebuilder, build: Build) -> Waits:
        def go_live() -> None:
            rebuilder.check_state_place(build.target.view, "swap")  # again: it may be hours later
            rebuilder.swap(build)

        yield from self.fill(rebuilder, build, go_live)
        report = read_report(rebuilder.settings, build.target.tag)
        build.result.events, build.result.rows = report.records if report else 0, None

    def roll_back(self, builder: Builder, build: Build) -> None:
        """By its query, which continues from where it was."""
        self._check_continues(builder, build)
        self.check(builder, build.target.view)
        wait_for(self._run(builder, build, lambda: builder.swap(build), anew=False))

    def _run(self, builder: Builder, build: Build, then: Callable[[], None], *, anew: bool) -> Waits:
        """Run the generation's own query, with loaders of its own, and call `then` when it has caught up.

        They continue shortly after the query has stopped: the regular loaders see a swap within REFRESH_S.
        """
        with builder.loading(build) as loaders:
            with ExitStack() as query:
                self._hold(builder, build.target, query)
                with build.phase("bulk"):
                    yield from query.enter_context(builder.queries.running(build.target, anew=anew))
                yield from build.catch_up(loaders)
                then()
            if build.is_live:  # nobody takes over what is only compared
                with build.phase("hand-over"):
                    yield from until_taken_over()

    def _hold(self, builder: Builder, target: Target, query: ExitStack) -> None:
        """Hold the query until the context ends; raises StreamQueryFailed if another process does, on any machine."""
        locks = query.enter_context(closing(builder.generations.query_locks("replay")))
        if (holder := locks.hold(target.tag)) is not None:
            raise StreamQueryFailed(target.tag, f"another process runs it ({holder}): wait until it has stopped")

    def _check_continues(self, builder: Builder, build: Build) -> None:
        """Raise RebuildFailed if the query cannot continue from where it was."""
        name, ledgers = build.target.view.name, [store.ledgers(build.target) for store in build.stores]
        first = {each: builder.log.first(PATCHES, each) for each in range(builder.settings.patch_partitions)}
        if any(gap(found, first, first.__getitem__) for found in ledgers):
            raise RebuildFailed(name, "start", f"the patches that it needs are gone: run `replay rebuild {name}`")
        if (lost := builder.queries.why_lost(build.target, ledgers, builder.log)) is not None:
            raise RebuildFailed(name, "start", f"its state {lost}: run `replay rebuild {name}`")


FOLDED, REALTIME, STATEFUL = Folded(), Realtime(), Stateful()


def strategy_of(view: View) -> Strategy:
    """The strategy for the kind of this view."""
    if view.has_state:
        return STATEFUL
    return REALTIME if view.has_own_query else FOLDED
