"""The fields with which each version of an event was recorded, kept in the log: `process-starts` has them for ever."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import orjson

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.event_versions import FirstFields, changes, fields_of, nested_fields_of
from headwater.commands.errors import DeclarationError
from headwater.eventlog import topics
from headwater.eventlog.envelope import decode
from headwater.eventlog.errors import NotAnEnvelope
from headwater.eventlog.ports import Entry, EventLog
from headwater.eventlog.times import now_ms

_PREFIX: Final = "events/"
"""Of the keys `events/<type>/<version>`; the names of processes have no slash, and no topic is called like an event."""
STORED_S: Final = 30.0


def settle_versions(log: EventLog, events: Collection[type[Event]]) -> None:
    """Note with which fields this code records its events, before it records any.

    Raises DeclarationError if the log has events of a version that have other fields: they could not be read any more,
    and those that are recorded now neither, once the code is right again. Raises LogUnavailable.
    """
    known = recorded_fields(log)
    for event in events:
        if (event.type, event.version) not in known:
            _store(log, event)
    # another handler may have been first
    changed = changes(events, recorded_fields(log))
    for event in (event for event in events if event.type in changed):
        if _is_recorded(log, event):
            raise DeclarationError("; ".join(changed[event.type]))
        _store(log, event)  # nothing was recorded with what was declared before


def changed_versions(log: EventLog, events: Collection[type[Event]]) -> dict[str, list[str]]:
    """By type of event, what is wrong with it, if the log has events of its version with other fields.

    For whoever reads events or sends commands: it writes nothing, and is empty for all that `settle_versions` accepts.
    Raises LogUnavailable.
    """
    changed = changes(events, recorded_fields(log))
    recorded = (event for event in events if event.type in changed and _is_recorded(log, event))
    return {event.type: changed[event.type] for event in recorded}


def recorded_fields(log: EventLog) -> dict[tuple[str, int], FirstFields]:
    """The fields that are noted in the log, by type and version of the event."""
    found = dict[tuple[str, int], FirstFields]()
    for record in log.read(topics.STARTS, 0, 0):
        if record.key.startswith(_PREFIX) and record.value is not None:
            event_type, _, version = record.key.removeprefix(_PREFIX).partition("/")
            found[event_type, int(version)] = FirstFields(**orjson.loads(record.value))
    return found


def _store(log: EventLog, event: type[Event]) -> None:
    fields = {"fields": fields_of(event), "nested": nested_fields_of(event)}
    entry = Entry(topics.STARTS, f"{_PREFIX}{event.type}/{event.version}", orjson.dumps(fields), now_ms())
    log.submit(entry, 0).result(STORED_S)


def _is_recorded(log: EventLog, event: type[Event]) -> bool:
    """Whether the log has an event of this type and version; reads it up to the first one."""
    aggregate, name = event.type.partition(".")[0] + "/", event.type.encode()
    for partition in range(log.partitions):
        for record in log.read(topics.EVENTS, partition, 0):
            if record.value is not None and record.key.startswith(aggregate) and name in record.value:
                try:
                    decoded = decode(record.value)
                except NotAnEnvelope:
                    continue
                if (decoded.type, decoded.data_version) == (event.type, event.version):
                    return True
    return False
