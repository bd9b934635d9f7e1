"""Tests of one aggregate: given events, when a command is decided, then events or a rejection."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar

import orjson
from pydantic import BaseModel

from headwater.commands.codec import fingerprint_of, fold, read_command, read_event, read_snapshot
from headwater.commands.declaring.aggregate import Aggregate, Command, Event, Message
from headwater.commands.declaring.registry import CommandType
from headwater.commands.errors import BadDecision
from headwater.commands.handling.decision import ReceivedCommand, StreamState, attempt, kept
from headwater.commands.receipt import Receipt, ReceiptError, receipt_json
from headwater.commands.testing.past import COMMAND_ID, START, Happened, Past, as_recorded, envelope_of
from headwater.eventlog.envelope import Envelope, decode, format_time


def difference(title: str, expected: Sequence[Message], actual: Sequence[Message]) -> str:
    """The fields of all messages line by line: those expected and missing with -, those unexpected with +."""
    lines = difflib.ndiff([*_lines(expected)], [*_lines(actual)])
    shown = [f"  {line}" for line in lines if not line.startswith("?")]
    return "\n".join([f"{title} (-: expected, +: actual)", *shown])


def listed(messages: Sequence[Message]) -> str:
    """The messages with their fields, one field per line."""
    return "\n".join(f"    {line}" for line in _lines(messages))


def _lines(messages: Iterable[Message]) -> Iterable[str]:
    for message in messages:
        yield message.type
        data = orjson.loads(message.__pydantic_serializer__.to_json(message))
        for name, value in data.items():
            yield f"    {name}: {orjson.dumps(value).decode()}"


State = TypeVar("State", bound=BaseModel)


class GivenStream(Generic[State]):
    """An aggregate after events.

    aggregate: its declaration.
    stream: `type/id`; None before its first event or command.
    version: the number of its events.
    now: the time of the next command.
    """

    def __init__(self, aggregate: Aggregate[State], stream: str | None, known: StreamState, now: datetime) -> None:
        self.aggregate, self.stream, self.now = aggregate, stream, now
        self._known = known

    @property
    def state(self) -> State:
        """The current state, read back from its snapshot."""
        state: State = self._known.state
        return state

    @property
    def version(self) -> int:
        """The version of the stream, which is its number of events."""
        return self._known.version

    def when(self, command: Command) -> Decided[State]:
        """Decide a command, as the handler does.

        Raises the errors that the handler answers with `failed`: MalformedCommand, BadDecision, and any error of
        `decide`, `evolve` and the validators of a state, except Rejected. Raises TypeError if the aggregate does not
        declare the command, and ValueError if the command is for another stream than the events.
        """
        kind = self.aggregate.commands.get(getattr(command, "type", ""))
        if kind is None or type(command) is not kind:
            raise TypeError(f'"{self.aggregate.name}" does not decide {command!r}: use one of its commands')
        typed = read_command(CommandType(self.aggregate, kind), command.__pydantic_serializer__.to_json(command))
        if self.stream not in (None, typed.stream):
            raise ValueError(f'the command is for "{typed.stream}", but the events before it are of "{self.stream}"')
        envelope = Envelope(COMMAND_ID, kind.type, typed.stream, self.now, {})
        now = format_time(self.now)
        received = ReceivedCommand(envelope, now, fingerprint_of(kind.type, typed.body, None), 0, now, COMMAND_ID)
        decision = attempt(received, typed, self._known, keep=True)
        events = tuple(read_event(self.aggregate, decode(entry.value)) for entry in decision.events)
        receipt = Receipt.from_json(receipt_json(decision.receipt, decision.recorded, range(len(decision.recorded))))
        known = decision.after or self._known
        return Decided(self.aggregate, typed.stream, known, self.now, kind.type, events, receipt.error)


class Decided(GivenStream[State]):
    """The outcome of a command: the `then…` methods check it, and `when` decides the next command.

    events: its events, read back from the log. rejected: code and message if it was rejected, else None.
    """

    def __init__(
        self,
        aggregate: Aggregate[State],
        stream: str,
        known: StreamState,
        now: datetime,
        command_type: str,
        events: tuple[Event, ...],
        rejected: ReceiptError | None,
    ) -> None:
        super().__init__(aggregate, stream, known, now)
        self.events, self.rejected = events, rejected
        self._subject = f'"{command_type}" on "{stream}"'

    def then(self, *events: Event) -> Decided[State]:
        """Expect exactly these events, in this order; raises AssertionError that shows the difference."""
        __tracebackhide__ = True
        expected = [_read_back(self.aggregate, event) for event in events]
        if self.rejected is not None:
            raise AssertionError(
                f"{self._subject} was rejected: {_reason(self.rejected)}\n  expected:\n{listed(expected)}"
            )
        if expected != [*self.events]:
            raise AssertionError(difference(f"{self._subject} recorded other events", expected, self.events))
        return self

    def then_nothing(self) -> Decided[State]:
        """Expect that the command is accepted and has no events; raises AssertionError if not."""
        __tracebackhide__ = True
        return self.then()

    def then_rejected(self, code: str, *, saying: str = "") -> Decided[State]:
        """Expect that the command is rejected; raises AssertionError if not.

        code: the code of the Rejected. saying: a part of its message.
        """
        __tracebackhide__ = True
        if self.rejected is None:
            outcome = f"recorded:\n{listed(self.events)}" if self.events else "was accepted and changed nothing"
            raise AssertionError(f'{self._subject} was not rejected with "{code}", but {outcome}')
        if self.rejected.code != code or saying not in self.rejected.message:
            also = f", saying {saying!r}" if saying else ""
            raise AssertionError(
                f'{self._subject} was not rejected with "{code}"{also}, but with {_reason(self.rejected)}'
            )
        return self


def given_stream(aggregate: Aggregate[State], events: Sequence[Happened]) -> GivenStream[State]:
    """The stream after `events`, each stored and read back."""
    past = Past()
    for event in events:
        kind = getattr(event, "kind", type(event))
        if isinstance(kind, type) and issubclass(kind, Event) and aggregate.events.get(kind.type) is not kind:
            raise TypeError(f'"{aggregate.name}" has no event {kind.__name__}: add it to the annotation of "evolve"')
        past.add(event, aggregate)
    if not events:
        return GivenStream(aggregate, None, StreamState(aggregate.initial, 0), START)
    envelopes = [envelope_of(record) for record in past.records]
    streams = sorted({envelope.stream for envelope in envelopes})
    if len(streams) > 1:
        raise ValueError(f"the events are of several streams, {', '.join(streams)}: use events of one stream")
    state, version = fold(aggregate, envelopes)
    if type(state) is not type(aggregate.initial):
        raise BadDecision(
            f'"evolve" of "{aggregate.name}" returned {state!r}: return a {type(aggregate.initial).__name__}'
        )
    _, snapshot = kept(aggregate, streams[0], StreamState(state, version))
    return GivenStream(aggregate, streams[0], StreamState(*read_snapshot(aggregate, snapshot), len(snapshot)), past.now)


def _read_back(aggregate: Aggregate[Any], event: Event) -> Event:
    """An expected event as it would be read from the log, so that it can be compared."""
    if not isinstance(event, Event):
        raise TypeError(f"{event!r} is not an event: expect events")
    stored = as_recorded(event)
    if aggregate.events.get(event.type) is not stored.kind:
        raise TypeError(f'"{event.type}" is not an event of "{aggregate.name}"')
    return stored.kind.model_validate_json(stored.data)


def _reason(error: ReceiptError) -> str:
    return f'"{error.code}": {error.message}'
