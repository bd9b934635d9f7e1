"""Builds one generation: create, bulk-load, index, and catch up with the live query."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import Final

from tenacity import Retrying, before_sleep_log, retry_if_exception_type, stop_after_delay, wait_fixed

from eventlog.ports import EventLog
from eventlog.settings import LogSettings
from projections.errors import CannotCatchUp, GenerationMissing, LoaderDied, StoreUnavailable
from projections.generations.engine import BulkResult, Engine, Failure, Load, holds_events, offsets_in
from projections.generations.refused import add_rows, check_few
from projections.generations.registry import RebuildLock
from projections.generations.selection import ALL, Selection
from projections.generations.sources import patch_ends, read_by
from projections.loading.loader import Loader
from projections.settings import StoreSettings
from projections.stores.open import opened
from projections.stores.store import Target, ViewStore
from projections.view import View

log = logging.getLogger(__name__)

CAUGHT_UP_PATCHES: Final = 200
CAUGHT_UP_S: Final = 0.5
"""A generation has caught up if it is at most this far behind `patches`, by either limit: under load, new patches
always come.
"""
NO_CLOSER_S: Final = 30 * 60.0
"""How long a generation that is behind may come no closer: then patches come faster than they are applied."""
LOOK_S: Final = 0.02
LEDGERS_EVERY_S: Final = 1.0
AWAY_S: Final = 30.0
"""How long a store may be unavailable while a generation catches up."""
INDEX_AWAY_S: Final = 180.0
"""While it builds its indexes, which may take longer than a client waits: a failure would repeat the whole rebuild."""
RETRY_S: Final = 1.0
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


@dataclass
class Rebuilt:
    """The result of a rebuild.

    events: read by bulk; rows: written by bulk, None if the view's own query wrote them; skipped: records that could
    not be read; seconds: until the swap, and by phase; refused: patches that a store refused.
    """

    view: str
    generation: int
    events: int = 0
    rows: int | None = 0
    skipped: int = 0
    seconds: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    refused: int = 0


@dataclass(frozen=True)
class Options:
    """Options of a build.

    selection: of the events. skip_poison: skip unreadable records, and patches that a store refuses,
    instead of failing. allow_older: let the plain names
    lead to it even if they lead to a later version.
    """

    selection: Selection = ALL
    skip_poison: bool = False
    allow_older: bool = False


DEFAULT: Final = Options()


Loaded = BulkResult | Failure | None
"""The result of a bulk load, or why it failed; None if there was nothing to load."""


@dataclass
class Build:
    """A generation that is being built, and its progress.

    lock: held while the view is rebuilt. stores: the opened stores of the view. doing: the current phase. bulk_ends: by
    source, the offset after the last event of bulk. patch_starts: by partition of `patches`, the offset
    from which it catches up. source: the view that a view made with --as is made from. refused: by store, the rows that
    bulk did not write.
    """

    settings: LogSettings
    log: EventLog
    engine: Engine
    lock: RebuildLock
    target: Target
    stores: Sequence[ViewStore]
    bulk_ends: Mapping[str, int]
    patch_starts: Mapping[int, int]
    on_step: Callable[[Step], None]
    measured: Callable[[int, float], None]
    result: Rebuilt
    options: Options
    source: str | None = None
    doing: str = "start"
    refused: list[Set[str]] = field(default_factory=list)

    @property
    def ranges(self) -> dict[str, tuple[int, int]]:
        """The offsets that bulk reads: by source, the first offset and the one after the last."""
        return read_by(self.target.view, self.options.selection.ranges(self.bulk_ends))

    def create(self, covered: Mapping[str, int] | None = None) -> None:
        """Create the generation in its stores.

        covered: by source, the offset below which it has everything before it reads a patch; None: `bulk_ends`.
        """
        with self.phase("create"):
            for store in self.stores:
                store.create(self.target, self.bulk_ends if covered is None else covered, self.patch_starts)

    def bulk(self) -> Load[View] | None:
        """The load of all events below `bulk_ends`; None if there are none."""
        # if there is little to read, checking it is faster than starting Spark
        if offsets_in(self.ranges) <= FEW_RECORDS and not holds_events(self.log, self.ranges):
            return None
        name = self.target.view.name
        return Load(
            self.target.view,
            self.ranges,
            [store.bulk_writer(self.target) for store in self.stores],
            lambda done, total: self.on_step(Step(name, "bulk", done, total)),
            self.options.selection,
            self.options.skip_poison,
        )

    def loaded(self, result: Loaded) -> None:
        """Take the result of `bulk`; raises it if it failed, and BulkLoadFailed if a store refused too many rows."""
        if isinstance(result, Exception):
            raise result
        if result is None:
            return
        check_few(self.target.view.name, [each.name for each in self.stores], result.rows, result.refused)
        self.result.events, self.result.rows, self.result.skipped = result.events, result.rows, result.skipped
        self.refused = list(result.refused)
        self.measured(result.events, result.seconds)

    def finish(self) -> None:
        """Build the indexes, then add the rows that bulk did not write."""
        with self.phase("index"):
            deleted = [_patiently(INDEX_AWAY_S)(store.finish, self.target) for store in self.stores]
        refused = [{*one, *other} for one, other in zip_longest(self.refused, deleted, fillvalue=())]
        if any(refused):
            with self.phase("refused rows"):
                for store, keys in zip(self.stores, refused, strict=True):
                    self.result.refused += self._add_rows(store, keys) if keys else 0

    def _add_rows(self, store: ViewStore, keys: Set[str]) -> int:
        view, options = self.target.view, self.options
        log.warning("%s g%d: %s refused %d rows in bulk", view.name, self.target.generation, store.name, len(keys))
        return add_rows(
            store,
            self.target,
            self.engine.row_patches(Load(view, self.ranges, [], selection=options.selection), keys),
            self.settings,
            _patiently(AWAY_S),
            tag=view.tag if self.source is None else f"{self.source}@{view.version}",
            skip=options.skip_poison,
        )

    def catch_up(self, loaders: Sequence[Loader]) -> None:
        """Wait until `loaders` have brought the generation up to the live query."""
        with self.phase("catch-up"):
            catch_up(
                self.target,
                self.stores,
                loaders,
                partial(patch_ends, self.log, self.settings),
                lambda done, total: self.on_step(Step(self.target.view.name, "catch-up", done, total)),
            )

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Report the start of a phase, and measure its duration."""
        self.doing = name
        self.on_step(Step(self.target.view.name, name))
        began = time.monotonic()
        yield
        taken = self.result.phases[name] = time.monotonic() - began
        log.info("%s g%d: %s took %.2f s", self.target.view.name, self.target.generation, name, taken)


