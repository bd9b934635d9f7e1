"""What views read of an event of any version, and why they may not be able to."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.history import History, version_problem
from headwater.eventlog.envelope import Envelope
from headwater.projections.table.changes import Absent
from headwater.projections.table.fold_plan import FoldPlan, Lift
from headwater.projections.table.items import Required
from headwater.projections.table.json_text import dumps
from headwater.projections.table.rows import CapturedRow
from headwater.projections.table.types import ColumnType, field_types, fitting

EventClass = type[Event]


class Unreadable(ValueError):
    """A record is no event or change, or none that the view can read; the message says why, like the live query."""


@dataclass(frozen=True)
class EventFields:
    """What is read of an event; it can be pickled to other processes.

    type, version: the current ones. kinds: of the fields, by name. older: the versions that recorded one of them in
    another way. history: of the event.
    """

    type: str
    version: int
    kinds: Mapping[str, ColumnType]
    older: frozenset[int]
    history: History

    @classmethod
    def of(cls, event: EventClass, lifts: Sequence[Lift]) -> EventFields:
        """What these read of an event together."""
        types, names = field_types(event), sorted({name for lift in lifts for name in lift.fields})
        older = event.history.changed(names)
        return cls(event.type, event.version, {name: types[name] for name in names}, older, event.history)

    def upcast(self, data: Mapping[str, Any], version: int) -> Mapping[str, Any]:
        """The data of a version with the fields of the current one; raises Unreadable."""
        if version not in self.older:
            return data
        try:
            return self.history.upcast(version, data)
        except ValueError as error:
            raise Unreadable(f'"{self.type}" cannot be read: {error}') from error

    def read(self, envelope: Envelope, required: Sequence[Required]) -> dict[str, Any]:
        """The fields of an event of any version, as Spark reads them (see `types.fitting`); raises Unreadable."""
        reason = version_problem(self.type, envelope.data_version, self.version)
        if reason is not None:
            raise Unreadable(reason)
        recorded: Mapping[str, Any] = envelope.data
        if envelope.data_version in self.older:  # integers of more than 64 bits are floats, as elsewhere
            recorded = self.upcast(orjson.loads(dumps(recorded)), envelope.data_version)
        data = {name: fitting(recorded.get(name), kind) for name, kind in self.kinds.items()}
        lacking = [
            str(field)
            for field in sorted(required, key=str)
            if (data.get(field) is None if isinstance(field, str) else field.is_missing(recorded))
        ]
        if lacking:
            raise Unreadable(f'"{self.type}" lacks a field, or has it with another type: {", ".join(lacking)}')
        return data


def rows_of(plan: FoldPlan, envelope: Envelope) -> tuple[str, ...]:
    """Keys of the rows that the event changes, one per patch; empty if the view does not or cannot read it.

    The view's `where` is not applied: a row may be named that the event does not change.
    """
    lift = plan.lift_of(envelope.type)
    if lift is None:
        return ()
    try:
        return lift.keys(_data([lift], envelope), envelope)
    except Unreadable:
        return ()


def problem(plans: Sequence[FoldPlan], envelope: Envelope) -> str | None:
    """Why some of the views, which handle the event by name, cannot read it; None if all can."""
    try:
        _data([plan.lifts[plan.recorded[envelope.type]] for plan in plans if envelope.type in plan.recorded], envelope)
    except Unreadable as error:
        return str(error)
    return None


def _data(lifts: Sequence[Lift], envelope: Envelope) -> Mapping[str, Any]:
    """What these read of the event; raises Unreadable."""
    event = lifts[0].event if lifts else None
    if event is None:
        return envelope.data
    if issubclass(event, CapturedRow):
        return row_data(event.type, {name for lift in lifts for name in lift.fields}, envelope)
    return _fields(event, tuple(lifts)).read(envelope, list({field for lift in lifts for field in lift.required}))


@lru_cache(maxsize=1_000)
def _fields(event: type[Event], lifts: tuple[Lift, ...]) -> EventFields:
    return EventFields.of(event, lifts)


def row_data(row_type: str, names: Collection[str], envelope: Envelope) -> Mapping[str, Any]:
    """The data of a change of a row, of which these columns are read; raises Unreadable."""
    unfit = sorted(name for name in names if envelope.data.get(name) is Absent.UNFIT)
    if unfit:
        raise Unreadable(lacking_columns(row_type, ", ".join(unfit)))
    return envelope.data


def lacking_columns(event_type: str, names: str) -> str:
    """The reason why a change of a captured row cannot be read."""
    return f'"{event_type}" lacks a column, or has it with another type: {names}'
