"""Patches of a table view outside of the live query, and its rows in memory, which all else is checked against."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from headwater.eventlog.letters import Letter as DeadLetter
from headwater.eventlog.source_positions import source_id
from headwater.projections.reading.compiled import compiled
from headwater.projections.reading.fold_records import ALWAYS, Erased, Folder, LiftedView, Times
from headwater.projections.reading.program import decoders
from headwater.projections.reading.records import Letter, Recorded
from headwater.projections.table.event_data import Unreadable
from headwater.projections.table.expressions import Source
from headwater.projections.table.fold_plan import FoldPlan
from headwater.projections.table.layout import DELETED
from headwater.projections.table.monoids import State
from headwater.projections.table.patch import Patch
from headwater.projections.table.view import TableView
from headwater.projections.view import View

_LOCK = threading.Lock()


class LogRecord(NamedTuple):
    """A record of the log, as `Folder` reads it."""

    at: int
    timestamp_ms: int
    recorded_key: bytes | None
    recorded_value: bytes | None

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return 0, self.timestamp_ms

    def key(self) -> bytes | None:
        return self.recorded_key

    def value(self) -> bytes | None:
        return self.recorded_value


class Reader:
    """Makes the patches of one view; only one thread may use it."""

    def __init__(self, view: TableView, times: Times = ALWAYS, erased: Erased | None = None) -> None:
        """times, erased: of the records to read, and those to leave out."""
        self._folder = Folder(LiftedView, decoders([view]), [compiled(view)], times, erased)

    def read(self, source: str, records: Sequence[Recorded]) -> tuple[list[tuple[Recorded, Patch]], list[Letter]]:
        """The patches of records of one source, each with its record, and the dead letters of unreadable records."""
        (view,) = self._folder.views
        self._folder.add(source, records)
        letters, view.letters, view.poison = view.letters, [], 0
        return view.drain(source), letters

    def lift(self, given: Source) -> list[Patch]:
        """The patches of an event or change that is decoded already; raises Unreadable."""
        (view,) = self._folder.views
        place, key = given.position, given.envelope.id.encode()
        record = LogRecord(place.offset, given.timestamp_ms, key, given.record.encode())
        try:
            self._folder.take(given.topic, place.partition, given.envelope, record)
        finally:
            row_patches = view.drain(source_id(given.topic, place.partition))
        return [patch for _, patch in row_patches]


_READERS: WeakKeyDictionary[FoldPlan, Reader] = WeakKeyDictionary()


def _reader(view: TableView) -> Reader:
    reader = _READERS.get(view.plan)
    if reader is None:
        reader = _READERS[view.plan] = Reader(view)
    return reader


def patches_of(view: TableView, source: str, record: Recorded) -> list[Patch]:
    """The patches of one record; raises Unreadable."""
    with _LOCK:
        row_patches, letters = _reader(view).read(source, [record])
    if letters:
        raise Unreadable(DeadLetter.from_json(letters[0].text).reason)
    return [patch for _, patch in row_patches]


def lift(view: TableView, given: Source) -> list[Patch]:
    """The patches that one event or change makes of a view's rows, in order.

    None if the view does not handle it, or cannot read it: then it becomes a dead letter (see `event_data.problem`).
    """
    with _LOCK:
        try:
            return _reader(view).lift(given)
        except Unreadable:
            return []


def is_deleted(row: State) -> bool:
    """Whether the row is deleted."""
    return bool(row.get(DELETED))


def finish(view: View, key: str, row: State) -> dict[str, Any]:
    """The visible columns of a row, the key first."""
    return {view.key_name: key} | {name: shown.value(row) for name, shown in view.layout.shown.items()}


def states(view: TableView, sources: Iterable[Source]) -> dict[str, State]:
    """The state of every row after `sources`, including deleted rows, by key."""
    rows: dict[str, State] = {}
    for source in sources:
        for patch in view.layout.with_groups(lift(view, source), rows):
            view.layout.combine(rows.setdefault(patch.key, {}), patch.fields)
    return rows


def remaining(sources: Iterable[Source], tombstones: Mapping[tuple[int, str], int]) -> list[Source]:
    """The events that no later tombstone erases, which a replay folds.

    tombstones: the offset of the last one, by partition and key.
    """
    return [
        source
        for source in sources
        if source.position.offset > tombstones.get((source.position.partition, source.envelope.id), -1)
    ]


def fold(view: TableView, sources: Iterable[Source]) -> dict[str, dict[str, Any]]:
    """Every visible row after `sources`, by key."""
    return {key: finish(view, key, row) for key, row in states(view, sources).items() if not is_deleted(row)}
