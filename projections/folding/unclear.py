"""Records that compiled source does not read: what the reference makes of them, or why nobody can read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.times import is_outside, is_time
from headwater.eventlog.envelope import SPEC_VERSION, Envelope, Position
from headwater.eventlog.source_positions import topic_and_partition
from headwater.projections.folding.fold_records import UnclearRecord
from headwater.projections.folding.program import OnlySpark
from headwater.projections.table import reference
from headwater.projections.table.changes import NotAChange, RecordPlace, TableReader, envelope_of
from headwater.projections.table.event_data import problem
from headwater.projections.table.expressions import Source
from headwater.projections.table.fold_plan import Lift
from headwater.projections.table.item_lists import list_in
from headwater.projections.table.json_text import as_text, loads
from headwater.projections.table.patch import Patch
from headwater.projections.table.rows import row_of
from headwater.projections.table.types import ColumnType, field_types
from headwater.projections.table.view import TableView


class Unreadable(ValueError):
    """A record is not an event, or not one that the view can read; the message says why, like the live query."""


def patches(view: TableView, record: UnclearRecord) -> list[Patch]:
    """The patches of a record, read as leniently as the live query does.

    Raises Unreadable, and OnlySpark if only Spark knows how it reads the record.
    """
    topic, partition = topic_and_partition(record.source)
    table = view.tables.get(topic)
    if table is not None:
        names = view.plan.lifts[row_of(table)].fields
        envelope = _change_in(
            TableReader.of(table, names), record, RecordPlace(topic, partition, record.offset, record.timestamp_ms)
        )
    else:
        envelope = event_in(record)
        _check_times(view, envelope, record)
    reason = problem([view.plan], envelope)
    if reason is not None:
        raise Unreadable(reason)
    text = (record.value or b"").decode()
    source = Source(envelope, Position(partition, record.offset), record.timestamp_ms, text, topic)
    try:
        return reference.lift(view, source)
    except (ValueError, OverflowError) as error:  # a value that no check knows must not end a rebuild
        raise Unreadable(f'"{envelope.type}" cannot be read: {type(error).__name__}: {error}') from error


def _change_in(table: TableReader, record: UnclearRecord, place: RecordPlace) -> Envelope:
    """The change in a record of a captured table, or of the topic of a view; raises Unreadable."""
    try:
        return envelope_of(table, place, record.key, record.value)
    except NotAChange as error:
        raise Unreadable(str(error)) from error
    except ValueError as error:
        raise OnlySpark(f"record {record.source}:{record.offset} is read by the live query only: {error}") from error


def event_in(record: UnclearRecord) -> Envelope:
    """The event in a record; raises Unreadable."""
    try:
        text = (record.value or b"").decode()
    except UnicodeDecodeError as error:
        raise Unreadable("not an event: the record is not UTF-8 text") from error
    document = _document(record, text)
    if _text(document.get("specversion")) != SPEC_VERSION:
        raise Unreadable(f'not an event: "specversion" is not "{SPEC_VERSION}"')
    texts = {name: _text(document.get(name)) for name in ("id", "type", "subject")}
    for name, found in texts.items():
        if not found:
            raise Unreadable(f'not an event: "{name}" is missing')
    sequence, version = (_integer(document.get(name)) for name in ("sequence", "dataversion"))
    if sequence < 1:
        raise Unreadable('not an event: "sequence" is missing, or less than 1')
    data = document.get("data")
    return Envelope(
        texts["id"] or "",
        texts["type"] or "",
        texts["subject"] or "",
        datetime.fromtimestamp(record.timestamp_ms / 1000, UTC),
        data if isinstance(data, dict) else {},
        data_version=version,
        sequence=sequence,
    )


def _document(record: UnclearRecord, text: str) -> dict[str, Any]:
    try:
        document = loads(text.encode())
    except ValueError:
        if text.lstrip().startswith("{"):  # Spark also reads some texts that are no JSON, such as single quotes
            raise OnlySpark(f"record {record.source}:{record.offset} is malformed JSON") from None
        document = None
    if not isinstance(document, dict) or document.get("specversion") is None:
        raise Unreadable('not an event: malformed JSON, or no "specversion"')
    return document


def _check_times(view: TableView, envelope: Envelope, record: UnclearRecord) -> None:
    """Raise OnlySpark if a time is written in another way than RFC 3339: Spark reads some of these."""
    lift = view.plan.lift_of(envelope.type)
    if lift is None or lift.event is None or envelope.data_version != lift.event.version:
        return
    for path, found in _times(lift, lift.event, envelope.data):
        if found is not None and not is_time(found) and not is_outside(found):
            raise OnlySpark(f'record {record.source}:{record.offset} has the time {found!r} in "{path}"')


def _times(lift: Lift, event: type[Event], data: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    kinds = field_types(event)
    for name in lift.fields:
        if kinds[name] is ColumnType.TIME:
            yield name, data.get(name)
    for each in lift.items:
        if each.kind(event) is ColumnType.TIME:
            for item in list_in(data, each.list) or ():
                yield f"{each.list}[].{each.name}", item.get(each.name) if isinstance(item, dict) else None


def _text(value: Any) -> str | None:
    """Spark reads any value as text."""
    return None if value is None else as_text(value)


def _integer(value: Any) -> int:
    return value if type(value) is int and abs(value) < 2**63 else 0
