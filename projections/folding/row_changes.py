"""How events have made a row of a table view: the row before and after each, as the reference implementation has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.registry import AnyAggregate
from headwater.eventlog.envelope import Envelope, Position, decode, timestamp_ms
from headwater.eventlog.errors import NotAnEnvelope
from headwater.eventlog.ports import Record
from headwater.eventlog.source_positions import source_id
from headwater.projections.kinds import table_view
from headwater.projections.reading.reader import LogRecord, finish, is_deleted, lift, patches_of
from headwater.projections.stores.ledgers import combined
from headwater.projections.table.expressions import Field, FromEnvelope, Source
from headwater.projections.table.fold_plan import Lift
from headwater.projections.table.json_text import json_value, with_json
from headwater.projections.table.monoids import State
from headwater.projections.table.row_keys import KeyParts
from headwater.projections.table.rows import is_row
from headwater.projections.table.view import TableView
from headwater.projections.view import View

Row = Mapping[str, Any]


@dataclass(frozen=True)
class RowChange:
    """What one event did to a row.

    before, after: the visible columns, with the values of JSON texts; None if there is no such row. columns: those that
    differ, such as 1 and 1.0 in a JSON text, which are equal in Python.
    """

    event: Envelope
    position: Position
    before: Row | None
    after: Row | None
    columns: Sequence[str]


class RowChanges:
    """Folds the events of one row; add them in the order of the log, or of their stream."""

    def __init__(self, view: View, key: str) -> None:
        """Raises TypeError if the view is not folded: Spark makes the rows of a stream view."""
        self._view, self._key = table_view(view), key
        self._state: State = {}
        self._stored: Row | None = None
        self.row: Row | None = None
        """The row after all events so far, with the values of JSON texts."""

    def add(self, position: Position, record: bytes) -> RowChange | None:
        """What a record of `events` does to the row; None if it does nothing, or is no event that can be read."""
        try:
            event = decode(record)
        except NotAnEnvelope:
            return None
        source = Source(event, position, timestamp_ms(event.time), record.decode())
        patches = [row_patch for row_patch in lift(self._view, source) if row_patch.key == self._key]
        if not patches:
            return None
        before, stored = self.row, self._stored or {}
        for patch in patches:
            with suppress(OverflowError):  # a patch that every store refuses changes nothing
                self._state = combined(self._view.layout, {self._key: self._state}, [patch])[self._key]
        self._stored = None if is_deleted(self._state) else finish(self._view, self._key, self._state)
        self.row = None if self._stored is None else _with_values(self._view, self._stored)
        now = self._stored or {}
        columns = [name for name in {**stored, **now} if stored.get(name) != now.get(name)]
        return RowChange(event, position, before, self.row, columns)


def shown_row(view: View, key: str, state: State | None) -> Row | None:
    """The visible columns of a row with this state, with the values of JSON texts; None if there is no such row.

    Raises TypeError, as RowChanges.
    """
    folded = table_view(view)
    if state is None or is_deleted(state):
        return None
    return _with_values(folded, finish(folded, key, state))


def _with_values(view: TableView, row: Row) -> Row:
    """The row with the values of its JSON texts."""
    (shown,) = with_json([row], view.json_forms, json_value)
    return shown


def rows_of_record(view: View, record: Record) -> frozenset[str] | None:
    """The keys of the rows that a record of one of its sources changes; None for a real-time view.

    Raises Unreadable if it is no event or row that the view can read.
    """
    if view.has_own_query:
        return None
    key = record.key.encode(errors="surrogateescape")
    logged = LogRecord(record.offset, record.timestamp_ms, key, record.value)
    row_patches = patches_of(table_view(view), source_id(record.topic, record.partition), logged)
    return frozenset(row_patch.key for row_patch in row_patches)


def streams_of_row(view: View, key: str, aggregates: Iterable[AnyAggregate]) -> list[str] | None:
    """The streams that have all events of a row; None if the key does not tell, so that the log must be read.

    aggregates: all that are declared.
    """
    if view.has_own_query or view.tables:
        return None
    plan, stream_names = table_view(view).plan, dict[str, None]()
    for case, row in plan.lifts.items():
        event = plan.events.get(getattr(case, "type", ""))
        if event is not None and is_row(event):
            return None
        streams = _streams_of(row, event, key, aggregates)
        if streams is None:
            return None
        stream_names |= dict.fromkeys(streams)
    return list(stream_names)


def _streams_of(
    effect: Lift, event: type[Event] | None, key: str, aggregates: Iterable[AnyAggregate]
) -> list[str] | None:
    """The same for one of the view's events."""
    if len(effect.rows) > 1:  # another stream may change the row
        return None
    match effect.rows[0].key:
        case FromEnvelope(name="stream"):
            return [key]
        case FromEnvelope(name="id"):
            return [key.rpartition("/")[0]]
        case Field(name=name) if event is not None:
            declaring = [aggregate for aggregate in aggregates if event.type in aggregate.events]
            if declaring and all(aggregate.identity.names == (name,) for aggregate in declaring):
                return [f"{aggregate.name}/{key}" for aggregate in declaring]
        case KeyParts(names=names) as parts if event is not None:
            declaring = [aggregate for aggregate in aggregates if event.type in aggregate.events]
            parts_found = parts.parts_of(key)
            if (
                parts_found
                and declaring
                and all(set(aggregate.identity.names) == set(names) for aggregate in declaring)
            ):
                return [f"{aggregate.name}/{aggregate.identity.of_data(parts_found)}" for aggregate in declaring]
    return None
