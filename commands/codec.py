"""Converts between envelopes and typed messages: reading commands and events, folding, snapshots, fingerprints."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec
import orjson
from pydantic import BaseModel, ValidationError

from headwater.commands.declaring.aggregate import Aggregate, Command, Event
from headwater.commands.declaring.exact_numbers import inexact_numbers
from headwater.commands.declaring.faults import faults_of, first_faults, validated
from headwater.commands.declaring.filled_fields import filled_fields
from headwater.commands.declaring.history import version_problem
from headwater.commands.declaring.ids import Identity
from headwater.commands.declaring.json_body import ESCAPED_NUL, NUL, canonical, too_large
from headwater.commands.declaring.personal import PersonalFields
from headwater.commands.declaring.registry import AnyAggregate, CommandType
from headwater.commands.declaring.times import may_hold_times, unclear_times, unfit_times
from headwater.commands.errors import (
    BadDecision,
    BrokenStream,
    MalformedCommand,
    TooLarge,
    UnreadableEvent,
    UnreadableSnapshot,
)
from headwater.eventlog import topics
from headwater.eventlog.envelope import Envelope, encode, format_time, stream_name
from headwater.eventlog.hidden_values import error_text, places_of_error
from headwater.eventlog.limits import MAX_COMMAND_BYTES, MAX_NAMES_BYTES, entry_size, size_of
from headwater.eventlog.ports import Entry

Body = bytes | Mapping[str, Any]
State = TypeVar("State", bound=BaseModel)

# `find`, because `in` takes 1 µs longer: it first tries whether the text is a number
_ESCAPED: Final = b"\\u0000"
_DIGITS_ALIKE: Final = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER: Final = b"0" * 19
"""Integers with fewer digits fit in 64 bits."""


class TypedCommand(msgspec.Struct, frozen=True, gc=False):
    """A valid command: what `decide` gets, its stream, and its body as canonical JSON."""

    aggregate: AnyAggregate
    command: Command
    aggregate_id: str
    stream: str
    body: bytes


def parse_body(command_type: str, body: bytes) -> Any:
    """The value of a JSON body; raises MalformedCommand."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _invalid_json(command_type, error) from error


def _invalid_json(command_type: str, error: Exception) -> MalformedCommand:
    return MalformedCommand(command_type, [{"type": "json_invalid", "loc": (), "msg": f"invalid JSON: {error}"}])


def read_command(
    command_type: CommandType,
    body: Body,
    time: datetime | None = None,
    *,
    text: bytes | None = None,
    is_new: bool = False,
    is_sealed: bool = False,
    revives: bool = True,
    since: datetime | None = None,
) -> TypedCommand:
    """The typed command of a JSON body; raises MalformedCommand with pydantic's details.

    Numbers that would be rounded are refused, if the body is a text: a mapping has rounded them already.
    time: when the command was accepted, for fields that are filled with it: the body does not store them, so that a
    command that is sent again is the same. text: the JSON text that the mapping `body` was parsed from, if it may have
    such numbers. is_new: the log does not have it yet, so that unclear times are refused. is_sealed: the body is that
    of a record, whose personal values are encrypted; those of other bodies are encrypted here. revives: whether erased
    persons get new keys for that; if not, their values are withheld. since: when it was made, if it may be read again
    later: values of persons who were erased later are left out.
    Raises KeysUnavailable only for a command with personal fields.
    """
    aggregate, kind = command_type.aggregate, command_type.command
    fields, times = kind.sealed_fields, filled_fields(kind).times
    data: Any = body
    if isinstance(body, bytes):
        data, text = parse_body(kind.type, body), body
    plaintext = stored = _canonical_body(kind, data, text)
    if is_sealed and fields is not None:
        try:
            data = fields.opened(orjson.loads(stored))
            plaintext = orjson.dumps(data)
        except ValueError as error:
            raise MalformedCommand(kind.type, [{"type": "sealed", "loc": (), "msg": str(error)}]) from error
    if times and time is not None and isinstance(data, Mapping):
        plaintext = orjson.dumps({**dict.fromkeys(times, format_time(time)), **data})
    try:
        command = validated(kind, plaintext, kind.type, is_personal=fields is not None)
    except ValidationError as error:
        raise MalformedCommand(kind.type, *faults_of(error)) from None  # its text would have all faults
    if may_hold_times(kind):
        if (unfit := first_faults(unfit_times(command))).total:
            raise MalformedCommand(kind.type, *unfit)
        # those in the log are decided as they were accepted
        if is_new and (unclear := first_faults(unclear_times(command, data))).total:
            raise MalformedCommand(kind.type, *unclear)
    if (empty := aggregate.identity.empty_in(command)) is not None:
        part = "part of the id" if aggregate.identity.has_parts else "the id"
        msg = f'it is {part} of the "{aggregate.name}", and empty: send a text of at least one character'
        raise MalformedCommand(kind.type, [{"type": "string_too_short", "loc": (empty,), "msg": msg}])
    aggregate_id = aggregate.identity.of(command)
    if fields is not None and not is_sealed:
        stored = _sealed(command, aggregate_id, {*times}.difference(data), revives, since)
    return TypedCommand(aggregate, command, aggregate_id, stream_name(aggregate.name, aggregate_id), stored)


