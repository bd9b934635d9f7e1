"""What a view reads of an event of any version, and why it may not be able to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.lineage_values import evaluate, fits
from headwater.commands.declaring.upcasting import version_problem
from headwater.eventlog.envelope import Envelope
from headwater.projections.table.changes import Absent
from headwater.projections.table.fold_plan import FoldPlan, Lift
from headwater.projections.table.json_text import as_text, canonical_text
from headwater.projections.table.rows import CapturedRow, is_row
from headwater.projections.table.types import ColumnType, exact_value, field_types, is_exact


def current_data(event: type[Event] | None, envelope: Envelope) -> Mapping[str, Any]:
    """The event's data with the fields of the current version, in JSON types; `event` None: one that no view names.

    A field with a wrong type is null; any value is a text, because Spark reads its JSON as text. Decimals are Decimals.
    """
    if event is None or not 1 <= envelope.data_version <= event.version:
        return envelope.data
    if is_row(event):
        return with_exact_values(event, envelope.data)
    return with_exact_values(event, _upcast(event, envelope))


def with_exact_values(event: type[Event], data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The data with decimals, dates and UUIDs in the form of expressions; null if they are none."""
    exact = _exact_fields(event)
    return {**data, **{name: exact_value(data.get(name), kind) for name, kind in exact.items()}} if exact else data


@lru_cache(maxsize=10_000)
def _exact_fields(event: type[Event]) -> Mapping[str, ColumnType]:
    return {name: kind for name, kind in field_types(event).items() if is_exact(kind)}


def _upcast(event: type[Event], envelope: Envelope) -> Mapping[str, Any]:
    history, made = event.history, dict(envelope.data)
    changed = history.changed(envelope.data_version, tuple(history.fields))
    for name, kind in history.fields.items():
        if name in changed:
            value = evaluate(changed[name], envelope.data)
            made[name] = value if fits(value, kind) else None
        elif kind in (int, float, bool, datetime) and not fits(made.get(name), kind):
            made[name] = None
        elif kind is str and not isinstance(made.get(name), str | None):
            made[name] = as_text(made[name])
    return made


def with_json_texts(event: type[Event] | None, data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The data with the texts in fields that are no scalars in the form of rows; see `json_text.canonical_text`."""
    texts = {name: data[name] for name in _json_fields(event) if isinstance(data.get(name), str)}
    return {**data, **{name: canonical_text(text) for name, text in texts.items()}} if texts else data


@lru_cache(maxsize=10_000)
def _json_fields(event: type[Event] | None) -> tuple[str, ...]:
    kinds = {} if event is None else field_types(event)
    return tuple(name for name, kind in kinds.items() if kind is ColumnType.JSON)


def rows_of(plan: FoldPlan, envelope: Envelope) -> tuple[str, ...]:
    """Keys of the rows that the event changes, one per patch; empty if the view does not or cannot read it.

    The view's `where` is not applied: a row may be named that the event does not change.
    """
    lift = plan.lift_of(envelope.type)
    if lift is None or problem([plan], envelope) is not None:
        return ()
    return lift.keys(current_data(lift.event, envelope), envelope)


def problem(plans: Sequence[FoldPlan], envelope: Envelope) -> str | None:
    """Why some of the views, which handle the event by name, cannot read it; None if all can."""
    lifts = [plan.lifts[plan.recorded[envelope.type]] for plan in plans if envelope.type in plan.recorded]
    event = lifts[0].event if lifts else None
    if event is None:
        return None
    if issubclass(event, CapturedRow):
        names = sorted({name for lift in lifts for name in lift.fields})
        unfit = [name for name in names if envelope.data.get(name) is Absent.UNFIT]
        return lacking_columns(event.type, ", ".join(unfit)) if unfit else None
    reason = version_problem(event.type, envelope.data_version, event.version)
    if reason is not None:
        return reason
    recorded = _upcast(event, envelope)
    data = with_exact_values(event, recorded)
    required = sorted({name for lift in lifts for name in lift.required}, key=str)
    lacking = [
        str(each)
        for each in required
        if (data.get(each) is None if isinstance(each, str) else each.is_missing(recorded))
    ]
    if lacking:
        return f'"{event.type}" lacks a field, or has it with another type: {", ".join(lacking)}'
    return None


def lacking_columns(event_type: str, names: str) -> str:
    """The reason why a change of a captured row cannot be read."""
    return f'"{event_type}" lacks a column, or has it with another type: {names}'


def is_partial(lift: Lift, envelope: Envelope) -> bool:
    """Whether the record of a row lacks a value that the view reads: another record of the row follows."""
    return is_row(lift.event) and any(envelope.data.get(name) is Absent.UNCHANGED for name in lift.fields)
