"""Folds single rows of a table view again from the log, up to what each store has applied, and replaces them there."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal

from headwater.eventlog.envelope import partition_of
from headwater.eventlog.ports import Entry, EventLog
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.source_positions import source_id, topic_and_partition
from headwater.eventlog.times import now_ms
from headwater.eventlog.topics import EVENTS, PATCHES
from headwater.projections.generations.rebuild.engine import Engine, Load, Ranges
from headwater.projections.generations.registry.sources import ends_of, read_by, sources
from headwater.projections.loading.decoding import announcement
from headwater.projections.stores.backend import SingleRows, StoredRow
from headwater.projections.stores.ledgers import combined
from headwater.projections.stores.names import patch_key, patch_partition
from headwater.projections.stores.store import LAST_NUMBER, Target
from headwater.projections.table.layout import DELETED, Differing, difference
from headwater.projections.table.monoids import State
from headwater.projections.table.patch import Place

TURNS: Final = 50
"""How often a row that changes meanwhile is looked at again."""
PAUSE_S: Final = 0.05
FOLLOW_S: Final = 30.0
"""How long a store may take to apply what it must have: without other events, heartbeats confirm it every 5 s."""
LOOK_S: Final = 0.2
NOTHING: Final = StoredRow(None, {})

Outcome = Literal["equal", "differs", "replaced", "undecided"]


@dataclass(frozen=True)
class FoldedRow:
    """One row in one store.

    outcome: undecided if it kept changing, or the store did not get far enough. folded: its state from the log, up to
    what the store has applied; None: there is no such row. differing: the fields in which the store had other values,
    there and from the log.
    """

    key: str
    store: str
    outcome: Outcome
    folded: State | None
    differing: Differing | None = None


@dataclass
class _Row:
    """A row of a store while it is folded.

    stored: as it was read last. reached: what `folded` has. ends: of the log, by source, when it was folded last.
    """

    key: str
    store: str
    stored: StoredRow = NOTHING
    reached: StoredRow = NOTHING
    folded: State | None = None
    has_later: bool = False
    ends: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class RowFolder:
    """Folds rows of one generation again.

    rows: by store. on_progress: called with records (done, total). after: by source, the last offset that a store must
    have applied before a row in it counts.
    """

    target: Target
    settings: LogSettings
    log: EventLog
    engine: Engine
    rows: Mapping[str, SingleRows]
    on_progress: Callable[[int, int], None] = lambda _done, _total: None
    after: Mapping[str, int] = field(default_factory=dict)

    def fold(self, keys: Collection[str], streams: Collection[str] | None, *, write: bool = False) -> list[FoldedRow]:
        """Compare rows with the log in each store, and replace those that differ if `write` is true.

        streams: those that have all events of the rows; None: the whole log is read. It is exact while loaders write:
        the ledger of a row's patches says which events the row has, and it is replaced only if none came since.

        Raises StoreUnavailable, LogUnavailable, GenerationMissing, BulkLoadFailed, and Unloadable if a store cannot
        hold a row.
        """
        rows = [_Row(key, store) for key in keys for store in self.rows]
        deadline = time.monotonic() + FOLLOW_S
        while self.after and any(self._is_behind(self._read_stored(row)) for row in rows):
            if time.monotonic() >= deadline:
                break
            time.sleep(LOOK_S)
        return [
            turned or self._again(row, streams, write=write)
            for row, turned in zip(rows, self._turn(rows, streams, write=write), strict=True)
        ]

    def _read_stored(self, row: _Row) -> _Row:
        row.stored = self.rows[row.store].read(self.target, row.key)
        return row

    def _is_behind(self, row: _Row) -> bool:
        return any(not row.stored.has(source, Place(at, LAST_NUMBER)) for source, at in self.after.items())

    def _again(self, row: _Row, streams: Collection[str] | None, *, write: bool) -> FoldedRow:
        """The result for a row that changed meanwhile: only what has come since is read, so it is soon sure."""
        for _ in range(TURNS):
            (row_found,) = self._turn([row], streams, write=write)
            if row_found is not None:
                return row_found
            time.sleep(PAUSE_S)
        return FoldedRow(row.key, row.store, "undecided", row.folded)

    def _turn(self, rows: Sequence[_Row], streams: Collection[str] | None, *, write: bool) -> list[FoldedRow | None]:
        """Read rows in their stores, fold what these have applied, and return each result that is sure."""
        for row in rows:
            self._read_stored(row)
        ends = ends_of(self.log, self._sources(streams))  # after the rows: they have none beyond
        for row in rows:
            # an event that was erased meanwhile may have been folded
            events = [source for source in ends if row.ends and topic_and_partition(source)[0] == EVENTS]
            if any(
                record.value is None
                for source in events
                for record in self.log.read(*topic_and_partition(source), row.ends[source], ends[source])
            ):
                row.folded, row.reached = None, NOTHING
            row.ends = ends
        self._read(rows, streams, ends)
        return [self._settled(row, write=write) for row in rows]

    def _sources(self, streams: Collection[str] | None) -> list[str]:
        if streams is None:
            return sources([self.target.view], self.settings)
        partitions = sorted({partition_of(stream, self.settings.partitions) for stream in streams})
        return [source_id(EVENTS, partition) for partition in partitions]

    def _read(self, rows: Sequence[_Row], streams: Collection[str] | None, ends: Mapping[str, int]) -> None:
        """Fold what the stores have applied since they were read the last time."""
        view, by_key = self.target.view, dict[str, list[_Row]]()
        for row in rows:
            row.has_later = False
            by_key.setdefault(row.key, []).append(row)
        # the last event is read again: it may have several patches
        starts = {source: min(row.reached.offset(source) for row in rows) for source in ends}
        ranges: Ranges = read_by(view, {source: (min(starts[source], end), end) for source, end in ends.items()})
        load = Load(view, ranges, [], self.on_progress)
        for patch in self.engine.row_patches(load, frozenset(by_key), streams):
            for row in by_key.get(patch.key, ()):
                if not row.stored.has(patch.source, patch.place):
                    row.has_later = True
                elif not row.reached.has(patch.source, patch.place):
                    with suppress(OverflowError):  # a patch that every store refuses changes nothing
                        row.folded = combined(view.layout, {row.key: row.folded or {}}, [patch])[row.key]
        for row in rows:
            row.reached = row.stored

    def _settled(self, row: _Row, *, write: bool) -> FoldedRow | None:
        """The result for a row in a store; None if it must be looked at again."""
        view, rows = self.target.view, self.rows[row.store]
        expiry, is_removed = view.expiry, False
        if expiry is not None and expiry.is_final and row.stored.state is None and row.folded is not None:
            # the store has removed a row that expired for good, which need not come back
            is_removed = expiry.has_come(row.folded.get(expiry.column), datetime.now(UTC))
        folded = None if row.folded is None or is_removed else rows.as_read(row.folded)
        differing = difference(
            _comparable(row.stored.state),
            _comparable(folded),
            forgets_deleted=bool(view.tables),
        )
        if self._is_behind(row):
            return FoldedRow(row.key, row.store, "undecided", folded, differing)
        if differing is None:
            return FoldedRow(row.key, row.store, "equal", folded)
        if row.has_later and any(topic != EVENTS for topic in view.topics):
            return None  # of a captured row, compaction may have removed the record that the store has
        if not write:
            return FoldedRow(row.key, row.store, "differs", folded, differing)
        if rows.replace(self.target, row.key, row.stored, row.folded):
            # followers of the view's changes read the row again
            if (source := next((source for source in row.ends if source in row.stored.applied), None)) is not None:
                key = patch_key(self.target.tag, row.key)
                partition = patch_partition(view, self.target.tag, row.key, self.settings.patch_partitions)
                self.log.submit(Entry(PATCHES, key, announcement(source), now_ms()), partition).result()
            return FoldedRow(row.key, row.store, "replaced", folded, differing)
        return None


def _comparable(state: State | None) -> State | None:
    """Without the mark of a row that is not deleted, which some stores have and others do not."""
    if state is None or state.get(DELETED):
        return state
    return {name: value for name, value in state.items() if name != DELETED}
