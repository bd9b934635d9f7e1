"""The rows of a view after the events of a test, folded by the reference implementation, as the API answers them."""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, overload

import orjson
from msgspec import structs

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.row_inputs import RowDeleted
from headwater.commands.declaring.view_rows import ViewRow
from headwater.commands.testing.past import GivenToStream, Happened, Past
from headwater.eventlog.capturing.declaring import Captured
from headwater.eventlog.envelope import Envelope, Position, decode, encode, timestamp_ms
from headwater.eventlog.personal.installed import installed
from headwater.eventlog.personal.sealed_text import changed_texts
from headwater.projections.reading.reference import fold
from headwater.projections.registry import ViewRegistry
from headwater.projections.stream.declaring.late import late_rows, late_view
from headwater.projections.stream.declaring.view import StreamView
from headwater.projections.table.changes import key_text, values_of
from headwater.projections.table.event_data import problem
from headwater.projections.table.expressions import Source
from headwater.projections.table.json_text import dumps, json_value, loads, with_json
from headwater.projections.table.lookups import looked_up_types
from headwater.projections.table.rows import Deleted, row_of
from headwater.projections.table.view import TableView
from headwater.projections.view import View

START = datetime(2026, 1, 1, tzinfo=UTC)


def sealed_envelope(kind: type[Event], envelope: Envelope) -> Envelope:
    """An event as the log has it."""
    if kind.sealed_fields is None:
        return envelope
    data = kind.sealed_fields.sealed(loads(dumps(envelope.data).encode()), envelope.stream.partition("/")[2])
    return structs.replace(envelope, data=data)


def sealed_record(kind: type[Event], value: bytes | None) -> bytes | None:
    """The value of an event's record as the log has it."""
    if kind.sealed_fields is None or value is None:
        return value
    return encode(sealed_envelope(kind, decode(value)))


def answered_rows(
    view: View, rows: Mapping[str, dict[str, Any]], made: Callable[[str], Any] = json_value
) -> dict[str, dict[str, Any]]:
    """Stored rows as the API answers them: with opened values, and what `made` makes of JSON texts."""
    opened = [
        {name: changed_texts(each, _opened) if name in view.personal else each for name, each in row.items()}
        for row in rows.values()
    ]
    return dict(zip(rows, with_json(opened, view.json_forms, made, stored=[*rows.values()]), strict=True))


def _opened(text: str) -> Any:
    return installed().open(text)


Row = Mapping[str, Any]
Change = Captured | RowDeleted[Any]


@overload
def rows_of(
    view: TableView, *given: Happened | Change, others: Sequence[TableView] = (), now: datetime | None = None
) -> dict[str, dict[str, Any]]: ...


@overload
def rows_of(view: StreamView, *given: GivenToStream) -> dict[str, dict[str, Any]]: ...


def rows_of(
    view: TableView | StreamView, *given: Any, others: Sequence[TableView] = (), now: datetime | None = None
) -> dict[str, dict[str, Any]]:
    """The visible rows of `view` after what was given, by key; values are as the API shows them, times as text, and of
    JSON columns what Python reads of them.

    given: events in the order of the log; those that the view does not handle are ignored. Use `recorded(…)` for an
    event of an older version of the code, and `at(…)` to set its time (both from `headwater.testing`). An event without
    a time has the time of the event before it, the first one the start of 2026. An instance of a captured class, such
    as `Customer(id=1, …)`, stands for a change of that row, and `RowDeleted(Customer, "1")` for its delete.
    A stream view is given events, observations, and `heartbeat(…)` for the time when nothing came; each is accepted at
    the latest time before it. Spark runs its query over all of them, as a rebuild does; the extra `projections` has it.
    Personal values are sealed in between, as in production, and shown as to a caller who may read them.
    others: the views in the `lookups` of a table view, and those whose rows it reads. Without the former, looked-up
    columns are omitted.
    now: when the rows are read, with its zone, of a table view with `expires`. Without it, right after the last event.

    Raises ValueError for a record that the view cannot read, which is a dead letter in production, or left out by a
    stream view, and for a lookup in a view that is not in `others`; UnreadableEvent for an event that does not fit its
    type; ViewDeclarationError and StreamQueryFailed for a query that cannot work, or fails.
    """
    if isinstance(view, StreamView):
        if now is not None:
            raise ValueError(f'rows of the stream view "{view.name}" do not expire: leave out now')
        from headwater.projections.testing import streams  # noqa: PLC0415 - Spark

        return streams.stream_rows(view, [streams.records_of(given)])
    return _table_rows(view, given, others, now)


def late_rows_of(view: StreamView, *given: GivenToStream) -> dict[str, dict[str, Any]]:
    """The rows of the view of what is late for `view`, by key, likewise. Raises ValueError if it keeps none."""
    late = late_view(view)
    if late is None:
        raise ValueError(f'"{view.name}" keeps no late records: declare it with late="keep"')
    return rows_of(late, *given)