@contextmanager
def loading(target: Target, settings: LogSettings, stores: StoreSettings) -> Iterator[list[Loader]]:
    """Loaders of one generation only, one per store, each in its own thread with its own store."""
    stop, partitions = threading.Event(), range(settings.patch_partitions)
    with opened(target.view, stores) as own:
        loaders = [Loader(store, lambda: [target], settings, partitions) for store in own]
        threads = [threading.Thread(target=loader.run, args=[stop], daemon=True) for loader in loaders]
        for thread in threads:
            thread.start()
        try:
            yield loaders
        finally:
            stop.set()
            for thread in threads:
                thread.join()


def catch_up(
    target: Target,
    stores: Sequence[ViewStore],
    loaders: Sequence[Loader],
    ends: Callable[[], Mapping[int, int]],
    on_progress: Callable[[int, int], None],
) -> None:
    """Wait until every loader is near the end of `patches` (CAUGHT_UP_PATCHES, CAUGHT_UP_S).

    ends: returns the end of each partition. on_progress: called with patches (done, total). Raises LoaderDied if a
    loader died, GenerationMissing if the generation is gone, CannotLoad if a loader has left it out, CannotCatchUp if
    it came no closer for NO_CLOSER_S, and StoreUnavailable if a store is unavailable for more than AWAY_S.
    """
    total, looked = 0, time.monotonic()
    closest, reached = math.inf, looked
    earlier: deque[tuple[float, Mapping[int, int]]] = deque()
    while True:
        if any(loader.failed for loader in loaders):
            raise LoaderDied(target.view.name)
        now, at = ends(), time.monotonic()
        behind = max(_behind(now, loader) for loader in loaders)
        total = max(total, behind)
        on_progress(total - behind, total)
        if behind <= CAUGHT_UP_PATCHES:
            return
        earlier.append((at, now))
        while at - earlier[0][0] >= CAUGHT_UP_S:
            _, then = earlier.popleft()
            if not any(_behind(then, loader) for loader in loaders):
                return
        if behind < closest:
            closest, reached = behind, at
        elif at - reached > NO_CLOSER_S:
            raise CannotCatchUp(target.view.name, target.generation, behind, NO_CLOSER_S / 60)
        if at - looked > LEDGERS_EVERY_S:
            _check(target, stores, loaders)
            looked = time.monotonic()
        time.sleep(LOOK_S)


def _behind(ends: Mapping[int, int], loader: Loader) -> int:
    """How many offsets of `patches` a loader still has to read."""
    return sum(max(0, end - loader.positions.get(each, 0)) for each, end in ends.items())


def _check(target: Target, stores: Sequence[ViewStore], loaders: Sequence[Loader]) -> None:
    """Loaders wait for a store forever, and leave out what they cannot load; a rebuild must fail instead."""
    for store in stores:
        if not _patiently(AWAY_S)(store.ledgers, target):
            raise GenerationMissing(target.view.name, target.generation)
    for loader in loaders:
        left_out = loader.left_out.get((target.view.name, target.generation))
        if left_out is not None:
            raise left_out


def _patiently(away_s: float) -> Retrying:
    """Calls again while a store is unavailable, for so many seconds."""
    return Retrying(
        retry=retry_if_exception_type(StoreUnavailable),
        stop=stop_after_delay(away_s),
        wait=wait_fixed(RETRY_S),
        before_sleep=before_sleep_log(log, logging.WARNING),
        reraise=True,
    )
