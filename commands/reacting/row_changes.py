"""Changes of captured rows as what an instance of a process sees: an envelope of `process-inbox`."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any, Final

import orjson
from pydantic import ValidationError

from commands.declaring.captured_inputs import RowDeleted, RowInput
from eventlog.capturing.changes import Change, Operation
from eventlog.capturing.declaring import Captured
from eventlog.envelope import Envelope
from eventlog.errors import NotAnEnvelope
from eventlog.ports import Record

ROW: Final = "row"
KEY: Final = "key"


def change_envelope(row: RowInput, change: Change, record: Record, incarnation: str | None) -> Envelope:
    """The envelope of a change that is the input `row`. incarnation: of the topic, from which `record` is.

    Its id, which becomes part of the ids of commands, is the place of the change in the database. The offset in the
    topic only says what an instance has seen: Kafka may get the same change again at another offset.
    """
    time_ms = change.time_ms or record.timestamp_ms
    return Envelope(
        id=_change_id(row.table.topic(), change, record),
        type=row.name,
        # a topic that was deleted and made again has lower offsets
        stream=f"{row.table.topic()}@{incarnation}/{change.key}",
        sequence=record.offset + 1,
        time=datetime.fromtimestamp(time_ms / 1000, UTC),
        data={KEY: change.key} if row.is_deletion else {ROW: change.row},
        source=f"/headwater/{row.table.topic()}",
    )


def _change_id(topic: str, change: Change, record: Record) -> str:
    """Stable if the same change is read again, also at another offset; another snapshot of a row is another change."""
    position = change.position
    if position is None:
        place = f"{record.partition}:{record.offset}"  # a tombstone whose delete was removed by compaction
    elif change.operation is Operation.SNAPSHOT:
        # a snapshot may have the position of the change before it, so the values are in the id
        content = hashlib.blake2b(orjson.dumps(change.row, option=orjson.OPT_SORT_KEYS), digest_size=8).hexdigest()
        place = f"{position}:{content}"
    else:
        place = f"{position}:{position.transaction}:{position.order}"
    return f"{topic}/{change.key}@{place}"


def read_row(row: RowInput, envelope: Envelope) -> Captured | RowDeleted[Any]:
    """What `react` gets for an envelope; raises NotAnEnvelope if it does not fit the class."""
    try:
        if row.is_deletion:
            return RowDeleted(row.table, envelope.data[KEY])
        return row.table.model_validate_json(orjson.dumps(envelope.data[ROW]))
    except (KeyError, ValidationError) as error:
        raise NotAnEnvelope(f'a row of "{row.table.table}" does not match "{row.table.__name__}": {error}') from error