def _canonical_body(kind: type[Command], data: Any, text: bytes | None) -> bytes:
    """A body as it is stored, if it has no value that no store can hold."""
    try:
        stored, large = canonical(data)
    except TypeError as error:
        raise _invalid_json(kind.type, error) from error
    if text is not None and (inexact := inexact_numbers(text, kind)):
        raise MalformedCommand(kind.type, *first_faults(inexact))
    if large:
        raise MalformedCommand(kind.type, *first_faults(large))
    if stored.find(_ESCAPED) >= 0 and ESCAPED_NUL.search(stored):
        raise MalformedCommand(kind.type, [NUL])
    return stored


def _sealed(command: Command, aggregate_id: str, unsent: set[str], revives: bool, since: datetime | None) -> bytes:
    """The canonical body of a command with ciphertexts, as far as it was sent.

    It is made of the command, and not of what was sent: a validator may have found a value somewhere else.
    """
    data = command.__pydantic_serializer__.to_python(command, mode="json", exclude_unset=True, exclude=unsent)
    try:
        fields = command.sealed_fields
        sealed = data if fields is None else fields.sealed(data, aggregate_id, revives=revives, since=since)
        return canonical(sealed)[0]
    except ValueError as error:
        raise MalformedCommand(command.type, [{"type": "person_missing", "loc": (), "msg": str(error)}]) from error


def command_record(envelope: Envelope, identity: Identity, body: bytes, timestamp_ms: int) -> Entry:
    """The record of a command, whoever sends it.

    identity: of the aggregate's messages. Raises MalformedCommand or TooLarge if the handler could not answer
    the command, or Kafka would not store it.
    """
    if not has_short_names(envelope):
        msg = f"the command's id, type and stream together have more than {MAX_NAMES_BYTES} bytes"
        raise MalformedCommand(envelope.type, [{"type": "string_too_long", "loc": (identity.names[-1],), "msg": msg}])
    value = encode(envelope, body)
    size_bytes = entry_size(envelope.stream, value)
    if size_bytes > MAX_COMMAND_BYTES:
        raise TooLarge(size_bytes, MAX_COMMAND_BYTES, "the command's record")
    return Entry(topics.COMMANDS, envelope.stream, value, timestamp_ms)


def has_short_names(envelope: Envelope) -> bool:
    """Whether the id, the type and the stream of a command fit in a receipt."""
    return size_of(envelope.id + envelope.type + envelope.stream) <= MAX_NAMES_BYTES


def fingerprint_of(command_type: str, body: bytes, expected_version: int | None) -> str:
    """Digest of a command; a command id with another fingerprint belongs to another command."""
    expected = -1 if expected_version is None else expected_version
    return hashlib.blake2b(b"%b\n%b\n%d" % (body, command_type.encode(), expected), digest_size=16).hexdigest()


def fingerprint_of_unreadable(envelope: Envelope, value: bytes) -> str:
    """The fingerprint of a command that its handler cannot read, although its sender could.

    value: the value of the command's record, used if the body has no canonical form.
    """
    try:
        body, _ = canonical(envelope.data)
    except TypeError:
        body = value
    return fingerprint_of(envelope.type, body, envelope.expected_version)


def read_event(aggregate: AnyAggregate, envelope: Envelope) -> Event:
    """The typed event of an envelope, in the current version; raises UnreadableEvent."""
    kind = aggregate.recorded.get(envelope.type)
    if kind is None:
        raise UnreadableEvent(f'"{aggregate.name}" has no event type "{envelope.type}"')
    data = envelope.data
    if envelope.data_version != kind.version:
        data = _upcast(kind, envelope)
    try:
        body = orjson.dumps(data)
        if kind.sealed_fields is not None:
            body = opened_body(envelope.id, kind.sealed_fields, body)
        return kind.model_validate_json(body)
    except (ValidationError, TypeError) as error:
        is_personal = kind.sealed_fields is not None
        text = error_text(error, is_personal=is_personal)
        raise UnreadableEvent(f'the data of "{envelope.id}" does not match "{envelope.type}": {text}') from (
            None if is_personal else error  # its own text is logged, too
        )


def opened_body(event_id: str, fields: PersonalFields, body: bytes) -> bytes:
    """The data of an event as JSON, with clear values; raises UnreadableEvent, KeysUnavailable."""
    try:
        return fields.opened_json(body)
    except ValueError as error:
        raise UnreadableEvent(f'"{event_id}": {error}') from error


def _upcast(kind: type[Event], envelope: Envelope) -> Mapping[str, Any]:
    if reason := version_problem(kind.type, envelope.data_version, kind.version):
        raise UnreadableEvent(reason)
    try:
        return kind.history.upcast(envelope.data_version, envelope.data)
    except ValueError as error:
        raise UnreadableEvent(f'"{envelope.id}", a "{envelope.type}": {error_text(error)}') from error


