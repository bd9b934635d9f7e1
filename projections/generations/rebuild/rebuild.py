"""The rebuild of views: a new generation is built from offset zero while the live one serves, and takes its place.

`Rebuild` is the procedure for one view: create → fold → index → catch up → verify → promote. `rebuilder.py` runs it for
several.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from headwater.eventlog.ports import EventLog
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import PATCHES
from headwater.projections.errors import (
    NotPublished,
    RebuildFailed,
    StreamQueryFailed,
)
from headwater.projections.generations.rebuild.catching_up import (
    add_rows,
    catch_up,
    check_few,
    loading,
    retry_while_unavailable,
    top_up,
    until_taken_over,
)
from headwater.projections.generations.rebuild.engine import (
    BulkResult,
    Engine,
    Failure,
    Load,
    StreamQueries,
    Waits,
    failed,
    holds_events,
    offsets_in,
    run_alone,
)
from headwater.projections.generations.registry.database import RebuildLock
from headwater.projections.generations.registry.publishing import publish_everywhere
from headwater.projections.generations.registry.registry import Generations
from headwater.projections.generations.registry.sources import (
    ALL,
    Noted,
    Selection,
    patch_ends,
    read_by,
)
from headwater.projections.generations.registry.state_files import read_report, why_not_here
from headwater.projections.limits import INDEX_AWAY_S
from headwater.projections.loading.dead_letters import DeadLetters
from headwater.projections.loading.loader import Loader
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.ledgers import gap
from headwater.projections.stores.store import Target, ViewStore
from headwater.projections.view import View

log = logging.getLogger(__name__)

FEW_RECORDS: Final = 10_000


@dataclass(frozen=True)
class Step:
    """The progress of a rebuild.

    phase: create, bulk, index, refused rows, catch-up (or top-up), swap or hand-over; reported at its start and during
    it. done, total: events (bulk), patches (catch-up), or places that name the live generation (swap: the registry,
    then each store).
    """

    view: str
    phase: str
    done: int = 0
    total: int = 0


OnStep = Callable[[Step], None]


@dataclass
class Rebuilt:
    """The result of a rebuild.

    events: read by bulk, with changes of captured rows; None if Spark read and did not count them; of a view with its
    own query, all records that it read. rows: written by bulk, None if the view's own query wrote them. skipped:
    records that could not be read. seconds: until the swap, and by phase. refused: patches that a store refused.
    offsets: of the log that bulk read.
    """

    view: str
    generation: int
    events: int | None = 0
    rows: int | None = 0
    skipped: int = 0
    seconds: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    refused: int = 0
    offsets: int = 0


Ended = Rebuilt | RebuildFailed | NotPublished
"""The result of a rebuild, or why it failed."""


@dataclass(frozen=True)
class Options:
    """Options of a build.

    selection: of the events. skip_poison: leave out unreadable records, and patches that a store refuses.
    allow_older: let the aliases lead to it even if they lead to a later version.
    """

    selection: Selection = ALL
    skip_poison: bool = False
    allow_older: bool = False


DEFAULT: Final = Options()


@dataclass(frozen=True)
class RebuildContext:
    """What the rebuilds of one deployment work with.

    engine: folds the log. queries: of views that are not folded. taken_over: whether loaders run that take over a view
    once its new generation is live.
    """

    settings: LogSettings
    stores: StoreSettings
    log: EventLog
    generations: Generations
    engine: Engine
    queries: StreamQueries
    taken_over: Callable[[View], bool] = lambda _: True

    def check_state_place(self, view: View, phase: str) -> None:
        """Raise RebuildFailed if the read side could not continue what this process computes: see state_places."""
        with named_failures(view.name, lambda: phase):
            places = self.generations.state_places()
            problem = why_not_here(self.settings, places)
        if problem is not None:
            raise RebuildFailed(view.name, phase, problem)
        if phase == "start" and not any(place.is_fresh for place in places):
            log.warning(
                'no running read side has said where it keeps the state of "%s": if it has another folder than %s '
                "(HEADWATER_STATE), it computes the view again",
                view.name, self.settings.state.absolute(),
            )  # fmt: skip


@dataclass
class Rebuild:
    """One generation on its way to be live, under the rebuild lock of its view.

    by: what it works with. stores: those of the view. noted: where the log ended at the beginning. began: seconds of
    the monotonic clock. source: the view that a view made with --as is made from. current_phase: for errors. is_live:
    whether it was promoted. is_folded, folded: whether bulk has read its events, and the result, or why it failed; None
    if there were no events.
    """

    by: RebuildContext
    target: Target
    lock: RebuildLock
    stores: Sequence[ViewStore]
    noted: Noted
    on_step: OnStep
    options: Options
    began: float
    source: str | None = None
    current_phase: str = "start"
    is_live: bool = False
    is_folded: bool = False
    folded: BulkResult | Failure | None = None
    result: Rebuilt = field(init=False)

    def __post_init__(self) -> None:
        self.view, self.result = self.target.view, Rebuilt(*self.target.id)
        self.letters = DeadLetters(self.by.settings)

    def run(self, then: Callable[[], None] | None = None) -> Waits:
        """Create it, fold the log, build its indexes, let it catch up, and promote it. Where it waits, it yields.

        then: called in place of `promote`; until it returns, the generation is kept up to date.
        """
        is_promoted, then = then is None, then or self.promote
        if self.view.has_state:  # each generation has a query of its own, which computes it from the first record
            if holds_events(self.by.log, {source: (0, end) for source, end in self.noted.bulk_ends.items()}):
                self.create({})  # its query says how far it has read
                self.index()
                yield from self.follow(then, anew=True)
            else:
                self.create(self.noted.bulk_ends)
                self.index()
                self.by.queries.begin(self.target)
                then()
            report = read_report(self.by.settings, self.target.tag)
            self.result.events, self.result.rows = report.records if report else 0, None
            return
        yield from self.fill()
        current = self.by.generations.live().get(self.view.name)
        if is_promoted and current is not None and current.tag != self.view.tag:
            # there may be no live query for this version; the code of the other one keeps that up to date until it ends
            with self.phase("top-up"):
                for _ in range(2):  # what came during bulk, then what came during that
                    self.top_up()
            then()
        else:
            yield from self.follow(then)

    def fill(self) -> Waits:
        """Create, fold and index it: then it has all events up to the ends that were noted."""
        if self.view.has_own_query:  # a query without state computes any range of the log apart
            self.create({})
            self.index()  # first: patches need the keys of tables
            with self.phase("bulk"):
                began = time.monotonic()
                self.result.rows = self.top_up()
                self.result.events, self.result.offsets = None, offsets_in(self.ranges)
                self.by.generations.note_bulk(*self.target.id, self.result.offsets, time.monotonic() - began)
            return
        self.create(self.noted.bulk_ends)
        yield  # views that are rebuilt together are created now, and folded in one pass: see Rebuilder
        if not self.is_folded:
            fold(self.by.engine, [self])
        if isinstance(self.folded, Exception):
            raise self.folded
        if (folded := self.folded) is not None:
            check_few(self.view.name, [store.name for store in self.stores], folded.rows, folded.refused)
            self.result.events, self.result.rows, self.result.skipped = folded.events, folded.rows, folded.skipped
            self.result.offsets = folded.offsets
            self.by.generations.note_bulk(*self.target.id, folded.offsets, folded.seconds)
        self.index()

    def follow(self, then: Callable[[], None], *, anew: bool = False) -> Waits:
        """Run loaders of its own, and the query of a view with state, until it has caught up; then call `then`.

        Once it is live, they go on until the regular loaders have seen that. If these do not run, they begin with the
        new generation, so nothing waits for them. anew: let the query begin at the first record.
        """
        current = self.by.generations.live().get(self.view.name)
        with loading(self.target, self.by.settings, self.by.stores) as loaders:
            with ExitStack() as query:
                if self.view.has_state:
                    locks = query.enter_context(closing(self.by.generations.query_locks("replay")))
                    if (holder := locks.hold(self.target.tag)) is not None:
                        cause = f"another process runs it ({holder}): wait until it has stopped"
                        raise StreamQueryFailed(self.target.tag, cause)
                    with self.phase("bulk"):
                        yield from query.enter_context(self.by.queries.running(self.target, anew=anew))
                if self.view.has_state:
                    yield from self.catch_up(loaders)
                else:  # views of one pass catch up one after the other, else their loaders were all there at once
                    run_alone(self.catch_up(loaders))
                then()
            if self.is_live and current is not None and self.by.taken_over(self.view):
                with self.phase("hand-over"):
                    yield from until_taken_over()

    def create(self, covered: Mapping[str, int]) -> None:
        """Create the generation in its stores. covered: by source, the offset below which it needs no patch."""
        with self.phase("create"):
            for store in self.stores:
                store.create(self.target, covered, self.noted.patch_starts)

    def load(self) -> Load[View] | None:
        """What is to be folded: all events below the ends that were noted; None if there are none."""
        # if there is little to read, checking it is faster than starting Spark
        if offsets_in(self.ranges) <= FEW_RECORDS and not holds_events(self.by.log, self.ranges):
            return None
        return Load(
            self.view,
            self.ranges,
            [store.bulk_writer(self.target) for store in self.stores],
            lambda done, total: self.on_step(Step(self.view.name, "bulk", done, total)),
            self.options.selection,
            self.options.skip_poison,
        )

    def index(self) -> None:
        """Build the indexes, check that the rows are there, and add those that bulk did not write."""
        folded = self.folded if isinstance(self.folded, BulkResult) else None
        refused = list(folded.refused) if folded and folded.refused else [frozenset[str]()] * len(self.stores)
        with self.phase("index"):
            for number, store in enumerate(self.stores):
                at_least = max(0, folded.rows - len(refused[number])) if folded else 0
                finish = retry_while_unavailable(INDEX_AWAY_S)
                refused[number] = frozenset({*refused[number], *finish(store.finish, self.target, at_least)})
        if any(refused):
            with self.phase("refused rows"):
                for store, keys in zip(self.stores, refused, strict=True):
                    if keys:
                        self.result.refused += self.add_rows(store, keys)

    def add_rows(self, store: ViewStore, keys: Set[str]) -> int:
        """Apply the patches of rows that a store refused; returns how many of these it refuses, too.

        If rows are in groups, those that were written count in groups that were not. So the store begins anew, and gets
        all patches, as from a loader.
        """
        log.warning("%s g%d: %s refused %d rows in bulk", *self.target.id, store.name, len(keys))
        is_grouped = self.view.layout.retraction is not None
        if is_grouped:
            store.create(self.target, self.noted.bulk_ends, self.noted.patch_starts)
            store.finish(self.target)
        load = Load(self.view, self.ranges, [], selection=self.options.selection)
        tag = self.view.tag if self.source is None else f"{self.source}@{self.view.version}"
        patches = self.by.engine.row_patches(load, None if is_grouped else keys)
        return add_rows(store, self.target, patches, self.letters, tag=tag, skip=self.options.skip_poison)

    def top_up(self) -> int:
        """Apply everything that it lacks from the log, and return the number of patches."""
        by = self.by
        return top_up(self.target, self.stores, self.letters, by.engine, by.log, by.settings)

    def catch_up(self, loaders: Sequence[Loader]) -> Waits:
        """Until `loaders` have brought the generation up to the live query."""
        with self.phase("catch-up"):
            yield from catch_up(
                self.target,
                self.stores,
                loaders,
                partial(patch_ends, self.by.log, self.by.settings),
                lambda done, total: self.on_step(Step(self.view.name, "catch-up", done, total)),
            )

    def promote(self) -> None:
        """Make it live in the registry, then let the aliases lead to it, unless a later version is current.

        Raises NotPublished if a store did not change its name.
        """
        name, generation = self.target.id
        if self.view.has_state:  # again: it may be hours later
            self.by.check_state_place(self.view, "swap")
        with self.phase("swap"):
            is_current = self.by.generations.swap(
                name, generation, lock=self.lock, allow_older=self.options.allow_older
            )
            self.is_live = True
            if is_current:
                places = 1 + len(self.stores)
                self.on_step(Step(name, "swap", 1, places))
                publish_everywhere(
                    self.target,
                    self.stores,
                    self.by.generations,
                    lambda done: self.on_step(Step(name, "swap", 1 + done, places)),
                )
            else:
                log.warning(
                    '%s g%d is live for this code, but a later version of "%s" is current and keeps the aliases; '
                    "`replay rollback %s` moves them back",
                    self.view.tag, generation, name, name,
                )  # fmt: skip
        self.result.seconds = time.monotonic() - self.began

    def roll_back(self) -> Waits:
        """Bring an earlier generation up to date, and promote it: by its query, which continues, or from the log."""
        name = self.view.name
        if not self.view.has_state:
            with self.phase("top-up"):
                self.result.events = self.top_up()
            yield from self.follow(self.promote)
            return
        ledgers = [store.ledgers(self.target) for store in self.stores]
        first = {
            partition: self.by.log.first(PATCHES, partition) for partition in range(self.by.settings.patch_partitions)
        }
        if any(gap(of_store, first, first.__getitem__) for of_store in ledgers):
            raise RebuildFailed(name, "start", f"the patches that it needs are gone: run `replay rebuild {name}`")
        if (lost := self.by.queries.why_lost(self.target, ledgers, self.by.log)) is not None:
            raise RebuildFailed(name, "start", f"its state {lost}: run `replay rebuild {name}`")
        self.by.check_state_place(self.view, "start")
        yield from self.follow(self.promote)

    @property
    def ranges(self) -> dict[str, tuple[int, int]]:
        """The offsets that bulk reads: by source, the first offset and the one after the last."""
        return read_by(self.view, self.options.selection.ranges(self.noted.bulk_ends))

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Report the start of a phase, and measure its duration."""
        self.current_phase = name
        self.on_step(Step(self.view.name, name))
        began = time.monotonic()
        yield
        taken = self.result.phases[name] = time.monotonic() - began
        log.info("%s g%d: %s took %.2f s", *self.target.id, name, taken)

    @contextmanager
    def failures(self) -> Iterator[None]:
        """Raise RebuildFailed with the phase for every error. Once it is live, all but NotPublished are only logged."""
        try:
            with named_failures(self.view.name, lambda: self.current_phase):
                yield
        except RebuildFailed as error:
            if not self.is_live:
                raise
            name, generation = self.target.id
            log.error('generation %d of "%s" is live; an error came after that: %s', generation, name, error.cause)


