"""A command that is ready to be appended to the log: checked, typed, and with an id."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypedDict, Unpack

import orjson

from headwater.commands.codec import Body, TypedCommand, command_record, fingerprint_of, read_command
from headwater.commands.declaring.registry import CommandType
from headwater.commands.declaring.times import may_hold_times, unclear_times
from headwater.commands.errors import MalformedCommand, TooLarge
from headwater.commands.receipt import Receipt, receipt_key, reuse_key
from headwater.commands.sealed_digests import is_same, sealed_digests
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


class Outgoing(NamedTuple):
    """A valid command. is_new: its id was made for it, so it cannot have a receipt yet.

    span: from now until its receipt, if its trace is sampled. sealed: see `sealed_digests`.
    complete: makes it with all values, and asks the store of keys; None: it has them. Without it, values of erased
    persons are withheld, and it only asks for the receipt of its id: if it is sent again, no key must be made.
    """

    command_id: str
    is_new: bool
    type: str
    fingerprint: str
    entry: Entry
    span: Span | None = None
    sealed: str = ""
    complete: Callable[[], Outgoing] | None = None

    @property
    def stream(self) -> str:
        """The stream of its aggregate."""
        return self.entry.key

    @property
    def receipt_keys(self) -> tuple[str, ...]:
        """The keys of the records that may be its receipt."""
        return (self.key,) if self.is_new else (self.key, reuse_key(self.key, self.fingerprint))

    @property
    def key(self) -> str:
        """The key of the first receipt of its id."""
        return receipt_key(self.stream, CLIENT, self.command_id)

    def is_answered_by(self, receipt: Receipt) -> bool:
        """Whether a receipt of its id is of this command, and not of another one."""
        if receipt.is_undecided:  # what was withheld, or could not be read, may be the same in another command
            return receipt.fingerprint == self.fingerprint
        return is_same(receipt, self.fingerprint, self.sealed)


def prepare(
    kind: CommandType,
    body: Body,
    time: datetime,
    *,
    is_new: bool = False,
    claims: Mapping[str, Any] | None = None,
    trace_links: Sequence[str] | None = None,
    **options: Unpack[Options],
) -> Outgoing:
    """A command with this body, as JSON bytes or a mapping; raises MalformedCommand, UnfitClaim or TooLarge.

    time: when it was accepted, in UTC. is_new: `command_id` was made just now; implied if there is none.
    claims: of the caller of the API, see `read_command`. trace_links: without a trace context in the options, a trace
    begins, if the sampler says so, and leads to these; None: none begins.
    """
    if isinstance(body, bytes) and len(body) > MAX_BODY_BYTES:
        raise TooLarge(len(body), MAX_BODY_BYTES)
    chosen, expected_version = options.get("command_id"), options.get("expected_version")
    is_new = is_new or not chosen
    typed = _read(kind, body, time, claims, revives=is_new)
    # only of new commands: those in the log are decided as they were accepted
    if may_hold_times(kind.command) and (unclear := list(unclear_times(typed.command, orjson.loads(typed.body)))):
        raise MalformedCommand(kind.command.type, unclear)
    command_id, command_type = chosen or new_command_id(), kind.command.type
    span = _sending(command_type, command_id, typed.stream, options.get("traceparent"), trace_links)
    envelope = Envelope(
        id=command_id,
        type=command_type,
        stream=typed.stream,
        time=time,
        data={},
        source=f"/headwater/{typed.aggregate.name}",
        expected_version=expected_version,
        correlation_id=options.get("correlation_id"),
        causation_id=options.get("causation_id"),
        traceparent=options.get("traceparent") if span is None else span.traceparent,
        origin=CLIENT,
        actor=options.get("actor"),
    )
    made = _outgoing(typed, envelope, span, is_new=is_new)
    fields = kind.command.sealed_fields
    if is_new or fields is None or not fields.withholds(orjson.loads(typed.body)):
        return made
    return made._replace(complete=lambda: _outgoing(_read(kind, body, time, claims), envelope, span, is_new=is_new))


def _read(
    kind: CommandType, body: Body, time: datetime, claims: Mapping[str, Any] | None, *, revives: bool = True
) -> TypedCommand:
    typed = read_command(kind, body, time, claims, revives=revives)
    if len(typed.body) > MAX_BODY_BYTES:
        raise TooLarge(len(typed.body), MAX_BODY_BYTES)
    return typed


def _outgoing(typed: TypedCommand, envelope: Envelope, span: Span | None, *, is_new: bool) -> Outgoing:
    fingerprint = fingerprint_of(envelope.type, typed.body, envelope.expected_version)
    entry = command_record(envelope, typed.aggregate.identity, typed.body, timestamp_ms(envelope.time))
    digests = ""
    if typed.command.sealed_fields is not None:
        digests = sealed_digests(envelope.type, typed.body, envelope.expected_version)
    return Outgoing(envelope.id, is_new, envelope.type, fingerprint, entry, span, digests)


def _sending(
    command_type: str, command_id: str, stream: str, traceparent: str | None, links: Sequence[str] | None
) -> Span | None:
    """The span of a command until its receipt; see `prepare`."""
    if not spans.is_on() or (traceparent is None and links is None):
        return None
    name = f"send {command_type}"
    facts = {"headwater.command.type": command_type, "headwater.command.id": command_id, "headwater.stream": stream}
    if traceparent is None:
        return spans.begun(name, "producer", facts, links or ())
    return spans.continued(name, traceparent, "producer", facts)


def new_command_id() -> str:
    """A new id in the form of a UUIDv7 (RFC 9562): ordered by time, and otherwise random."""
    return new_command_ids(1)[0]


def new_command_ids(count: int) -> list[str]:
    """Several of `new_command_id`; faster, because other threads interrupt each call of the system."""
    ms, random = f"{now_ms():012x}", os.urandom(10 * count).hex()
    return [_uuid7(ms, random[at : at + 20]) for at in range(0, 20 * count, 20)]


def _uuid7(ms: str, random: str) -> str:
    """The id of 12 hexadecimal digits of time, and 20 random ones."""
    variant = "89ab"[int(random[3], 16) & 3]
    return f"{ms[:8]}-{ms[8:]}-7{random[:3]}-{variant}{random[4:7]}-{random[7:19]}"