def fold(
    aggregate: Aggregate[State], envelopes: Iterable[Envelope], state: State | None = None, version: int = 0
) -> tuple[State, int]:
    """State and version after the events of one stream, starting from `state` at `version`.

    A gap in the sequence is an erased event whose tombstone was compacted. Raises BrokenStream if the sequence does not
    grow, because no owner writes a version twice.
    """
    folded = aggregate.initial if state is None else state
    for envelope in envelopes:
        if envelope.sequence <= version:
            raise BrokenStream(envelope.stream, version + 1, envelope.sequence)
        event = read_event(aggregate, envelope)
        try:
            folded = aggregate.evolve(folded, event)
        except Exception as error:
            if not aggregate.is_personal:
                raise
            raise RuntimeError(f'"evolve" of "{aggregate.name}" failed\n{places_of_error(error)}') from None
        version = envelope.sequence
    return folded, version


def write_snapshot(
    aggregate: Aggregate[State], state: State, version: int, time_us: int = 0, *, stream: str = ""
) -> bytes:
    """The value of a record of `snapshots`; time_us: of the stream's last event, since 1970; 0 if it is not known.

    stream: needed if the state has personal fields.
    """
    body = state.__pydantic_serializer__.to_json(state)
    return snapshot_json(aggregate, sealed_state(aggregate, stream, body), version, time_us)


def sealed_state(aggregate: AnyAggregate, stream: str, body: bytes) -> bytes:
    """A state as JSON, as it is stored: with ciphertexts; raises BadDecision or KeysUnavailable."""
    if aggregate.sealed_fields is None:
        return body
    try:
        return aggregate.sealed_fields.sealed_json(body, stream.partition("/")[2])
    except ValueError as error:
        raise BadDecision(f'the state of "{stream[:200]}" cannot be encrypted: {error}') from error


def opened_state(aggregate: AnyAggregate, body: bytes) -> bytes:
    """Such a state with clear values; raises ValueError, KeysUnavailable."""
    return body if aggregate.sealed_fields is None else aggregate.sealed_fields.opened_json(body)


def snapshot_json(aggregate: AnyAggregate, body: bytes, version: int, time_us: int) -> bytes:
    """The value of a record of `snapshots`; body: the state as JSON. time_us: see `write_snapshot`."""
    return b'{"version":%d,"shape":"%b","time":%d,"state":%b}' % (version, aggregate.shape.encode(), time_us, body)


def read_back(event: Event, body: bytes) -> Event:
    """`event` as readers will read it from its JSON `body`.

    An event made with `model_construct` or `model_copy` may not match its own fields. Raises BadDecision or pydantic's
    ValidationError if it cannot be read.
    """
    read: Event = event.__pydantic_validator__.validate_json(body)
    # pydantic reads integers of any length, other readers do not
    if body.translate(_DIGITS_ALIKE).find(_LONG_NUMBER) >= 0:
        for detail in too_large(json.loads(body)):
            raise BadDecision(f'"{event.type}" cannot be read back: {detail["msg"]}')
    if may_hold_times(type(event)):
        for detail in unfit_times(read):
            place = ".".join(map(str, detail["loc"]))
            raise BadDecision(f'"{event.type}" has a time that views cannot read in "{place}": {detail["msg"]}')
    return read


class _SnapshotHead(msgspec.Struct, gc=False):
    """The members of a snapshot before its state."""

    version: int
    shape: str
    time: int


_read_head = msgspec.json.Decoder(_SnapshotHead).decode


def _parts(snapshot: bytes) -> tuple[_SnapshotHead, bytes]:
    """The head and the state as JSON; raises ValueError if it is no snapshot."""
    head, _, state = snapshot.partition(b',"state":')
    return _read_head(head + b"}"), state[:-1]


def snapshot_time_us(value: bytes) -> int:
    """The time of the stream's last event in a snapshot that can be read."""
    return _parts(value)[0].time


def has_shape(aggregate: AnyAggregate, value: bytes) -> bool:
    """Whether a snapshot was written for the state as it is declared now; its state is not read."""
    try:
        return _parts(value)[0].shape == aggregate.shape
    except ValueError:
        return False


def read_snapshot(aggregate: Aggregate[State], value: bytes) -> tuple[State, int]:
    """State and version of a snapshot; raises UnreadableSnapshot if it has another shape."""
    try:
        head, body = _parts(value)
        if head.shape != aggregate.shape:
            raise UnreadableSnapshot(aggregate.name, "its state had another schema, or another state_version")
        if head.version < 1:
            raise UnreadableSnapshot(aggregate.name, f"its version is {head.version}")
        validator = type(aggregate.initial).__pydantic_validator__
        read: State = validator.validate_json(opened_state(aggregate, body))
        return read, head.version
    except ValueError as error:  # also those of JSON and of pydantic
        is_personal = aggregate.sealed_fields is not None
        text = error_text(error, is_personal=is_personal)
        raise UnreadableSnapshot(aggregate.name, text) from (None if is_personal else error)
