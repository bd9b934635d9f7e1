"""One generation that is being built: created, loaded in bulk, indexed, and caught up with the live query."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import Final

from headwater.projections.generations.rebuild.catching_up import catch_up
from headwater.projections.generations.rebuild.cooperation import Waits
from headwater.projections.generations.rebuild.engine import BulkResult, Failure, Load, holds_events, offsets_in
from headwater.projections.generations.rebuild.refused_rows import add_rows, check_few
from headwater.projections.generations.rebuild.resources import Resources
from headwater.projections.generations.rebuild.store_outages import patiently
from headwater.projections.generations.registry.selection import ALL, Selection
from headwater.projections.generations.registry.sources import Noted, patch_ends, read_by
from headwater.projections.limits import INDEX_AWAY_S
from headwater.projections.loading.loader import Loader
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


@dataclass(frozen=True)
class Options:
    """Options of a build.

    selection: of the events. skip_poison: leave out unreadable records, and patches that a store refuses.
    allow_older: let the plain names lead to it even if they lead to a later version.
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

    began: seconds of the monotonic clock. source: the view that a view made with --as is made from. doing: the current
    phase. is_live: whether it was swapped. loaded: the result of bulk. refused: by store, the rows that bulk did not
    write.
    """

    target: Target
    using: Resources
    noted: Noted
    on_step: Callable[[Step], None]
    options: Options
    began: float
    source: str | None = None
    doing: str = "start"
    is_live: bool = False
    loaded: Loaded = None
    refused: list[Set[str]] = field(default_factory=list)
    result: Rebuilt = field(init=False)

    def __post_init__(self) -> None:
        self.result = Rebuilt(*self.target.id)

    @property
    def stores(self) -> Sequence[ViewStore]:
        """Those of the view."""
        return self.using.stores

    @property
    def ranges(self) -> dict[str, tuple[int, int]]:
        """The offsets that bulk reads: by source, the first offset and the one after the last."""
        return read_by(self.target.view, self.options.selection.ranges(self.noted.bulk_ends))

    def create(self, covered: Mapping[str, int] | None = None) -> None:
        """Create the generation in its stores.

        covered: by source, the offset below which it has everything before it reads a patch; None: all that bulk reads.
        """
        if covered is None:
            covered = self.noted.bulk_ends
        with self.phase("create"):
            for store in self.stores:
                store.create(self.target, covered, self.noted.patch_starts)

    def bulk(self) -> Load[View] | None:
        """The load of all events below `bulk_ends`; None if there are none."""
        # if there is little to read, checking it is faster than starting Spark
        if offsets_in(self.ranges) <= FEW_RECORDS and not holds_events(self.using.log, self.ranges):
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

    def take_loaded(self) -> None:
        """Take the result of bulk; raises it if it failed, and BulkLoadFailed if a store refused too many rows."""
        result = self.loaded
        if isinstance(result, Exception):
            raise result
        if result is None:
            return
        check_few(self.target.view.name, [each.name for each in self.stores], result.rows, result.refused)
        self.result.events, self.result.rows, self.result.skipped = result.events, result.rows, result.skipped
        self.result.offsets = result.offsets
        self.refused = list(result.refused)
        self.note_bulk(result.seconds)

    def note_bulk(self, seconds: float) -> None:
        """Record how much bulk has read, and how long it took."""
        self.using.generations.note_bulk(*self.target.id, self.result.offsets, seconds)

    def finish(self) -> None:
        """Build the indexes, then add the rows that bulk did not write."""
        with self.phase("index"):
            deleted = [
                patiently(INDEX_AWAY_S)(store.finish, self.target, self._rows_in(number))
                for number, store in enumerate(self.stores)
            ]
        refused = [{*one, *other} for one, other in zip_longest(self.refused, deleted, fillvalue=())]
        if any(refused):
            with self.phase("refused rows"):
                for store, keys in zip(self.stores, refused, strict=True):
                    self.result.refused += self._add_rows(store, keys) if keys else 0

    def _rows_in(self, number: int) -> int:
        """The rows that bulk has written at least to the store with this number."""
        refused = len(self.refused[number]) if number < len(self.refused) else 0
        return max(0, (self.result.rows or 0) - refused)

    def _add_rows(self, store: ViewStore, keys: Set[str]) -> int:
        view, options = self.target.view, self.options
        log.warning("%s g%d: %s refused %d rows in bulk", view.name, self.target.generation, store.name, len(keys))
        return add_rows(
            store,
            self.target,
            self.using.engine.row_patches(Load(view, self.ranges, [], selection=options.selection), keys),
            self.using.letters,
            tag=view.tag if self.source is None else f"{self.source}@{view.version}",
            skip=options.skip_poison,
        )

    def catch_up(self, loaders: Sequence[Loader]) -> Waits:
        """Until `loaders` have brought the generation up to the live query."""
        with self.phase("catch-up"):
            yield from catch_up(
                self.target,
                self.stores,
                loaders,
                partial(patch_ends, self.using.log, self.using.settings),
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
        log.info("%s g%d: %s took %.2f s", *self.target.id, name, taken)
