"""The envelope of every command and event: a CloudEvents 1.0 JSON document, and its codec."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

import msgspec
import orjson

from headwater.eventlog.errors import NotAnEnvelope

SPEC_VERSION: Final = "1.0"
HEARTBEAT = "headwater.heartbeat"
CLIENT = "client"
PROCESS = "process"
OUTBOX = "outbox"
"""Origins of command ids: chosen by or for a client (also by a row of an outbox), derived from the cause of a process's
command, or from the place of a message in an outbox. Only Headwater's own code writes them, never a client.
"""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_Text = Annotated[str, msgspec.Meta(min_length=1)]
_Count = Annotated[int, msgspec.Meta(ge=0)]
_MAX_COUNT = 2**64 - 1
_TIME_CHARACTERS = len("2026-01-02T03:04:05.678901Z")


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """A CloudEvents 1.0 context with Headwater's extensions (https://cloudevents.io, spec 1.0.2).

    id: of an event, its stream and version (`listing/L1/7`); of a command, the command id.
    type: the storage name of the event or command, such as `listing.price_changed`.
    stream: `type/id` of the aggregate; CloudEvents' `subject`.
    time: when the command was accepted by the API, in UTC.
    data: the body, JSON types only.
    data_version: of an event, the version of its type, from 1; 0 if the record has none.
    sequence: the aggregate's version after this event, from 1; 0 in a command.
    expected_version: in a command, the version that it expects; None for any, 0 for "must not exist".
    recorded_time: of an observation, when it was accepted, and `time` is when it was observed; of an event, when the
    handler decided it. None in commands.
    origin: in a command, who chose its id: CLIENT, PROCESS or OUTBOX; None: a client.
    actor: who caused it: the name of an API key, the subject of a token, `process:<name>` or `outbox:<source>`; None if
    that is not known.
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
    recorded_time: datetime | None = None
    origin: str | None = None
    actor: str | None = None


_NO_DATA: Final = msgspec.Raw(b"{}")


class _Document(msgspec.Struct, gc=False, omit_defaults=True):
    """The JSON document of an envelope, in the order in which its members are written.

    Members that are not listed are ignored; those that are only written may be anything in records of other programs.
    """

    specversion: Literal["1.0"]
    id: _Text
    source: _Text
    type: _Text
    subject: _Text
    time: _Text
    datacontenttype: Any = None
    dataversion: _Count | None = None
    sequence: _Count | None = None
    expectedversion: _Count | None = None
    correlationid: _Text | None = None
    causationid: _Text | None = None
    traceparent: _Text | None = None
    recordedtime: _Text | None = None
    actor: Any = None  # no extension of CloudEvents
    origin: _Text | None = None
    data: msgspec.Raw = _NO_DATA


_read = msgspec.json.Decoder(_Document).decode
_write = msgspec.json.Encoder().encode


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


def timestamp_us(time: datetime) -> int:
    """Microseconds since 1970."""
    since = time - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def timestamp_ms(time: datetime) -> int:
    """Milliseconds since 1970, like Kafka's record timestamps."""
    return timestamp_us(time) // 1_000


def encode(envelope: Envelope, body: bytes | None = None) -> bytes:
    """The structured-mode JSON document of `envelope`, without unset or empty members.

    body: the data as JSON text, if it is already written; it replaces `envelope.data`.
    """
    if body is None and envelope.data:
        body = orjson.dumps(envelope.data)
    return _write(
        _Document(
            SPEC_VERSION,
            envelope.id,
            envelope.source,
            envelope.type,
            envelope.stream,
            format_time(envelope.time),
            "application/json",
            envelope.data_version,
            envelope.sequence or None,
            envelope.expected_version,
            envelope.correlation_id or None,
            envelope.causation_id or None,
            envelope.traceparent or None,
            None if envelope.recorded_time is None else format_time(envelope.recorded_time),
            envelope.actor,
            envelope.origin,
            _NO_DATA if body is None else msgspec.Raw(body),
        )
    )


def encode_event(
    command: Envelope,
    time: str,
    recorded_time: str,
    source: str,
    event_type: str,
    data_version: int,
    sequence: int,
    body: bytes,
) -> bytes:
    """The document of an event, like `encode`.

    command: its cause, which has its stream. time: the command's, or that of the event before it in its stream if that
    is later, as text. recorded_time: when it was decided, as text.
    event_type: its storage name. body: its data as JSON text.
    """
    return _write(
        _Document(
            SPEC_VERSION,
            f"{command.stream}/{sequence}",
            source,
            event_type,
            command.stream,
            time,
            "application/json",
            data_version,
            sequence,
            None,
            command.correlation_id or command.id,
            command.id,
            command.traceparent or None,
            recorded_time,
            command.actor or None,
            None,
            msgspec.Raw(body),
        )
    )


def decode(value: bytes | str | None) -> Envelope:
    """Read a record's value; raises only NotAnEnvelope, with the reason."""
    if value is None:
        raise NotAnEnvelope("the record has no value (a tombstone)")
    try:
        if isinstance(value, bytes) and not value.isascii():
            value.decode()  # msgspec does not check what it skips
        document = _read(value)
        # orjson, because it reads data as it writes it: msgspec reads larger integers
        data = orjson.loads(bytes(document.data))
    except msgspec.ValidationError as error:
        reason = str(error).replace("`$.", '"').replace("`", '"')
        raise NotAnEnvelope(reason[0].lower() + reason[1:]) from error
    except (msgspec.DecodeError, UnicodeError, orjson.JSONDecodeError, RecursionError) as error:
        raise NotAnEnvelope(f"malformed JSON: {error}") from error
    if type(data) is not dict:
        raise NotAnEnvelope(f'"data" is {type(data).__name__}, not an object')
    data_version, sequence, expected = document.dataversion or 0, document.sequence or 0, document.expectedversion
    if data_version | sequence | (expected or 0) > _MAX_COUNT:
        raise NotAnEnvelope('"dataversion", "sequence" or "expectedversion" needs more than 64 bits')
    return Envelope(
        document.id,
        document.type,
        document.subject,
        _time(document.time),
        data,
        document.source,
        data_version,
        sequence,
        expected,
        document.correlationid,
        document.causationid,
        document.traceparent,
        None if document.recordedtime is None else _time(document.recordedtime, "recordedtime"),
        document.origin,
        (document.actor or None) if type(document.actor) is str else None,
    )


def format_time(time: datetime) -> str:
    """RFC 3339 in UTC with microseconds: fixed width, so that text order is time order."""
    if time.tzinfo is not UTC:
        time = time.astimezone(UTC)
    # a third of the time of isoformat
    text = orjson.dumps(time, default=_iso_format, option=orjson.OPT_UTC_Z)[1:-1].decode()
    return text if len(text) == _TIME_CHARACTERS else f"{text[:19]}.000000Z"  # without a fraction if it is zero


def _iso_format(time: datetime) -> str:
    """A time of another class, which orjson does not write, such as one of a library that sets the clock in tests."""
    return f"{time.isoformat(timespec='microseconds')[:26]}Z"


def _time(text: str, name: str = "time") -> datetime:
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is UTC:
            return time
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError) as error:  # its zone may move it out of the years 1 to 9999
        raise NotAnEnvelope(f'"{name}" is {text!r}, not an RFC 3339 time') from error
