"""The rows of a view after the events of a test, and checks that they do not depend on the order of combining."""

from __future__ import annotations

import hashlib
import inspect
import os
import random
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, overload

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
from headwater.projections.reading.reader import finish, fold, is_deleted, lift, states
from headwater.projections.registry import ViewRegistry
from headwater.projections.stream.view import StreamView, late_rows, late_view
from headwater.projections.table.changes import key_text, values_of
from headwater.projections.table.event_data import problem
from headwater.projections.table.expressions import Source
from headwater.projections.table.json_text import dumps, json_value, loads, with_json
from headwater.projections.table.lookups import looked_up_types
from headwater.projections.table.monoids import State
from headwater.projections.table.rows import Deleted, row_of
from headwater.projections.table.view import TableView
from headwater.projections.view import View

START = datetime(2026, 1, 1, tzinfo=UTC)
SEED: Final = "HEADWATER_SEED"
"""The environment variable that repeats a random run."""
PARTITIONS: Final = 3


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
        {name: _opened(view, name, value) if name in view.personal else value for name, value in row.items()}
        for row in rows.values()
    ]
    return dict(zip(rows, with_json(opened, view.json_forms, made, stored=[*rows.values()]), strict=True))


def _opened(view: View, column: str, value: Any) -> Any:
    texts = view.sealed_in(column, value)
    return changed_texts(value, lambda text: installed().open(text) if text in texts else text)


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
    if now is not None and now.tzinfo is None:
        raise ValueError(f"now={now!r} has no zone: write it like datetime(2026, 1, 31, tzinfo=UTC)")
    sources = sources_of([view, *others], given)
    now = now or max((source.envelope.time for source in sources), default=START)
    views = {other.name: other for other in (view, *others)}
    rows = _folded(view, with_rows(view, views, sources), now)
    if not view.lookups or not others:
        return rows
    looked_up_types(view, views)
    tables = {name: _folded(other, with_rows(other, views, sources), now) for name, other in views.items()}
    return {key: row | _looked_up(view, row, tables) for key, row in rows.items()}


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
        kind = next((view.plan.recorded[envelope.type] for view in views if envelope.type in view.plan.recorded), None)
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
    sources_found = list(sources)
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
            sources_found.append(Source(what, Position(0, offset), timestamp_ms(START), "", topic))
    return sources_found


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


def seed_of_run() -> int:
    """What SEED says, or one by chance."""
    return int(os.environ.get(SEED) or random.SystemRandom().randrange(2**32))


def differences(expected: Mapping[str, Any], actual: Mapping[str, Any], one: str, other: str) -> Iterable[str]:
    """Lines for each key whose rows differ. one, other: how each came about."""
    width = max(len(one), len(other))
    for key in sorted(expected.keys() | actual.keys()):
        if expected.get(key) != actual.get(key):
            yield f"  {key!r}: {one:{width}} {expected.get(key)!r}"
            yield f"  {' ' * len(repr(key))}  {other:{width}} {actual.get(key)!r}"


@overload
def check_any_order(view: TableView, *given: Happened | Change, tries: int | None = None) -> None: ...


@overload
def check_any_order(view: StreamView, *given: GivenToStream, tries: int | None = None) -> None: ...


def check_any_order(view: TableView | StreamView, *given: Any, tries: int | None = None) -> None:
    """Check that the rows of `view` do not depend on how what was given is combined.

    Of a table view, streams are in several partitions. `tries` times (50), the patches are split into random parts, and
    the parts combined in a random order, as loaders and replays do. A stream view reads its records `tries` times (3)
    in random batches, and must have the rows that it has after one. Raises AssertionError with the rows that differ and
    the seed; set HEADWATER_SEED to it to repeat the run. Raises the errors of `rows_of` for invalid events.
    """
    __tracebackhide__ = True
    if isinstance(view, StreamView):
        from headwater.projections.testing import streams  # noqa: PLC0415 - Spark

        streams.check_batches(view, given, seed_of_run(), streams.TRIES if tries is None else tries)
    else:
        check_sources(view, sources_of([view], given, PARTITIONS), seed_of_run(), 50 if tries is None else tries)


def check_sources(view: TableView, sources: Sequence[Source], seed: int, tries: int = 1) -> None:
    """Like `check_any_order`, for events that are already in a log; the same for the same seed."""
    __tracebackhide__ = True
    chance = random.Random(seed)
    expected = _shown(view, states(view, sources))
    for _ in range(tries):
        actual = _shown(view, combined_anyhow(view, sources, chance))
        if actual != expected:
            lines = "\n".join(differences(expected, actual, "in the order of the log", "in another"))
            raise AssertionError(
                f'"{view.name}" has other rows if its events are combined in another order ({SEED}={seed} repeats it)\n'
                + lines
            )


def combined_anyhow(view: TableView, sources: Iterable[Source], chance: random.Random) -> dict[str, State]:
    """The state of every row, its patches stored as JSON and combined in random parts, in a random order."""
    parts = [
        (patch.key, orjson.loads(orjson.dumps(patch.fields))) for source in sources for patch in lift(view, source)
    ]
    chance.shuffle(parts)
    while len(parts) > len({key for key, _ in parts}):
        key, left = parts.pop(0)
        right = next((at for at, (other, _) in enumerate(parts) if other == key), None)
        whole: State = {}
        for part in (left, *([] if right is None else [parts.pop(right)[1]])):
            view.layout.combine(whole, part)
        parts.insert(chance.randrange(len(parts) + 1), (key, whole))
    rows: dict[str, State] = {}
    for key, part in parts:
        view.layout.combine(rows.setdefault(key, {}), part)
    if view.layout.retraction is not None:
        groups = filter(None, map(view.layout.retraction.group, list(rows.values())))
        for key, added in groups:
            view.layout.combine(rows.setdefault(key, {}), added)
    return rows


def _shown(view: TableView, rows: dict[str, State]) -> dict[str, Any]:
    """The visible columns by key; None if the row is deleted. A group without members may never have been a row."""
    if view.layout.retraction is not None:
        rows = {key: row for key, row in rows.items() if not is_deleted(row)}
    return {key: None if is_deleted(row) else finish(view, key, row) for key, row in rows.items()}
