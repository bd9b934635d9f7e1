"""Rows in the tests of processes: as changes that Debezium has captured, and as records of the topics of views."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import orjson

from headwater.commands.declaring.row_inputs import Row, RowDeleted
from headwater.commands.declaring.view_rows import ViewRow
from headwater.commands.reacting.captured_rows import CapturedRows
from headwater.commands.reacting.published_rows import PublishedRows
from headwater.commands.reacting.row_changes import RowChange
from headwater.eventlog.capturing.changes import Change, Operation, key_as_text
from headwater.eventlog.capturing.declaring import Captured
from headwater.eventlog.capturing.positions import WalPosition
from headwater.eventlog.envelope import Envelope, encode, timestamp_ms
from headwater.eventlog.ports import EventLog, Record

ROW: Final = "row"
"""The key of rows of a view whose class does not say it."""
KEY_COLUMN: Final = "key"


def change_of(log: EventLog, seen: Row | RowDeleted[Any], time: datetime, number: int, key: str = ROW) -> RowChange:
    """The change that says this of a row. number: counts changes. key: of a row of a view without a column `key`."""
    table = seen.table if isinstance(seen, RowDeleted) else type(seen)
    if issubclass(table, Captured):
        return _captured(log, table, seen, time, number)
    return PublishedRows().changed(_published(table, seen, time, number, key))


def _captured(
    log: EventLog, table: type[Captured], seen: Row | RowDeleted[Any], time: datetime, number: int
) -> RowChange:
    if isinstance(seen, RowDeleted):
        row, operation = None, Operation.DELETE
        key = [seen.key] if len(table.key) == 1 else orjson.loads(seen.key)
    else:
        row, operation = seen.model_dump(mode="json", by_alias=True), Operation.UPDATE
        key = [row[column] for column in table.key]
    at, position = timestamp_ms(time), WalPosition(number, number, order=1, transaction=1)
    record_key = orjson.dumps(dict(zip(table.key, key, strict=True))).decode()
    change = Change(operation, key_as_text(key), row, position=position, time_ms=at)
    return CapturedRows(log, table).changed(change, Record(table.topic(), 0, number, record_key, None, at))


def _published(table: type[ViewRow], seen: Row | RowDeleted[Any], time: datetime, number: int, key: str) -> Record:
    topic, at = table.topic(), timestamp_ms(time)
    if isinstance(seen, RowDeleted):
        return Record(topic, 0, number, seen.key, None, at)
    row = seen.model_dump(mode="json", by_alias=True)
    for column in table.json_columns:
        row[column] = None if row[column] is None else orjson.dumps(row[column]).decode()
    key = str(row.get(KEY_COLUMN, key))
    envelope = Envelope(f"{table.view}@1.g1/{key}@{number}", topic, key, time, row)
    return Record(topic, 0, number, key, encode(envelope), at)
