"""A command that is ready to be appended to the log: checked, typed, and with an id."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypedDict, Unpack

import orjson

from headwater.commands.codec import Body, TypedCommand, command_record, fingerprint_of, parse_body, read_command
from headwater.commands.declaring.faults import first_faults
from headwater.commands.declaring.filled_fields import NOTHING, filled_fields
from headwater.commands.declaring.registry import CommandType
from headwater.commands.errors import MalformedCommand, TooLarge
from headwater.commands.receipt import Receipt, is_same, receipt_key, reuse_key, sealed_digests
from headwater.eventlog.envelope import CLIENT, Envelope, timestamp_ms
from headwater.eventlog.limits import MAX_BODY_BYTES
from headwater.eventlog.ports import Entry
from headwater.eventlog.times import now_ms
from headwater.eventlog.tracing import spans
from headwater.eventlog.tracing.spans import Span


class Options(TypedDict, total=False):
    """The options of a command.

    command_id: chosen by the client, for one stream (default: a new id). expected_version: None any, 0 must not exist.
    actor: who caused it, as its sender says; None: that is not known.
    """

    command_id: str | None
    expected_version: int | None
    correlation_id: str | None
    causation_id: str | None
    traceparent: str | None
    actor: str | None


class PreparedCommand(NamedTuple):
    """A valid command. is_new: its id was made for it, so it cannot have a receipt yet.

    stream: of its aggregate. key: of the record of the first receipt of its id.
    span: from now until its receipt, if its trace is sampled. sealed: see `sealed_digests`.
    complete: makes it with all values, and asks the store of keys; None: it has them. Without it, values of erased
    persons are withheld, and it only asks for the receipt of its id: if it is sent again, no key must be made.
    """

    command_id: str
    is_new: bool
    type: str
    stream: str
    key: str
    fingerprint: str
    entry: Entry
    span: Span | None = None
    sealed: str = ""
    complete: Callable[[], PreparedCommand] | None = None

    @property
    def receipt_keys(self) -> tuple[str, ...]:
        """The keys of the records that may be its receipt."""
        return (self.key,) if self.is_new else (self.key, reuse_key(self.key, self.fingerprint))

    def is_answered_by(self, receipt: Receipt) -> bool:
        """Whether a receipt of its id is of this command, and not of another one."""
        if receipt.is_undecided:  # what was withheld, or could not be read, may be the same in another command
            return receipt.fingerprint == self.fingerprint
        return is_same(receipt.fingerprint, receipt.sealed, self.fingerprint, self.sealed)


def prepare(
    kind: CommandType,
    body: Body,
    time: datetime,
    *,
    text: bytes | None = None,
    is_new: bool = False,
    claims: Mapping[str, Any] | None = None,
    trace_links: Sequence[str] | None = None,
    **options: Unpack[Options],
) -> PreparedCommand:
    """A command with this body, as JSON bytes or a mapping; raises MalformedCommand, UnfitClaim or TooLarge.

    time: when it was accepted, in UTC. text: see `read_command`. is_new: `command_id` was made just now; implied if
    there is none. claims: of the caller of the API, whose body has no server field; None: the sender has filled them.
    trace_links: without a trace context in the options, a trace begins, if the sampler says so, and leads to these;
    None: none begins.
    """
    command_id, traceparent = options.get("command_id"), options.get("traceparent")
    is_new = is_new or not command_id
    read = partial(_read, kind, body, time, text, claims)
    typed, fields = read(revives=is_new), kind.command.sealed_fields
    command_id = command_id or new_command_ids(1)[0]
    span = None
    if spans.is_on() and not (traceparent is None and trace_links is None):
        name = f"send {kind.command.type}"
        facts = {
            "headwater.command.type": kind.command.type,
            "headwater.command.id": command_id,
            "headwater.stream": typed.stream,
        }
        if traceparent is None:
            span = spans.begun(name, "producer", facts, trace_links or ())
        else:
            span = spans.continued(name, traceparent, "producer", facts)
    envelope = Envelope(
        id=command_id,
        type=kind.command.type,
        stream=typed.stream,
        time=time,
        data={},
        source=f"/headwater/{typed.aggregate.name}",
        expected_version=options.get("expected_version"),
        correlation_id=options.get("correlation_id"),
        causation_id=options.get("causation_id"),
        traceparent=traceparent if span is None else span.traceparent,
        origin=CLIENT,
        actor=options.get("actor"),
    )
    command = _encoded(typed, envelope, span, is_new=is_new)
    if is_new or fields is None or not fields.withholds(orjson.loads(typed.body)):
        return command
    return command._replace(complete=lambda: _encoded(read(revives=True), envelope, span, is_new=is_new))


def _read(
    kind: CommandType,
    body: Body,
    time: datetime,
    text: bytes | None,
    claims: Mapping[str, Any] | None,
    *,
    revives: bool,
) -> TypedCommand:
    """The typed command of a body, with its server fields; revives: see `read_command`."""
    command_type, server_fields = kind.command.type, filled_fields(kind.command)
    data: Any = body
    if isinstance(body, bytes):
        if len(body) > MAX_BODY_BYTES:
            raise TooLarge(len(body), MAX_BODY_BYTES)
        data, text = parse_body(command_type, body), body
    if claims is not None and server_fields is not NOTHING and isinstance(data, Mapping):
        if given := server_fields.given_in(data):
            raise MalformedCommand(command_type, *first_faults(given))
        data = {**data, **server_fields.from_caller(command_type, claims)}
    try:
        typed = read_command(kind, data, time, text=text, is_new=True, revives=revives)
    except MalformedCommand as error:
        if claims is not None:
            server_fields.check(command_type, error.details)
        raise
    if len(typed.body) > MAX_BODY_BYTES:
        raise TooLarge(len(typed.body), MAX_BODY_BYTES)
    return typed


def _encoded(typed: TypedCommand, envelope: Envelope, span: Span | None, *, is_new: bool) -> PreparedCommand:
    identity, expected_version, digests = typed.aggregate.identity, envelope.expected_version, ""
    if typed.command.sealed_fields is not None:
        digests = sealed_digests(envelope.type, typed.body, expected_version)
    return PreparedCommand(
        envelope.id,
        is_new,
        envelope.type,
        typed.stream,
        receipt_key(typed.stream, CLIENT, envelope.id),
        fingerprint_of(envelope.type, typed.body, expected_version),
        command_record(envelope, identity, typed.body, timestamp_ms(envelope.time)),
        span,
        digests,
    )


def new_command_id() -> str:
    """A new id in the form of a UUIDv7 (RFC 9562): ordered by time, and otherwise random."""
    return new_command_ids(1)[0]


def new_command_ids(count: int) -> list[str]:
    """Several of `new_command_id`; faster, because other threads interrupt each call of the system."""
    ms, random = f"{now_ms():012x}", os.urandom(10 * count).hex()
    ids = []
    for at in range(0, 20 * count, 20):
        digits = random[at : at + 20]
        variant = "89ab"[int(digits[3], 16) & 3]
        ids.append(f"{ms[:8]}-{ms[8:]}-7{digits[:3]}-{variant}{digits[4:7]}-{digits[7:19]}")
    return ids
