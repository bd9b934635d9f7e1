"""The decision on one command: all its records, made and checked before the transaction begins.

This is the only place that guards against whatever a user's rules may return, raise or make. No I/O.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Collection, Iterable
from datetime import timedelta
from itertools import islice
from typing import Any, Final

import msgspec
import orjson
from msgspec import structs
from pydantic import BaseModel

from headwater.commands.codec import (
    TypedCommand,
    read_back,
    read_snapshot,
    sealed_state,
    snapshot_json,
    snapshot_time_us,
)
from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.personal import HIDDEN, texts_in
from headwater.commands.declaring.registry import AnyAggregate
from headwater.commands.errors import BadDecision, Rejected, WrongVersion
from headwater.commands.receipt import (
    EVENT_TOO_LARGE,
    INTERNAL_ERROR,
    KEYS_UNAVAILABLE,
    STATE_TOO_LARGE,
    TOO_MANY_EVENTS,
    WRONG_VERSION,
    Outcome,
    ReceiptError,
    ReceiptHead,
)
from headwater.eventlog import topics
from headwater.eventlog.actors import OUTBOX_ACTOR
from headwater.eventlog.envelope import (
    CLIENT,
    EPOCH,
    OUTBOX,
    PROCESS,
    Envelope,
    encode_event,
    format_time,
    timestamp_us,
)
from headwater.eventlog.errors import KeysUnavailable, ValueWithheld
from headwater.eventlog.hidden_values import places_of_error
from headwater.eventlog.limits import MAX_ENTRY_BYTES, entry_size, size_of
from headwater.eventlog.ports import Entry
from headwater.eventlog.programs.logs import trace_id_of
from headwater.eventlog.tracing import spans
from headwater.eventlog.tracing.spans import Facts, Span

MAX_EVENTS: Final = 10_000
"""Of one command. All are in one transaction, which delays every reader, and in one receipt."""
MAX_EVENTS_BYTES: Final = 8 * 1024 * 1024
"""Of all events of one command."""
MAX_CODE_CHARACTERS: Final = 200
MAX_MESSAGE_CHARACTERS: Final = 10_000
_POSITION_BYTES: Final = 24
"""The longest offset in a receipt, with its delimiters."""

logger = logging.getLogger(__name__)


class ReceivedCommand(msgspec.Struct, frozen=True, gc=False):
    """A command from the log: its envelope, its time as text, its fingerprint, and its partition.

    recorded_time: of its events, as text: when their batch was begun.
    key: of its receipt's record. sealed: see `sealed_digests`.
    """

    envelope: Envelope
    time: str
    fingerprint: str
    partition: int
    recorded_time: str
    key: str
    sealed: str = ""


class StreamState(msgspec.Struct, frozen=True, gc=False):
    """A stream: its state and version, the bytes of its latest snapshot, and its last event's time, in
    microseconds since 1970: views order events by it."""

    state: Any
    version: int
    size_bytes: int = 0
    time_us: int = 0

    @classmethod
    def of(cls, aggregate: AnyAggregate, snapshot: bytes) -> StreamState:
        """The stream of a snapshot; raises UnreadableSnapshot, and what reading personal values raises."""
        state, version = read_snapshot(aggregate, snapshot)
        return cls(state, version, len(snapshot), snapshot_time_us(snapshot))


class Decision(msgspec.Struct, frozen=True, gc=False):
    """The decision on one command. It cannot fail any more: it consists of bytes, and each part fits in its record.

    key: of the receipt's record.
    command_id, sealed: see Receipt.
    receipt: the receipt's JSON up to its events.
    events: the records to append; of an erasure, tombstones.
    recorded: the JSON of each event in the receipt, up to its offset; of an erasure, none.
    after: the stream after the events; None if there are no events.
    snapshot: the value of its record, if it was made.
    size_bytes: of all appended records.
    begins: whether the stream had no event before.
    is_undecided: see Receipt.is_undecided.
    placed: the offsets of its first events, if the log has them already; they are not in `events`.
    """

    key: str
    command_id: str
    command_type: str
    fingerprint: str
    stream: str
    outcome: Outcome
    receipt: bytes
    events: tuple[Entry, ...] = ()
    recorded: tuple[bytes, ...] = ()
    after: StreamState | None = None
    snapshot: bytes | None = None
    size_bytes: int = 0
    begins: bool = False
    sealed: str = ""
    is_undecided: bool = False
    placed: tuple[int, ...] = ()


def decide(received: ReceivedCommand, typed: TypedCommand, known: StreamState, *, keep: bool) -> Decision:
    """Decide a command on the known stream. It returns whatever the aggregate's code does.

    keep: make the snapshot now. Otherwise the state is checked when it is kept (see `kept`).
    """
    try:
        return attempt(received, typed, known, keep=keep)
    except KeysUnavailable as error:
        return unavailable(received, known.version, error)
    except BaseException as error:  # noqa: BLE001 - SystemExit in a rule must not end the partition either
        is_personal = typed.aggregate.is_personal
        return answered(received, "failed", known.version, failure(received.envelope, error, is_personal=is_personal))


def unavailable(received: ReceivedCommand, version: int, error: KeysUnavailable) -> Decision:
    """The answer to a command of a client that cannot be opened, or its events not be sealed, without keys.

    Raises the error if nobody would send the command again: then it waits, with those after it.
    """
    envelope = received.envelope
    if envelope.origin in (PROCESS, OUTBOX) or (envelope.actor or "").startswith(OUTBOX_ACTOR):
        raise error  # a message of an outbox may have an id of its own, like a client's
    level = logging.DEBUG if isinstance(error, ValueWithheld) else logging.WARNING
    logger.log(level, '"%s" of "%s" is not decided: %s', envelope.type, envelope.stream[:200], error)
    undecided = answered(received, "failed", version, ReceiptError(KEYS_UNAVAILABLE, clipped(str(error))))
    return structs.replace(undecided, is_undecided=True)


def attempt(received: ReceivedCommand, typed: TypedCommand, known: StreamState, *, keep: bool) -> Decision:
    """Like `decide`, but raises BadDecision and any unexpected error of the aggregate's code."""
    expected, version = received.envelope.expected_version, known.version
    if expected is not None and expected != version:
        wrong = WrongVersion(typed.stream, expected, version)
        return answered(
            received, "conflict", version, ReceiptError(WRONG_VERSION, clipped(str(wrong)), expected, version)
        )
    try:
        return _accepted(received, typed, known, keep)
    except Rejected as rejected:
        code = _text(rejected, "code", rejected.code, MAX_CODE_CHARACTERS)
        reason = ReceiptError(code, _text(rejected, "message", rejected.message, MAX_MESSAGE_CHARACTERS))
        return answered(received, "rejected", version, without_personal(reason, typed, known))


