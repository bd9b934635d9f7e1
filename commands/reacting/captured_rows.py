"""What the records of a captured table say about its rows, read in the order of a partition."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Final

import orjson

from headwater.commands.reacting.row_changes import RowChange
from headwater.eventlog.capturing.changes import Change, ChangeDecoder, Operation
from headwater.eventlog.capturing.declaring import Captured
from headwater.eventlog.capturing.errors import UnreadableChange
from headwater.eventlog.heartbeats import is_heartbeat_key
from headwater.eventlog.ports import EventLog, Record

TOMBSTONE_OFFSETS: Final = 64
"""A tombstone is at most this far behind the record of its delete: only heartbeats and ends of transactions may be
between them.
"""


class CapturedRows:
    """Reads the records of the topic of a captured table; see RowReader."""

    def __init__(self, log: EventLog, table: type[Captured]) -> None:
        self._log, self._table, self._decoder = log, table, ChangeDecoder(table)
        self._deleted: Record | None = None
        """The last record that deletes a row, without tombstones."""
        self._looked_back = False

    def read(self, record: Record) -> RowChange | None:
        """See RowReader.read. Raises UnreadableChange."""
        if is_heartbeat_key(record.key):
            return None
        change = self._decode(record)
        if change.operation is Operation.TRUNCATE:
            raise UnreadableChange(self._table.table, "TRUNCATE deletes rows without naming them: run `sweep`")
        # a row that lacks a value is gone, or is read again: another record says so
        if change.unchanged or self._is_known_deletion(record, change):
            return None
        return self.changed(change, record)

    def changed(self, change: Change, record: Record) -> RowChange:
        """A change as what processes see of it. record: it may lack its value."""
        time_ms = change.time_ms or record.timestamp_ms
        values = self._decoder.key_values(_key(record)) if change.row is None else ()
        return RowChange(
            key=change.key,
            row=change.row,
            key_values=dict(zip(self._table.key, values, strict=False)),
            place=_place(change, record),
            time=datetime.fromtimestamp(time_ms / 1000, UTC),
            offset=record.offset,
        )

    def _decode(self, record: Record) -> Change:
        return self._decoder.decode(_key(record), record.value)

    def _is_known_deletion(self, record: Record, change: Change) -> bool:
        """Whether the record is a tombstone behind the delete of its row, which says the same."""
        if change.operation is Operation.DELETE:
            self._deleted, self._looked_back = record, True
        if change.operation is not Operation.TOMBSTONE:
            return False
        if not self._looked_back:
            self._look_back(record)
        known = self._deleted
        return known is not None and known.key == record.key and 0 < record.offset - known.offset <= TOMBSTONE_OFFSETS

    def _look_back(self, record: Record) -> None:
        """Find the delete that an owner before this one has routed."""
        self._looked_back = True
        start = max(0, record.offset - TOMBSTONE_OFFSETS)
        for each in self._log.read(record.topic, record.partition, start, record.offset):
            if each.key == record.key and each.value is not None and self._is_delete(each):
                self._deleted = each

    def _is_delete(self, record: Record) -> bool:
        try:
            return self._decode(record).operation is Operation.DELETE
        except UnreadableChange:
            return False  # it is a dead letter


def _place(change: Change, record: Record) -> str:
    """The place in the database: another snapshot of a row is another change."""
    position = change.position
    if position is None:
        return f"{record.partition}:{record.offset}"  # a tombstone whose delete was removed by compaction
    if change.operation is Operation.SNAPSHOT:
        # a snapshot may have the position of the change before it, so the values are in the id
        content = hashlib.blake2b(orjson.dumps(change.row, option=orjson.OPT_SORT_KEYS), digest_size=8).hexdigest()
        return f"{position}:{content}"
    return f"{position}:{position.transaction}:{position.order}"


def _key(record: Record) -> bytes:
    return record.key.encode(errors="surrogateescape")