@contextmanager
def named_failures(view: str, phase: Callable[[], str]) -> Iterator[None]:
    """Raise RebuildFailed, with the view and the phase at that time, for every error that does not name them."""
    try:
        yield
    except (NotPublished, RebuildFailed):
        raise
    except Exception as error:
        raise failed(view, phase(), error) from error


def fold(engine: Engine, rebuilds: Sequence[Rebuild]) -> None:
    """Fold the events of several generations in one pass over the log; each has its result, or why it failed."""
    with ExitStack() as phases:
        loads: list[tuple[Rebuild, Load[View]]] = []
        for rebuild in rebuilds:
            phases.enter_context(rebuild.phase("bulk"))
            rebuild.is_folded = True
            try:
                if (load := rebuild.load()) is not None:
                    loads.append((rebuild, load))
            except Exception as error:  # noqa: BLE001 (it stops no other view)
                rebuild.folded = failed(rebuild.view.name, "bulk", error)
        try:
            results = engine.bulk_load([load for _, load in loads])
        except Exception as error:  # noqa: BLE001 (it fails these views, and no other part of the process)
            results = [failed(rebuild.view.name, "bulk", error) for rebuild, _ in loads]
        for (rebuild, _), result in zip(loads, results, strict=True):
            rebuild.folded = result
