"""The events before a test: as they would be in the log, stored and read back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, overload

import orjson

from headwater.commands.codec import read_back, read_event
from headwater.commands.declaring.aggregate import Event, Message
from headwater.commands.declaring.observation import Observation
from headwater.commands.declaring.registry import AnyAggregate
from headwater.eventlog import topics
from headwater.eventlog.envelope import (
    Envelope,
    decode,
    encode_event,
    format_time,
    partition_of,
    stream_name,
    timestamp_ms,
)
from headwater.eventlog.ports import Record

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""The time of the first event, unless the test sets one."""
COMMAND_ID: Final = "test"
"""The id of the command that caused all events of a test."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """An event as some version of the code recorded it.

    version: of its type. data: its fields in JSON. time: when it happened; None: the time of the event before it.
    """

    kind: type[Event]
    version: int
    data: bytes
    time: datetime | None = None


@dataclass(frozen=True, slots=True)
class Reported:
    """An observation that somebody reported. time: when it was observed; None: the latest time before it."""

    observation: Observation
    time: datetime | None = None


Happened = Event | Recorded
"""The events that a test may use."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Nothing more came until this time."""

    time: datetime


GivenToStream = Happened | Observation | Reported | Heartbeat
"""What a test may give a stream view."""


def heartbeat(time: datetime) -> Heartbeat:
    """The heartbeats that say that it is `time`, so that windows before it are closed although nothing else comes.

    Raises ValueError if `time` has no zone.
    """
    check_zone(time)
    return Heartbeat(time)


def recorded(kind: type[Event], version: int, data: Mapping[str, Any] | str | bytes) -> Recorded:
    """An event as an older version of the code recorded it; it is read as the current version.

    data: the fields of that version, in JSON types or as JSON text. Raises ValueError if a text is not JSON.
    """
    if isinstance(data, Mapping):
        return Recorded(kind, version, orjson.dumps(data))
    return Recorded(kind, version, orjson.dumps(orjson.loads(data)))


@overload
def at(time: datetime, event: Happened) -> Recorded: ...


@overload
def at(time: datetime, event: Observation) -> Reported: ...


def at(time: datetime, event: Happened | Observation) -> Recorded | Reported:
    """An event that happened, or an observation that was observed, at `time`; raises ValueError if it has no zone."""
    check_zone(time)
    if isinstance(event, Observation):
        return Reported(event, time)
    stored = event if isinstance(event, Recorded) else as_recorded(event)
    return Recorded(stored.kind, stored.version, stored.data, time)


def check_zone(time: datetime) -> None:
    """Raise ValueError if a time has no zone."""
    if time.tzinfo is None:
        raise ValueError(f"the time {time} has no zone: write it like datetime(2026, 1, 31, 12, tzinfo=UTC)")


def as_recorded(event: Event) -> Recorded:
    """An event as the code of today records it; raises BadDecision or pydantic's error if it cannot be read."""
    data = event.__pydantic_serializer__.to_json(event)
    read_back(event, data)
    return Recorded(type(event), event.version, data)


def is_declared(kind: type[Message]) -> bool:
    """Whether an aggregate takes this command or event."""
    return "declared_by" in vars(kind)


def aggregate_of(kind: type[Message]) -> AnyAggregate:
    """The aggregate that declares a command or event; raises ValueError if none does."""
    if not is_declared(kind):
        raise ValueError(
            f'no aggregate takes "{getattr(kind, "type", kind.__name__)}": add it to the annotation of "decide" or '
            '"evolve", and import the module of its Aggregate'
        )
    aggregate: AnyAggregate = kind.declared_by
    return aggregate


class Past:
    """The log of a test.

    Versions count per stream, offsets per partition. An event without a time has the time of the event before it. Each
    is recorded at the latest time until then.
    records: of `events`, in the order in which they were added. now: the latest time.
    """

    def __init__(self, partitions: int = 1) -> None:
        self.records: list[Record] = []
        self.now = START
        self._partitions = partitions
        self._versions: Counter[str] = Counter()
        self._ends: Counter[int] = Counter()
        self._begun = False

    def pass_to(self, time: datetime | None) -> datetime:
        """The time of the next record, which comes now. None: the latest time; the first one may be before START."""
        time = time or self.now
        self.now = max(self.now, time) if self._begun else time
        self._begun = True
        return time

    def add(self, event: Happened, aggregate: AnyAggregate | None = None) -> Record:
        """Record an event of `aggregate` (None: of the one that declares it).

        Raises UnreadableEvent if it cannot be read as the current version.
        """
        if not isinstance(event, Event | Recorded):
            raise TypeError(f"{event!r} is not an event: use an Event, or recorded(…)")
        stored = event if isinstance(event, Recorded) else as_recorded(event)
        aggregate = aggregate or aggregate_of(stored.kind)
        time = self.pass_to(stored.time)
        stream = stream_name(aggregate.name, aggregate.identity.of(_read(aggregate, stored, time)))
        version = self._versions[stream] = self._versions[stream] + 1
        cause = Envelope(COMMAND_ID, "", stream, time, {})
        source, recorded_as = f"/headwater/{aggregate.name}", stored.kind.history.type_of(stored.version)
        times = format_time(time), format_time(self.now)
        value = encode_event(cause, *times, source, recorded_as, stored.version, version, stored.data)
        partition = partition_of(stream, self._partitions)
        offset = self._ends[partition]
        self._ends[partition] += 1
        record = Record(topics.EVENTS, partition, offset, f"{stream}/{version}", value, timestamp_ms(time))
        self.records.append(record)
        return record


def _read(aggregate: AnyAggregate, stored: Recorded, time: datetime) -> Event:
    data = orjson.loads(stored.data)
    if not isinstance(data, dict):
        raise TypeError(f'the data of a "{stored.kind.type}" is {data!r}: use an object with its fields')
    return read_event(aggregate, Envelope("given", stored.kind.type, "", time, data, data_version=stored.version))


def envelope_of(record: Record) -> Envelope:
    """The envelope of a record, as readers of the log read it."""
    return decode(record.value)
