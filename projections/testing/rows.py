"""The rows of a view after events that a test gives, as the reference folds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from commands.testing.past import Happened, Past
from eventlog.envelope import Position, decode
from projections.table.event_data import problem
from projections.table.expressions import Source
from projections.table.lookups import looked_up_types
from projections.table.reference import fold
from projections.table.view import TableView

Row = Mapping[str, Any]


def rows_of(view: TableView, *events: Happened, others: Sequence[TableView] = ()) -> dict[str, dict[str, Any]]:
    """The visible rows of `view` after `events`, by key; values are as the API shows them, times as text.

    events: in the order of the log. Each may be `recorded(…)` by an older version of the code, or `at(…)` a time (both
    of `commands.testing`); one without a time happens when the one before it did, the first at the start of 2026. Those
    that the view does not handle are passed over.
    others: the views that this one looks columns up in. Without them these columns are left out.

    Raises ValueError for an event that the view could not read, which is a dead letter in production, and for a lookup
    in a view that is not among `others`; UnreadableEvent for an event that does not fit its type.
    """
    sources = sources_of([view, *others], events)
    rows = fold(view, sources)
    if not others:
        return rows
    views = {each.name: each for each in (view, *others)}
    looked_up_types(view, views)
    tables = {name: fold(each, sources) for name, each in views.items()}
    return {key: row | _looked_up(view, row, tables) for key, row in rows.items()}


def sources_of(views: Sequence[TableView], events: Sequence[Happened], partitions: int = 1) -> list[Source]:
    """The events as the log would hold them; raises ValueError if one of `views` could not read one."""
    past = Past(partitions)
    sources = []
    for event in events:
        record = past.add(event)
        envelope = decode(record.value)
        for view in views:
            if reason := problem([view], envelope):
                raise ValueError(f'"{view.name}" cannot read the event, which would be a dead letter: {reason}')
        text = (record.value or b"").decode()
        sources.append(Source(envelope, Position(record.partition, record.offset), record.timestamp_ms, text))
    return sources


def _looked_up(view: TableView, row: Row, tables: Mapping[str, Mapping[str, Row]]) -> dict[str, Any]:
    """The columns that a row shows of others; null if there is no such row."""
    return {
        name: tables[lookup.view].get(row[lookup.on], {}).get(lookup.columns[name])
        for name, lookup in view.looked_up.items()
    }
