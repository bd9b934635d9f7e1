"""The envelope of every command and event: a CloudEvents 1.0 JSON document, and its codec."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from eventlog.errors import NotAnEnvelope

SPEC_VERSION = "1.0"
HEARTBEAT = "headwater.heartbeat"

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

_TEXTS = ("id", "type", "subject", "time", "source")
_OPTIONAL_TEXTS = frozenset({"correlationid", "causationid", "traceparent"})
_COUNTS = frozenset({"dataversion", "sequence", "expectedversion"})


class Envelope(NamedTuple):
    """A CloudEvents 1.0 context with Headwater's extensions (https://cloudevents.io, spec 1.0.2).

    id: of an event, its stream and version (`listing/L1/7`); of a command, the command id.
    type: the storage name of the event or command, such as `listing.price_changed`.
    stream: `type/id` of the aggregate; CloudEvents' `subject`.
    time: when the command was accepted by the API, in UTC.
    data: the body, JSON types only.
    data_version: of an event, the version of its type, from 1; 0 if the record has none.
    sequence: the aggregate's version after this event, from 1; 0 in a command.
    expected_version: in a command, the version that it expects; None for any, 0 for "must not exist".
    """

    id: str
    type: str
    stream: str
    time: datetime
    data: Mapping[str, Any]
    source: str = "/headwater"
    data_version: int = 1
    sequence: int = 0
    expected_version: int | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    traceparent: str | None = None


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """The place of an event in the topic `events`; written `partition:offset`."""

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}:{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Read `partition:offset`; raises ValueError with the expected form."""
        partition, _, offset = text.partition(":")
        if not (text.isascii() and partition.isdigit() and offset.isdigit() and len(text) <= 32):
            raise ValueError(f'"{text}" is not a position: write it like "3:1042" (partition:offset)')
        return cls(int(partition), int(offset))


def stream_name(aggregate_type: str, aggregate_id: str) -> str:
    """The stream of one aggregate: `listing/L1`."""
    return f"{aggregate_type}/{aggregate_id}"


def partition_of(key: str, partitions: int) -> int:
    """Partition of a record key: CRC-32, which librdkafka, zlib and Spark SQL all have natively."""
    return zlib.crc32(key.encode()) % partitions


def timestamp_ms(time: datetime) -> int:
    """Milliseconds since 1970, like Kafka's record timestamps."""
    return (time - EPOCH) // _MILLISECOND


def encode(envelope: Envelope, body: bytes | None = None) -> bytes:
    """The structured-mode JSON document of `envelope`, without unset or empty members.

    body: the data as JSON text, if it is already written; it replaces `envelope.data`.
    """
    document: dict[str, Any] = {
        "specversion": SPEC_VERSION,
        "id": envelope.id,
        "source": envelope.source,
        "type": envelope.type,
        "subject": envelope.stream,
        "time": format_time(envelope.time),
        "datacontenttype": "application/json",
        "dataversion": envelope.data_version,
    }
    if envelope.sequence:
        document["sequence"] = envelope.sequence
    if envelope.expected_version is not None:
        document["expectedversion"] = envelope.expected_version
    if envelope.correlation_id is not None:
        document["correlationid"] = envelope.correlation_id
    if envelope.causation_id is not None:
        document["causationid"] = envelope.causation_id
    if envelope.traceparent is not None:
        document["traceparent"] = envelope.traceparent
    if body is not None:
        document["data"] = orjson.Fragment(body)
    elif envelope.data:
        document["data"] = envelope.data
    return orjson.dumps(document)


class EventWriter:
    """Encodes the events of one command, like `encode`, but encodes their common parts once."""

    def __init__(self, command: Envelope, source: str) -> None:
        """command: their cause, which has their stream and time."""
        carried = {"correlationid": command.correlation_id or command.id, "causationid": command.id}
        if command.traceparent is not None:
            carried["traceparent"] = command.traceparent
        self.stream_json = orjson.dumps(command.stream)[:-1]
        """The stream as JSON text, without the closing quotation mark, so that an event's id can be built from it."""
        self._source = orjson.dumps(source)
        self._shared = (self.stream_json, format_time(command.time).encode())
        self._carried = orjson.dumps(carried)[1:-1]

    def encode(self, event_type: bytes, data_version: int, sequence: int, body: bytes) -> bytes:
        """The document of one event; event_type: its storage name. body: its data as JSON text."""
        return (
            b'{"specversion":"1.0","id":%b/%d","source":%b,"type":"%b","subject":%b","time":"%b",'
            b'"datacontenttype":"application/json","dataversion":%d,"sequence":%d,%b,"data":%b}'
            % (
                self.stream_json, sequence, self._source, event_type, *self._shared, data_version, sequence,
                self._carried, body,
            )
        )  # fmt: skip


def decode(value: bytes | str | None) -> Envelope:
    """Read a record's value; raises only NotAnEnvelope, with the reason."""
    if value is None:
        raise NotAnEnvelope("the record has no value (a tombstone)")
    try:
        document = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise NotAnEnvelope(f"malformed JSON: {error}") from error
    if not isinstance(document, dict):
        raise NotAnEnvelope(f"expected a JSON object, found {type(document).__name__}")
    get = document.get
    if get("specversion") != SPEC_VERSION:
        raise NotAnEnvelope(f'"specversion" is {get("specversion")!r}, not "1.0"')
    # loops, because a call per field costs more than everything else
    for name in _TEXTS:
        if type(get(name)) is not str or not document[name]:
            raise NotAnEnvelope(f'"{name}" is {get(name)!r}, not a text')
    for name in _OPTIONAL_TEXTS & document.keys():
        text = document[name]
        if text is not None and (type(text) is not str or not text):
            raise NotAnEnvelope(f'"{name}" is {text!r}, not a text')
    for name in _COUNTS & document.keys():
        count = document[name]
        if count is not None and (type(count) is not int or count < 0):
            raise NotAnEnvelope(f'"{name}" is {count!r}, not an integer of at least 0')
    data, data_version, sequence = get("data"), get("dataversion"), get("sequence")
    if data is None and "data" not in document:
        data = {}
    if type(data) is not dict:
        raise NotAnEnvelope(f'"data" is {type(data).__name__}, not an object')
    return Envelope(
        document["id"],
        document["type"],
        document["subject"],
        _time(document["time"]),
        data,
        document["source"],
        0 if data_version is None else data_version,
        0 if sequence is None else sequence,
        get("expectedversion"),
        get("correlationid"),
        get("causationid"),
        get("traceparent"),
    )


@lru_cache(maxsize=64)
def format_time(time: datetime) -> str:
    """RFC 3339 in UTC with microseconds: fixed width, so that text order is time order."""
    if time.tzinfo is not UTC:
        time = time.astimezone(UTC)
    return f"{time.isoformat(timespec='microseconds')[:26]}Z"


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is UTC:
            return time
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError) as error:  # its zone may move it out of the years 1 to 9999
        raise NotAnEnvelope(f'"time" is {text!r}, not an RFC 3339 time') from error