def answered(
    received: ReceivedCommand,
    outcome: Outcome,
    version: int,
    error: ReceiptError | None = None,
    *,
    key: str | None = None,
) -> Decision:
    """A decision without events; key: of the receipt's record, if it is not the command's."""
    envelope = received.envelope
    receipt = decided_head(received, outcome, version, error)
    return Decision(
        key or received.key,
        envelope.id,
        envelope.type,
        received.fingerprint,
        envelope.stream,
        outcome,
        receipt,
        size_bytes=len(receipt),
        sealed=received.sealed,
    )


def failure(envelope: Envelope, error: BaseException, *, is_personal: bool = False) -> ReceiptError:
    """The answer to a command that could not be decided; the log has the error under the error id in its message.

    is_personal: its rule has personal values, so the log has only the place of the error.
    """
    error_id = secrets.token_hex(8)
    stream = envelope.stream[:200]
    facts = {
        "stream": stream,
        "command_id": envelope.id,
        "command_type": envelope.type,
        "error_id": error_id,
        "trace_id": trace_id_of(envelope.traceparent),
    }
    if is_personal:
        places = places_of_error(error)
        logger.error('error %s: "%s" of "%s" failed\n%s', error_id, envelope.type, stream, places, extra=facts)
    else:
        logger.error('error %s: "%s" of "%s" failed', error_id, envelope.type, stream, exc_info=error, extra=facts)
    if isinstance(error, BadDecision) and error.code is not None:
        ending = f"; error {error_id}"
        return ReceiptError(error.code, clipped(str(error)[: MAX_MESSAGE_CHARACTERS - len(ending)]) + ending)
    return ReceiptError(INTERNAL_ERROR, f"internal error: see the handler's log for {error_id}")


