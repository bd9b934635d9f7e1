"""Rows in the tests of processes: as changes that Debezium has captured."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import orjson

from commands.declaring.captured_inputs import RowDeleted
from eventlog.capturing.changes import Change, Operation, key_as_text
from eventlog.capturing.declaring import Captured
from eventlog.capturing.postgres.positions import WalPosition
from eventlog.envelope import timestamp_ms
from eventlog.ports import Record


def change_of(seen: Captured | RowDeleted[Any], time: datetime, number: int) -> tuple[Change, Record]:
    """The change that says this of a row, and its record, of which only the key is there. number: counts changes."""
    if isinstance(seen, RowDeleted):
        table, row, operation = seen.table, None, Operation.DELETE
        key = [seen.key] if len(table.key) == 1 else orjson.loads(seen.key)
    else:
        table, row, operation = type(seen), seen.model_dump(mode="json", by_alias=True), Operation.UPDATE
        key = [row[column] for column in table.key]
    at, position = timestamp_ms(time), WalPosition(number, number, order=1, transaction=1)
    record_key = orjson.dumps(dict(zip(table.key, key, strict=True))).decode()
    change = Change(operation, key_as_text(key), row, position=position, time_ms=at)
    return change, Record(table.topic(), 0, number, record_key, None, at)
