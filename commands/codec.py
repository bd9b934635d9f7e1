"""Between envelopes and typed messages: reading commands and events, folding, snapshots, fingerprints."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from commands.aggregate import Aggregate, Command, Event
from commands.errors import BrokenStream, MalformedCommand, UnreadableEvent, UnreadableSnapshot
from commands.registry import AnyAggregate, CommandType
from commands.upcasting import version_problem
from eventlog.envelope import Envelope, stream_name

NUL = {"type": "nul_character", "loc": (), "msg": "the character U+0000 cannot be stored: leave it out"}

Body = bytes | Mapping[str, Any]
State = TypeVar("State", bound=BaseModel)


class TypedCommand(NamedTuple):
    """A command that fits its type: what `decide` takes, the stream it concerns, and its body as canonical JSON."""

    aggregate: AnyAggregate
    command: Command
    aggregate_id: str
    stream: str
    body: bytes


def read_command(command_type: CommandType, body: Body) -> TypedCommand:
    """The typed command of a JSON body; raises MalformedCommand with pydantic's details."""
    aggregate, kind = command_type.aggregate, command_type.command
    try:
        data = orjson.loads(body) if isinstance(body, bytes) else body
        canonical, large = _canonical(data)
    except (orjson.JSONDecodeError, TypeError) as error:
        detail = {"type": "json_invalid", "loc": (), "msg": f"invalid JSON: {error}"}
        raise MalformedCommand(kind.type, [detail]) from error
    if large:
        raise MalformedCommand(kind.type, large)
    if b"\\u0000" in canonical and _holds_nul(data):
        raise MalformedCommand(kind.type, [NUL])
    try:
        command = kind.model_validate_json(canonical)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False, include_input=False)
        raise MalformedCommand(kind.type, [dict(detail) for detail in details]) from error
    aggregate_id = str(getattr(command, aggregate.id_field))
    return TypedCommand(aggregate, command, aggregate_id, stream_name(aggregate.name, aggregate_id), canonical)


def fingerprint(command_type: str, body: bytes, expected_version: int | None) -> str:
    """Digest of what was asked: the same command id with another fingerprint is another request."""
    digest = hashlib.blake2b(body, digest_size=16)
    digest.update(b"\n%b\n%d" % (command_type.encode(), -1 if expected_version is None else expected_version))
    return digest.hexdigest()


def read_event(aggregate: AnyAggregate, envelope: Envelope) -> Event:
    """The typed event of an envelope, in the current version; raises UnreadableEvent."""
    kind = aggregate.events.get(envelope.type)
    if kind is None:
        raise UnreadableEvent(f'"{aggregate.name}" has no event type "{envelope.type}"')
    data = envelope.data
    if envelope.data_version != kind.version:
        data = _upcast(kind, envelope)
    try:
        return kind.model_validate_json(orjson.dumps(data))
    except ValidationError as error:
        raise UnreadableEvent(f'the data of "{envelope.id}" does not fit "{envelope.type}": {error}') from error


def _upcast(kind: type[Event], envelope: Envelope) -> Mapping[str, Any]:
    if reason := version_problem(kind.type, envelope.data_version, kind.version):
        raise UnreadableEvent(reason)
    try:
        return kind.history.upcast(envelope.data_version, envelope.data)
    except ValueError as error:
        raise UnreadableEvent(f'"{envelope.id}", a "{envelope.type}": {error}') from error


def fold(
    aggregate: Aggregate[State], envelopes: Iterable[Envelope], state: State | None = None, version: int = 0
) -> tuple[State, int]:
    """State and version after the events of one stream, from `state` at `version` on.

    Raises BrokenStream where the sequence has a gap or a repetition.
    """
    folded = aggregate.initial if state is None else state
    for envelope in envelopes:
        if envelope.sequence != version + 1:
            raise BrokenStream(envelope.stream, version + 1, envelope.sequence)
        folded = aggregate.evolve(folded, read_event(aggregate, envelope))
        version = envelope.sequence
    return folded, version


def write_snapshot(aggregate: Aggregate[State], state: State, version: int) -> bytes:
    """The value of a record of `snapshots`."""
    body = state.__pydantic_serializer__.to_json(state)
    return b'{"version":%d,"shape":"%b","state":%b}' % (version, aggregate.shape.encode(), body)


def read_snapshot(aggregate: Aggregate[State], value: bytes) -> tuple[State, int]:
    """State and version of a snapshot; raises UnreadableSnapshot where it has another shape."""
    kind = type(aggregate.initial)
    try:
        document = orjson.loads(value)
        if document["shape"] != aggregate.shape:
            raise UnreadableSnapshot(aggregate.name, "its state had another schema, or another state_version")
        version = document["version"]
        if type(version) is not int or version < 1:
            raise UnreadableSnapshot(aggregate.name, f"its version is {version!r}")
        return kind.model_validate_json(orjson.dumps(document["state"])), version
    except (orjson.JSONDecodeError, KeyError, TypeError, ValidationError) as error:
        raise UnreadableSnapshot(aggregate.name, str(error)) from error


def _canonical(data: object) -> tuple[bytes, list[dict[str, Any]]]:
    """JSON text with sorted keys, and what is wrong with its integers."""
    try:
        # integers of up to 53 bits: nearly always, and at no cost
        return orjson.dumps(data, option=orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER), []
    except TypeError:
        return orjson.dumps(data, option=orjson.OPT_SORT_KEYS), list(too_large(data))


def too_large(data: object, place: tuple[str | int, ...] = ()) -> Iterator[dict[str, Any]]:
    """Details of the integers that no store can hold, as pydantic gives them."""
    match data:
        case int() if not -(2**63) <= data < 2**63:
            yield {"type": "int_too_large", "loc": place, "msg": f"{data} has more than 64 bits: send it as text"}
        case Mapping():
            for name, value in data.items():
                yield from too_large(value, (*place, name))
        case list() | tuple():
            for index, value in enumerate(data):
                yield from too_large(value, (*place, index))


def _holds_nul(value: object) -> bool:
    match value:
        case str():
            return "\0" in value
        case Mapping():
            return any(_holds_nul(key) or _holds_nul(item) for key, item in value.items())
        case list() | tuple():
            return any(_holds_nul(item) for item in value)
        case _:
            return False
