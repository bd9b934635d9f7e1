"""Changes of rows: read from the topics of captured tables and of views, and as what an instance of a process sees."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import orjson

from headwater.commands.declaring.row_inputs import Row, RowDeleted, RowInput, described
from headwater.commands.declaring.view_rows import ViewRow
from headwater.commands.handling.handler import LAST_TIME_MS
from headwater.eventlog.capturing.changes import Change, ChangeDecoder, Operation, key_as_text
from headwater.eventlog.capturing.declaring import Captured
from headwater.eventlog.capturing.errors import UnreadableChange
from headwater.eventlog.envelope import Envelope, decode
from headwater.eventlog.errors import NotAnEnvelope
from headwater.eventlog.heartbeats import is_heartbeat_key
from headwater.eventlog.hidden_values import error_text
from headwater.eventlog.ports import EventLog, Record

ROW: Final = "row"
KEY: Final = "key"
DELETED: Final = "deleted"
"""Start of the place of a deleted row of a view."""


class RowChange(NamedTuple):
    """A change of one row, as a record says it.

    key: of the row, as text.
    row: its columns; None if it was deleted.
    key_values: the values of the key's columns as texts, by name, as far as they are known.
    place: what distinguishes the change from others of the row, the same if it is read again; None: what the row says.
    offset: of the record.
    """

    key: str
    row: Mapping[str, Any] | None
    key_values: Mapping[str, str]
    place: str | None
    time: datetime
    offset: int

    def instance_key(self, row: RowInput) -> str | None:
        """The instance that sees the change; None if the column that names it is null."""
        if row.column is None:
            return self.key
        if self.row is None:
            return self.key_values[row.column]
        value = self.row.get(row.column)
        return None if value is None else key_as_text([value])


class RowSeen(NamedTuple):
    """What an instance remembers of a row of a view.

    content: the end of the id of the last change. number: how many changes of the row it has seen, so that a row that
    has earlier values again is a cause of its own.
    """

    content: str
    number: int

    @classmethod
    def after(cls, known: Mapping[str, RowSeen], envelope_id: str) -> tuple[str, RowSeen | None]:
        """The row that an envelope is about, and what is known of it then; None if the row came again unchanged."""
        row, _, content = envelope_id.rpartition("@")
        last = known.get(row)
        if last is not None and last.content.partition(":")[0] == content.partition(":")[0]:
            return row, None
        return row, cls(content, 1 if last is None else last.number + 1)

    def cause_id(self, envelope_id: str) -> str:
        """The part of the ids of commands that names this change."""
        return envelope_id if self.number == 1 else f"{envelope_id}:{self.number}"


def change_envelope(
    row: RowInput, change: RowChange, incarnation: str | None, traceparent: str | None = None
) -> Envelope:
    """The envelope of a change that is the input `row`. incarnation: of the topic. traceparent: of its trace, if any.

    Its id, which becomes part of the ids of commands, does not depend on the place in Kafka: Kafka may get the same
    change again at another offset. The offset only says what an instance has seen.
    """
    place = change.place
    if place is None:  # what the class reads of the row: other columns make no other change
        values = {} if change.row is None else {name: change.row.get(name) for name in row.table.columns}
        place = hashlib.blake2b(orjson.dumps(values, option=orjson.OPT_SORT_KEYS), digest_size=8).hexdigest()
    return Envelope(
        id=f"{row.topic}/{change.key}@{place}",
        type=row.name,
        # a topic that was recreated has lower offsets
        stream=f"{row.topic}@{incarnation}/{change.key}",
        sequence=change.offset + 1,
        time=change.time,
        data={KEY: change.key} if row.is_deletion else {ROW: change.row},
        source=f"/headwater/{row.topic}",
        traceparent=traceparent,
    )


def read_row(row: RowInput, envelope: Envelope) -> Row | RowDeleted[Any]:
    """What `react` gets for an envelope; raises NotAnEnvelope if it does not fit the class."""
    try:
        if row.is_deletion:
            return RowDeleted(row.table, envelope.data[KEY])
        if issubclass(row.table, ViewRow):
            return row.table.read(envelope.data[ROW])
        return row.table.model_validate_json(orjson.dumps(envelope.data[ROW]))
    except (KeyError, ValueError) as error:  # pydantic's ValidationError is one
        name = described(row.table)
        raise NotAnEnvelope(f'a row of {name} does not match "{row.table.__name__}": {error_text(error)}') from error


TOMBSTONE_OFFSETS: Final = 64
"""A tombstone is at most this far behind the record of its delete: only heartbeats and ends of transactions may be
between them.
"""


class CapturedRows:
    """Reads the records of the topic of a captured table, in the order of a partition."""

    def __init__(self, log: EventLog, table: type[Captured]) -> None:
        self._log, self._table, self._decoder = log, table, ChangeDecoder(table)
        self._deleted: Record | None = None
        """The last record that deletes a row, without tombstones."""
        self._looked_back = False

    def read(self, record: Record) -> RowChange | None:
        """The change that a record says; None if it says nothing new. Raises UnreadableChange."""
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
        if not self._looked_back:  # for the delete that an owner before this one has routed
            start = max(0, record.offset - TOMBSTONE_OFFSETS)
            for earlier in self._log.read(record.topic, record.partition, start, record.offset):
                if earlier.key == record.key and earlier.value is not None:
                    with suppress(UnreadableChange):  # it is a dead letter
                        if self._decode(earlier).operation is Operation.DELETE:
                            self._deleted = earlier
            self._looked_back = True
        known = self._deleted
        return known is not None and known.key == record.key and 0 < record.offset - known.offset <= TOMBSTONE_OFFSETS


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


class PublishedRows:
    """Reads the records of the topic of a view."""

    def read(self, record: Record) -> RowChange | None:
        """The change that a record says; None if it says nothing new. Raises NotAnEnvelope."""
        return None if is_heartbeat_key(record.key, record.topic) else self.changed(record)

    def changed(self, record: Record) -> RowChange:
        """The change in the record of a row; raises NotAnEnvelope.

        A row has no place but what it says: a rebuilt generation writes the same rows at other offsets. A deleted row
        says nothing, so the time at which it was deleted is its place.
        """
        if record.value is None:
            time_ms = min(max(record.timestamp_ms, 0), LAST_TIME_MS)
            time = datetime.fromtimestamp(time_ms / 1000, UTC)
            return RowChange(record.key, None, {}, f"{DELETED}:{time_ms}", time, record.offset)
        envelope = decode(record.value)
        if envelope.type != record.topic:
            raise NotAnEnvelope(f'its type is "{envelope.type}" and not "{record.topic}", so it is no row of the view')
        return RowChange(record.key, envelope.data, {}, None, envelope.time, record.offset)