def query_digests(*modules: str) -> dict[str, str]:
    """Of each stream view of these modules, by its name and version (`"visits@2"`): a digest of the text of the module
    that has its query.

    For a test that compares them with those that are written down in it: it fails after a change of a query, so nobody
    forgets to raise the `version` of its view. What that module imports does not count.
    """
    views = [view for view in ViewRegistry.load(modules).of_kind(StreamView) if view.query is not late_rows]
    texts = {view.tag: inspect.getsource(sys.modules[view.query.__module__]) for view in views}
    return {tag: hashlib.sha256(text.encode()).hexdigest()[:16] for tag, text in texts.items()}


def _table_rows(
    view: TableView, events: Sequence[Happened | Change], others: Sequence[TableView], now: datetime | None
) -> dict[str, dict[str, Any]]:
    if now is not None and now.tzinfo is None:
        raise ValueError(f"now={now!r} has no zone: write it like datetime(2026, 1, 31, tzinfo=UTC)")
    sources = sources_of([view, *others], events)
    now = now or max((each.envelope.time for each in sources), default=START)
    views = {each.name: each for each in (view, *others)}
    rows = _folded(view, with_rows(view, views, sources), now)
    if not view.lookups or not others:
        return rows
    looked_up_types(view, views)
    tables = {name: _folded(each, with_rows(each, views, sources), now) for name, each in views.items()}
    return {key: row | _looked_up(view, row, tables) for key, row in rows.items()}


def sources_of(views: Sequence[TableView], events: Sequence[Happened | Change], partitions: int = 1) -> list[Source]:
    """The events as they would be in the log; raises ValueError if one of `views` cannot read an event."""
    past = Past(partitions)
    sources = []
    for number, event in enumerate(events):
        if isinstance(event, ViewRow) or (isinstance(event, RowDeleted) and issubclass(event.table, ViewRow)):
            name = (event.table if isinstance(event, RowDeleted) else type(event)).view
            raise ValueError(f'give what "{name}" reads, and the view itself in others=(…,), instead of its rows')
        if isinstance(event, Captured | RowDeleted):
            sources.append(_change(event, number))
            continue
        record = past.add(event)
        envelope, text = decode(record.value), (record.value or b"").decode()
        kind = next((each.plan.recorded[envelope.type] for each in views if envelope.type in each.plan.recorded), None)
        if kind is not None and kind.sealed_fields is not None:
            envelope = sealed_envelope(kind, envelope)
            text = encode(envelope).decode()
        for view in views:
            if reason := problem([view.plan], envelope):
                raise ValueError(f'"{view.name}" cannot read the event, which would be a dead letter: {reason}')
        sources.append(Source(envelope, Position(record.partition, record.offset), record.timestamp_ms, text))
    return sources


def with_rows(view: TableView, views: Mapping[str, TableView], sources: Sequence[Source]) -> list[Source]:
    """The same records, and the rows of the views that `view` reads, as their topics have them after these records.

    views: by name. Raises ValueError if one is missing, or has a row that does not fit.
    """
    found = list(sources)
    for topic, table in view.tables.items():
        if not issubclass(table, ViewRow):
            continue
        if table.view not in views:
            raise ValueError(f'"{view.name}" reads rows of the view "{table.view}": give it too, in others=(…,)')
        read = views[table.view]
        for offset, (key, row) in enumerate(fold(read, with_rows(read, views, sources)).items()):
            data = values_of([table.columns[name] for name in view.plan.lifts[row_of(table)].fields], row)
            what = Envelope(f"{topic}/0:{offset}", row_of(table).type, key, START, data, data_version=1)
            if reason := problem([view.plan], what):
                raise ValueError(f'"{view.name}" cannot read the row {key!r}, which would be a dead letter: {reason}')
            found.append(Source(what, Position(0, offset), timestamp_ms(START), "", topic))
    return found


def _folded(view: TableView, sources: Sequence[Source], now: datetime) -> dict[str, dict[str, Any]]:
    """The rows of a view that are not expired, as the API answers them."""
    rows, expiry = fold(view, sources), view.expiry
    if expiry is not None:
        rows = {key: row for key, row in rows.items() if not expiry.has_come(row[expiry.column], now)}
    return answered_rows(view, rows)


def _change(row: Change, offset: int) -> Source:
    written: dict[str, Any] = {}
    if isinstance(row, RowDeleted):
        table: type[Captured] = row.table
        key, kind = row.key, Deleted(table)
    else:
        table, kind = type(row), row_of(type(row))
        written = row.model_dump(mode="json", by_alias=True)
        key = key_text([table.columns[name] for name in table.key], orjson.dumps(written))
    what = Envelope(f"{table.topic()}/0:{offset}", kind.type, key, START, written, data_version=1)
    return Source(what, Position(0, offset), timestamp_ms(START), "", table.topic())


def _looked_up(view: TableView, row: Row, tables: Mapping[str, Mapping[str, Row]]) -> dict[str, Any]:
    """The looked-up columns of a row; null if the other row does not exist."""
    return {
        name: tables[lookup.view].get(row[lookup.on], {}).get(lookup.columns[name])
        for name, lookup in view.looked_up.items()
    }
