"""Changes of rows as what an instance of a process sees: an envelope of `process-inbox`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

import orjson

from headwater.commands.declaring.row_inputs import Row, RowDeleted, RowInput, described
from headwater.commands.declaring.view_rows import ViewRow
from headwater.eventlog.capturing.changes import key_as_text
from headwater.eventlog.envelope import Envelope
from headwater.eventlog.errors import NotAnEnvelope
from headwater.eventlog.hidden_values import error_text

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
    return Envelope(
        id=f"{row.topic}/{change.key}@{change.place or _content(row, change)}",
        type=row.name,
        # a topic that was deleted and made again has lower offsets
        stream=f"{row.topic}@{incarnation}/{change.key}",
        sequence=change.offset + 1,
        time=change.time,
        data={KEY: change.key} if row.is_deletion else {ROW: change.row},
        source=f"/headwater/{row.topic}",
        traceparent=traceparent,
    )


def _content(row: RowInput, change: RowChange) -> str:
    """Digest of what the class reads of the row: other columns make no other change."""
    values = {} if change.row is None else {name: change.row.get(name) for name in row.table.columns}
    return hashlib.blake2b(orjson.dumps(values, option=orjson.OPT_SORT_KEYS), digest_size=8).hexdigest()


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
