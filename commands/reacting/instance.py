"""One instance of a process: its state, its timers, and its reaction to an event. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec
import orjson
from pydantic import ValidationError

from headwater.commands.codec import command_record
from headwater.commands.declaring.aggregate import Command, Event
from headwater.commands.declaring.personal import PersonalFields
from headwater.commands.declaring.process import AnyProcess, Reaction, Refused, TimedOut
from headwater.commands.declaring.row_inputs import Row, RowDeleted
from headwater.commands.errors import BadReaction, MalformedCommand, TooLarge, UnreadableProcess
from headwater.commands.handling.refusals import return_address
from headwater.commands.reacting.causes import (
    Cause,
    Places,
    SourcePlace,
    Timer,
    digest,
    due_ms,
    has_passed,
    passed,
    timer_id,
)
from headwater.commands.reacting.row_changes import RowSeen
from headwater.eventlog.actors import PROCESS_ACTOR
from headwater.eventlog.envelope import PROCESS, Envelope, stream_name, timestamp_ms
from headwater.eventlog.errors import KeysUnavailable
from headwater.eventlog.hidden_values import error_text
from headwater.eventlog.limits import MAX_ENTRY_BYTES, MAX_INSTANCE_KEY_BYTES, entry_size, size_of
from headwater.eventlog.ports import Entry
from headwater.eventlog.tracing.spans import is_sampled

MAX_RETRIED: Final = 100
MAX_COMMANDS: Final = 10_000
MAX_REACTION_BYTES: Final = 16 * 1024 * 1024
"""Of all commands of one reaction, which are one transaction."""
Seen = Event | Row | RowDeleted[Any] | Refused
"""What `react` gets, except its timers."""


class Step(NamedTuple):
    """The reaction to one event, ready to be appended. instance, value: None if it has ended."""

    instance: Instance | None
    value: bytes | None
    commands: list[Entry]


@dataclass(frozen=True, slots=True)
class Instance:
    """The known state of one instance.

    places: the last record of each source and type; records that are not later were handled.
    retried: digests of the ids of the last records that were handled after later ones of their source.
    stopped: digest of the id of the event (or timer) at which `react` failed; until it is handled, all later events and
    timers wait.
    rows: the last change of each row of a view, which is not a change if it comes again.
    """

    process: AnyProcess
    key: str
    state: Any
    timers: Mapping[str, Timer] = field(default_factory=dict)
    stopped: str | None = None
    rows: Mapping[str, RowSeen] = field(default_factory=dict)
    places: Places = field(default_factory=dict)
    retried: tuple[str, ...] = ()

    @property
    def has_begun(self) -> bool:
        """Whether it has handled anything; it may have stopped before."""
        return bool(self.places or self.retried)

    @property
    def record_key(self) -> str:
        """Its key in the topics `process-inbox` and `processes`."""
        return f"{self.process.name}/{self.key}"

    def handle(self, event: Seen, envelope: Envelope, place: SourcePlace, now: datetime) -> Step | None:
        """The reaction to an event; None if it was seen before. Raises whatever `react` raises, and BadReaction.

        place: where a router has read it.
        """
        noted = self._noting(envelope, place)
        if noted is None:
            return None
        cause_id = envelope.id
        handled = self.process.rows.get(envelope.type)
        if handled is not None and handled.is_of_view:
            row, change = RowSeen.after(self.rows, envelope.id)
            if change is None:  # its place is noted, because the deletions of rows have places of their own
                return Step(noted, write_instance(noted), [])
            noted = replace(noted, rows={**self.rows, row: change})
            cause_id = change.cause_id(envelope.id)
        cause = Cause(
            cause_id,
            envelope.time,
            envelope.causation_id or envelope.id if isinstance(event, Refused) else envelope.id,
            envelope.correlation_id or envelope.id,
            envelope.traceparent,
        )
        return noted._after(self.process.react(event, self.state), cause, now)

    def _noting(self, envelope: Envelope, place: SourcePlace) -> Instance | None:
        """The instance that remembers that it has handled a record; None if it has handled it before."""
        if place.is_retried:
            if digest(envelope.id) in self.retried:
                return None
            return replace(self, retried=(*self.retried, digest(envelope.id))[-MAX_RETRIED:], stopped=None)
        if has_passed(self.places, place, envelope.type):
            return None
        return replace(self, places=passed(self.places, place, envelope.type), stopped=None)

    def fire(self, name: str, now: datetime, traceparent: str | None = None) -> Step:
        """The reaction to the timer `name`, which fires. Raises whatever `react` raises, and BadReaction.

        traceparent: the context that its commands carry on.
        """
        timer = self.timers[name]
        due = datetime.fromtimestamp(timer.due_ms / 1000, UTC)
        cause = Cause(timer_id(self.key, name, timer), due, timer.causation_id, timer.correlation_id, traceparent)
        rest = {other: set_for for other, set_for in self.timers.items() if other != name}
        fired = replace(self, timers=rest, stopped=None)
        return fired._after(self.process.react(TimedOut(name), self.state), cause, now)

    def stop(self, cause_id: str) -> Instance:
        """The instance that could not handle the event or timer of this id."""
        return replace(self, stopped=digest(cause_id))

    def resume(self) -> Instance:
        """The instance without its stop."""
        return replace(self, stopped=None)

    def _after(self, reaction: object, cause: Cause, now: datetime) -> Step:
        if not isinstance(reaction, Reaction):
            raise BadReaction(f'"react" of "{self.process.name}" returned {type(reaction).__name__}, not a Reaction')
        commands = list(self._commands(reaction, cause, now))
        if reaction.ended:
            return Step(None, None, commands)
        after, value = _checked(replace(self, state=reaction.state, timers=self._timers(reaction, cause)))
        return Step(after, value, commands)

    def _commands(self, reaction: Reaction[Any], cause: Cause, now: datetime) -> Iterator[Entry]:
        total_bytes = 0
        # it may be an endless generator
        for step, command in enumerate(reaction.commands):
            if not isinstance(command, Command):
                raise BadReaction(f'"{self.process.name}" sends {type(command).__name__}, not a Command')
            entry = command_entry(self, command, cause, step, now)
            total_bytes += len(entry.value or b"")
            if step >= MAX_COMMANDS or total_bytes > MAX_REACTION_BYTES:
                raise BadReaction(
                    f'"{self.process.name}" sends more than {MAX_COMMANDS} commands or {MAX_REACTION_BYTES} bytes at '
                    "once: send fewer, and the rest when a timer fires"
                )
            try:
                type(command).model_validate_json(command.__pydantic_serializer__.to_json(command))
            except ValidationError as error:
                raise BadReaction(f'"{command.type}" does not match its own model: {error_text(error)}') from error
            yield entry

    def _timers(self, reaction: Reaction[Any], cause: Cause) -> dict[str, Timer]:
        timers = dict(self.timers)
        for name, within in reaction.timers.items():
            if not isinstance(name, str) or not isinstance(within, timedelta | None):
                raise BadReaction(f"the timer {name!r} is {within!r}: use a text as name, and a timedelta or None")
            if (size_bytes := size_of(name)) > MAX_INSTANCE_KEY_BYTES:
                raise BadReaction(
                    f'the name of the timer "{name[:200]}…" has {size_bytes} bytes, but the limit is '
                    f"{MAX_INSTANCE_KEY_BYTES}: use a shorter name"
                )
            timers.pop(name, None)
            if within is not None:
                context = cause.traceparent if cause.traceparent and is_sampled(cause.traceparent) else None
                timers[name] = Timer(due_ms(cause.time, within), cause.causation_id, cause.correlation_id, context)
        return timers


def command_entry(instance: Instance, command: Command, cause: Cause, step: int, now: datetime) -> Entry:
    """The record of `commands`; it has the same id if the same event comes again. Raises BadReaction."""
    process = instance.process
    stream = stream_name(command.type.partition(".")[0], command.identity.of(command))
    envelope = Envelope(
        id=f"{process.name}:{cause.id}:{step}",
        type=command.type,
        stream=stream,
        time=max(now, cause.time),
        data={},
        source=return_address(process.name, instance.key if process.sees_refusals else None),
        correlation_id=cause.correlation_id,
        causation_id=cause.causation_id,
        traceparent=cause.traceparent,
        origin=PROCESS,
        actor=f"{PROCESS_ACTOR}{process.name}",
    )
    body = command.__pydantic_serializer__.to_json(command)
    if command.sealed_fields is not None:
        body = _sealed(command.type, command.sealed_fields, body, command.identity.of(command))
    # with the current time, because Kafka refuses a command with a time far ahead: a captured database's clock may be
    try:
        return command_record(envelope, command.identity, body, timestamp_ms(now))
    except (MalformedCommand, TooLarge) as error:
        reason = error if isinstance(error, TooLarge) else error.details[0]["msg"]
        raise BadReaction(f'"{command.type}" cannot be sent: {reason}') from error


class _Document(msgspec.Struct, omit_defaults=True):
    """The value of a record of `processes`. state: as it was written, because pydantic reads larger integers."""

    state: msgspec.Raw
    shape: str
    timers: Mapping[str, Timer]
    stopped: str | None = None
    rows: Mapping[str, RowSeen] = {}
    places: Places = {}
    retried: tuple[str, ...] = ()


_DOCUMENT: Final = msgspec.json.Decoder(_Document)


def _sealed(name: str, fields: PersonalFields, body: bytes, subject: str) -> bytes:
    """A command or state as JSON with ciphertexts; raises BadReaction or KeysUnavailable."""
    try:
        return fields.sealed_json(body, subject)
    except ValueError as error:
        raise BadReaction(f'"{name}" cannot be encrypted: {error}') from error


def write_instance(instance: Instance) -> bytes:
    """The value of a record of `processes`."""
    process = instance.process
    state = instance.state.__pydantic_serializer__.to_json(instance.state)
    if process.sealed_fields is not None:
        state = _sealed(instance.record_key, process.sealed_fields, state, instance.key)
    return msgspec.json.encode(
        _Document(
            msgspec.Raw(state), process.shape, instance.timers,
            instance.stopped, instance.rows, instance.places, instance.retried,
        )
    )  # fmt: skip


def read_instance(process: AnyProcess, key: str, value: bytes) -> Instance:
    """The instance of a record; raises UnreadableProcess if it does not match the state as it is declared now."""
    try:
        document = _DOCUMENT.decode(value)
        body = bytes(document.state)
        if process.sealed_fields is not None:
            body = process.sealed_fields.opened_json(body)
        state = type(process.initial).model_validate_json(body)
        return Instance(
            process, key, state, document.timers, document.stopped, document.rows, document.places, document.retried
        )
    except KeysUnavailable:
        raise  # it can be read once the keys can
    except (Exception, SystemExit, GeneratorExit) as error:  # noqa: BLE001 - a user's validators may raise anything
        is_personal = process.sealed_fields is not None
        text = f"{type(error).__name__}: {error_text(error, is_personal=is_personal)}"
        raise UnreadableProcess(process.name, key, text) from (None if is_personal else error)


def waits_for(value: bytes | None, event_id: str) -> bool:
    """Whether the instance of a record handles an event or a timer if it comes again: it has stopped at it."""
    try:
        document = orjson.loads(value or b"{}")
    except orjson.JSONDecodeError:
        return False
    if not isinstance(document, dict):
        return False
    return document.get("stopped") == digest(event_id)


def _checked(instance: Instance) -> tuple[Instance, bytes]:
    """The instance as it is read at the next start, and its record; raises BadReaction if it could not be read."""
    state, expected = instance.state, type(instance.process.initial)
    if type(state) is not expected:
        raise BadReaction(f'the state of "{instance.process.name}" is {type(state).__name__}, not {expected.__name__}')
    value = write_instance(instance)
    if (size_bytes := entry_size(instance.record_key, value)) > MAX_ENTRY_BYTES:
        raise BadReaction(
            f'"{instance.record_key}" would have {size_bytes} bytes, but the limit is {MAX_ENTRY_BYTES}: keep less'
        )
    try:
        return read_instance(instance.process, instance.key, value), value
    except UnreadableProcess as error:
        raise BadReaction(
            f'the state of "{instance.record_key}" does not match its own model: {error_text(error)}'
        ) from error