def kept(aggregate: AnyAggregate, stream: str, known: StreamState) -> tuple[StreamState, bytes]:
    """The stream as it will be read back, and the value of its record in `snapshots`.

    Raises BadDecision if the state does not fit in a record, and pydantic's errors if it cannot be read back.
    """
    body = known.state.__pydantic_serializer__.to_json(known.state)
    snapshot = snapshot_json(aggregate, sealed_state(aggregate, stream, body), known.version, known.time_us)
    size_bytes = entry_size(stream, snapshot)
    if size_bytes > MAX_ENTRY_BYTES:
        raise BadDecision(
            f'the state of "{stream[:200]}" would have {size_bytes} bytes, but at most {MAX_ENTRY_BYTES} are allowed; '
            f'nothing was changed: keep less in the state of "{aggregate.name}", or split it into several streams',
            STATE_TOO_LARGE,
        )
    state = known.state.__pydantic_validator__.validate_json(body)
    return StreamState(state, known.version, size_bytes, known.time_us), snapshot


def clipped(message: str) -> str:
    """The message, cut to a length that fits in a receipt."""
    return message[:MAX_MESSAGE_CHARACTERS].encode(errors="replace").decode()


def _accepted(received: ReceivedCommand, typed: TypedCommand, known: StreamState, keep: bool) -> Decision:
    aggregate, envelope, stream = typed.aggregate, received.envelope, typed.stream
    state, version, kind = known.state, known.version, type(aggregate.initial)
    events = _materialised(aggregate, aggregate.decide(typed.command, state))
    if not events:
        return answered(received, "accepted", version)
    # the command may have waited, or its sender's clock may be behind; readers of several streams order events by time,
    # so within a stream no event is earlier than the one before it
    commanded_us = timestamp_us(envelope.time)
    time_us, event_time = max(commanded_us, known.time_us), received.time
    if time_us != commanded_us:
        event_time = format_time(EPOCH + timedelta(microseconds=time_us))
    source, stream_json = f"/headwater/{aggregate.name}", orjson.dumps(stream)[:-1]
    entries, recorded, size_bytes, receipt_bytes = [], [], 0, 0
    for event in events:
        version += 1
        body = event.__pydantic_serializer__.to_json(event)
        # evolve with the event as every replay will read it
        event = read_back(event, body)  # noqa: PLW2901
        if aggregate.identity.of(event) != typed.aggregate_id:
            raise BadDecision(f'"{event.type}" belongs to another "{aggregate.name}" than "{stream}"')
        if event.sealed_fields is not None:
            try:
                body = event.sealed_fields.sealed_json(body, typed.aggregate_id)
            except ValueError as error:
                raise BadDecision(f'"{event.type}" cannot be encrypted: {error}') from error
        event_id = f"{stream}/{version}"
        value = encode_event(
            envelope, event_time, received.recorded_time, source, event.type, event.version, version, body
        )
        if (event_bytes := entry_size(event_id, value)) > MAX_ENTRY_BYTES:
            raise BadDecision(
                f'event "{event_id[:200]}" would have {event_bytes} bytes, but the limit is {MAX_ENTRY_BYTES}; nothing '
                f'was changed: make "{event.type}" smaller, or split it into several events',
                EVENT_TOO_LARGE,
            )
        size_bytes += len(value)
        if size_bytes > MAX_EVENTS_BYTES:
            raise _too_many(aggregate, f"more than {MAX_EVENTS_BYTES} bytes of events")
        entries.append(Entry(topics.EVENTS, event_id, value, time_us // 1_000))
        event_json = b'{"id":%b/%d","type":"%b","position":"%d:' % (
            stream_json, version, event.type.encode(), received.partition,
        )  # fmt: skip
        recorded.append(event_json)
        receipt_bytes += len(event_json) + _POSITION_BYTES
        state = aggregate.evolve(state, event)
        if type(state) is not kind:
            raise BadDecision(
                f'"evolve" of "{aggregate.name}" returned {_named(state)} for "{event.type}": return a {kind.__name__}'
            )
    after, snapshot = StreamState(state, version, known.size_bytes + size_bytes, time_us), None
    if keep:
        after, snapshot = kept(aggregate, stream, after)
        size_bytes += len(snapshot)
    receipt = decided_head(received, "accepted", version)
    receipt_bytes += len(receipt) + size_of(received.key)
    if receipt_bytes > MAX_ENTRY_BYTES:
        raise _too_many(aggregate, f"a receipt of {receipt_bytes} bytes")
    return Decision(
        received.key, envelope.id, envelope.type, received.fingerprint, stream, "accepted", receipt,
        tuple(entries), tuple(recorded), after, snapshot, size_bytes + receipt_bytes, begins=known.version == 0,
        sealed=received.sealed,
    )  # fmt: skip


def _materialised(aggregate: AnyAggregate, made: Iterable[Event]) -> tuple[Event, ...]:
    """The result of `decide`, read once: it may be a generator, and a generator may be endless."""
    if type(made) is not list and type(made) is not tuple:
        if not isinstance(made, Iterable) or isinstance(made, BaseModel | str | bytes):
            raise BadDecision(
                f'"decide" of "{aggregate.name}" returned {_named(made)}: '
                "return a list of events, empty if nothing changes"
            )
        made = islice(made, MAX_EVENTS + 1)
    events = tuple(made)
    if len(events) > MAX_EVENTS:
        raise _too_many(aggregate, f"more than {MAX_EVENTS} events")
    for event in events:
        if type(event) not in aggregate.events.values():
            raise BadDecision(
                f'"decide" of "{aggregate.name}" made {_named(event)}, which "evolve" does not handle: '
                'add the class to the annotation of "evolve"'
            )
    return events


def decided_head(received: ReceivedCommand, outcome: Outcome, version: int, error: ReceiptError | None = None) -> bytes:
    """The receipt as JSON, up to its events."""
    envelope = received.envelope
    head = ReceiptHead(
        envelope.id,
        envelope.type,
        envelope.stream,
        outcome,
        version,
        received.fingerprint,
        received.time,
        envelope.origin or CLIENT,
        error,
        envelope.actor,
        received.sealed,
    )
    return head.to_json()


def without_personal(reason: ReceiptError, typed: TypedCommand, known: StreamState) -> ReceiptError:
    """The reason of a rejection without personal texts of the command and the state, which a rule may have repeated."""
    if not typed.aggregate.is_personal:
        return reason
    values = list[Any]()
    for model, fields in ((typed.command, typed.command.sealed_fields), (known.state, typed.aggregate.sealed_fields)):
        if fields is not None:
            values += fields.values(orjson.loads(model.__pydantic_serializer__.to_json(model)))
    message, code = reason.message, reason.code
    for text in sorted(texts_in(values), key=len, reverse=True):
        message, code = message.replace(text, HIDDEN), code.replace(text, HIDDEN)
    return ReceiptError(code, clipped(message), reason.expected, reason.actual)


def _text(rejected: Rejected, name: str, value: object, maximum: int) -> str:
    if not isinstance(value, str):
        reason = f'is {_named(value)}, not text: raise Rejected("code", f"... {{value}} ...")'
    elif len(text := str.__str__(value)) > maximum:  # the plain text, also of an enum
        reason = f"has {len(text)} characters, but at most {maximum} are allowed: shorten it"
    else:
        try:
            text.encode()
            return text
        except UnicodeEncodeError:
            reason = "contains an unpaired surrogate, which JSON cannot hold: decode it with errors='replace'"
    raise BadDecision(f"the {name} of a Rejected {reason}") from rejected


def _too_many(aggregate: AnyAggregate, what: str) -> BadDecision:
    return BadDecision(
        f'"decide" of "{aggregate.name}" made {what} for one command; nothing was changed: '
        "send several smaller commands",
        TOO_MANY_EVENTS,
    )


def _named(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


# Spans of decisions, which end with the transactions that they have in common


def begin_decision(command: Envelope) -> Span | None:
    """The span of the decision on a command, whose context its events carry; None if its trace is not sampled."""
    if command.traceparent is None or not spans.is_on():
        return None
    facts = {
        "headwater.command.type": command.type,
        "headwater.command.id": command.id,
        "headwater.stream": command.stream,
    }
    return spans.continued(f"decide {command.type}", command.traceparent, "consumer", facts)


def note_decision(span: Span, decision: Decision | None, began_ns: int) -> None:
    """Say in its span what was decided, and how long that took.

    decision: None: the command was answered before, or is a dead letter. began_ns: of the clock of performance.
    """
    rule_us = (time.perf_counter_ns() - began_ns) // 1_000
    if decision is None:
        span.note({"headwater.outcome": "repeated", "headwater.rule_us": rule_us})
        return
    facts = {"headwater.outcome": decision.outcome, "headwater.events": len(decision.events)}
    span.note({**facts, "headwater.rule_us": rule_us}, error="failed" if decision.outcome == "failed" else "")


def end_committed(role: str, members: Collection[Span], began_ns: int, records: int) -> None:
    """End the spans of messages whose transaction is committed now; it has a span too.

    began_ns: of the transaction, since 1970. records: how many messages it has.
    """
    facts: Facts = {"headwater.role": role, "headwater.records": records}
    spans.end_together("transaction", members, began_ns, time.time_ns(), facts)
