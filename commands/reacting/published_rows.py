"""What the records of a view's topic say about its rows."""

from __future__ import annotations

from datetime import UTC, datetime

from headwater.commands.handling.handler import LAST_TIME_MS
from headwater.commands.reacting.row_changes import DELETED, RowChange
from headwater.eventlog.envelope import decode
from headwater.eventlog.errors import NotAnEnvelope
from headwater.eventlog.heartbeats import is_heartbeat_key
from headwater.eventlog.ports import Record


class PublishedRows:
    """Reads the records of the topic of a view; see RowReader."""

    def read(self, record: Record) -> RowChange | None:
        """See RowReader.read. Raises NotAnEnvelope."""
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
