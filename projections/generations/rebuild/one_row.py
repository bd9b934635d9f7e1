"""Folds one row of a table view again from the log, up to what each store has applied, and replaces it there."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from eventlog.envelope import partition_of
from eventlog.ports import EventLog
from eventlog.settings import LogSettings
from eventlog.source_positions import source_id, topic_and_partition
from eventlog.topics import EVENTS
from projections.generations.rebuild.engine import Engine, Load, Ranges
from projections.generations.registry.sources import ends_of, read_by, sources
from projections.stores.single_rows import SingleRows, StoredRow
from projections.stores.store import Target
from projections.table.monoids import State
from projections.table.row_difference import Differing, difference
from projections.table.shown import DELETED

TURNS: Final = 50
"""How often a row that changes meanwhile is looked at again."""
PAUSE_S: Final = 0.05

Outcome = Literal["equal", "differs", "replaced", "undecided"]


@dataclass(frozen=True)
class FoldedRow:
    """One row in one store.

    outcome: undecided if it kept changing. folded: its state from the log, up to what the store has applied; None:
    there is no such row. differing: the fields in which the store had other values, there and from the log.
    """

    store: str
    outcome: Outcome
    folded: State | None
    differing: Differing | None = None


@dataclass
class _Row:
    """A row of a store while it is folded.

    stored: as it was read last. reached: what `folded` has. ends: of the log, by source, when it was folded last.
    """

    stored: StoredRow = field(default_factory=lambda: StoredRow(None, {}))
    reached: StoredRow = field(default_factory=lambda: StoredRow(None, {}))
    folded: State | None = None
    has_later: bool = False
    ends: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class RowFolder:
    """Folds rows of one generation again. rows: by store. on_progress: called with records (done, total)."""

    target: Target
    settings: LogSettings
    log: EventLog
    engine: Engine
    rows: Mapping[str, SingleRows]
    on_progress: Callable[[int, int], None] = lambda _done, _total: None

    def fold(self, key: str, streams: Collection[str] | None, *, write: bool = False) -> list[FoldedRow]:
        """Compare a row with the log in each store, and replace it if it differs and `write` is true.

        streams: those that have all events of the row; None: the whole log is read. It is exact while loaders write:
        the ledger of the row's patches says which events the row has, and it is replaced only if none came since.

        Raises StoreUnavailable, LogUnavailable, GenerationMissing, BulkLoadFailed, and Unloadable if a store cannot
        hold the row.
        """
        rows = {name: _Row() for name in self.rows}
        found = self._turn(rows, key, streams, write=write)
        for name in [each for each in rows if each not in found]:
            found[name] = self._again(name, rows[name], key, streams, write=write)
        return [found[name] for name in rows]

    def _again(self, name: str, row: _Row, key: str, streams: Collection[str] | None, *, write: bool) -> FoldedRow:
        """The result in one store whose row changed meanwhile: only what has come since is read, so it is soon sure."""
        for _ in range(TURNS):
            if found := self._turn({name: row}, key, streams, write=write):
                return found[name]
            time.sleep(PAUSE_S)
        return FoldedRow(name, "undecided", row.folded)

    def _turn(
        self,
        rows: Mapping[str, _Row],
        key: str,
        streams: Collection[str] | None,
        *,
        write: bool,
    ) -> dict[str, FoldedRow]:
        """Read the row in these stores, fold what they have applied, and return the results that are sure."""
        for name, row in rows.items():
            row.stored = self.rows[name].read(self.target, key)
        ends = ends_of(self.log, self._sources(streams))  # after the rows: they have none beyond
        for row in rows.values():
            if row.ends and self._erases(row.ends, ends):
                row.folded, row.reached = None, StoredRow(None, {})
            row.ends = ends
        self._read(rows, key, streams, ends)
        found = {name: self._settled(name, key, row, write=write) for name, row in rows.items()}
        return {name: each for name, each in found.items() if each is not None}

    def _sources(self, streams: Collection[str] | None) -> list[str]:
        if streams is None:
            return sources([self.target.view], self.settings)
        partitions = sorted({partition_of(each, self.settings.partitions) for each in streams})
        return [source_id(EVENTS, each) for each in partitions]

    def _read(
        self, rows: Mapping[str, _Row], key: str, streams: Collection[str] | None, ends: Mapping[str, int]
    ) -> None:
        """Fold what the stores have applied since they were read the last time."""
        view = self.target.view
        # the last event is read again: it may have several patches
        starts = {
            source: min(
                row.reached.applied[source].offset if source in row.reached.applied else 0 for row in rows.values()
            )
            for source in ends
        }
        ranges: Ranges = read_by(view, {each: (min(starts[each], end), end) for each, end in ends.items()})
        for row in rows.values():
            row.has_later = False
        load = Load(view, ranges, [], self.on_progress)
        for patch in self.engine.row_patches(load, {key}, streams):
            if patch.key != key:
                continue
            for row in rows.values():
                if not row.stored.has(patch.source, patch.place):
                    row.has_later = True
                elif not row.reached.has(patch.source, patch.place):
                    row.folded = {} if row.folded is None else row.folded
                    view.layout.combine(row.folded, patch.fields)
        for row in rows.values():
            row.reached = row.stored

    def _settled(self, name: str, key: str, row: _Row, *, write: bool) -> FoldedRow | None:
        """The result in one store; None if it must be looked at again."""
        view, rows = self.target.view, self.rows[name]
        folded = None if row.folded is None else rows.as_read(row.folded)
        differing = difference(_comparable(row.stored.state), _comparable(folded), view.layout.json_texts)
        if differing is None:
            return FoldedRow(name, "equal", folded)
        if row.has_later and topics_compacted(view.topics):
            return None  # the record that made the row may be gone, because a later one has replaced it
        if not write:
            return FoldedRow(name, "differs", folded, differing)
        if rows.replace(self.target, key, row.stored, row.folded):
            return FoldedRow(name, "replaced", folded, differing)
        return None

    def _erases(self, before: Mapping[str, int], ends: Mapping[str, int]) -> bool:
        """Whether an event was erased meanwhile, which may have been folded."""
        return any(
            record.value is None
            for source, end in ends.items()
            if topic_and_partition(source)[0] == EVENTS
            for record in self.log.read(*topic_and_partition(source), before[source], end)
        )


def _comparable(state: State | None) -> State | None:
    """Without the mark of a row that is not deleted, which some stores have and others do not."""
    if state is None or state.get(DELETED):
        return state
    return {name: value for name, value in state.items() if name != DELETED}


def topics_compacted(topics: Collection[str]) -> bool:
    """Whether a view reads topics in which a record replaces an earlier one: those of captured tables."""
    return any(each != EVENTS for each in topics)
