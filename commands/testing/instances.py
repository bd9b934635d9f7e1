"""Tests of one instance of a process: given events and rows, when the next one comes, then commands and timers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import count
from typing import Any, Final, Generic, TypeVar

import orjson
from msgspec import structs
from pydantic import BaseModel

from headwater.commands.codec import read_command
from headwater.commands.declaring.aggregate import Command, Event
from headwater.commands.declaring.process import AnyProcess, Process, ProcessRegistry, Refused, TimedOut
from headwater.commands.declaring.registry import CommandRegistry, CommandType
from headwater.commands.declaring.row_inputs import Row, RowDeleted, described
from headwater.commands.declaring.view_rows import ViewRow
from headwater.commands.errors import BadReaction
from headwater.commands.handling.refusals import refusals
from headwater.commands.reacting.causes import place_of
from headwater.commands.reacting.instance import Instance, Step, read_instance
from headwater.commands.reacting.router import Router
from headwater.commands.reacting.row_changes import CapturedRows, PublishedRows, RowChange
from headwater.commands.reacting.row_router import RowRouter
from headwater.commands.reacting.turn import next_step, timed_out
from headwater.commands.receipt import Receipt, ReceiptError, key_of
from headwater.commands.testing.past import Happened, Past, Recorded, aggregate_of, is_declared
from headwater.commands.testing.streams import difference
from headwater.eventlog import topics
from headwater.eventlog.capturing.changes import Change, Operation, key_as_text
from headwater.eventlog.capturing.declaring import Captured
from headwater.eventlog.capturing.positions import WalPosition
from headwater.eventlog.envelope import Envelope, decode, encode, format_time, timestamp_ms
from headwater.eventlog.letters import Letter
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import Entry, EventLog, Record

ROW: Final = "row"
"""The key of rows of a view whose class does not say it."""
KEY_COLUMN: Final = "key"


def change_of(log: EventLog, seen: Row | RowDeleted[Any], time: datetime, number: int, key: str = ROW) -> RowChange:
    """The change that says this of a row. number: counts changes. key: of a row of a view without a column `key`."""
    table = seen.table if isinstance(seen, RowDeleted) else type(seen)
    if issubclass(table, Captured):
        return _captured(log, table, seen, time, number)
    return PublishedRows().changed(_published(table, seen, time, number, key))


def _captured(
    log: EventLog, table: type[Captured], seen: Row | RowDeleted[Any], time: datetime, number: int
) -> RowChange:
    if isinstance(seen, RowDeleted):
        row, operation = None, Operation.DELETE
        key = [seen.key] if len(table.key) == 1 else orjson.loads(seen.key)
    else:
        row, operation = seen.model_dump(mode="json", by_alias=True), Operation.UPDATE
        key = [row[column] for column in table.key]
    at, position = timestamp_ms(time), WalPosition(number, number, order=1, transaction=1)
    record_key = orjson.dumps(dict(zip(table.key, key, strict=True))).decode()
    change = Change(operation, key_as_text(key), row, position=position, time_ms=at)
    return CapturedRows(log, table).changed(change, Record(table.topic(), 0, number, record_key, None, at))


def _published(table: type[ViewRow], seen: Row | RowDeleted[Any], time: datetime, number: int, key: str) -> Record:
    topic, at = table.topic(), timestamp_ms(time)
    if isinstance(seen, RowDeleted):
        return Record(topic, 0, number, seen.key, None, at)
    row = seen.model_dump(mode="json", by_alias=True)
    for column in table.json_columns:
        row[column] = None if row[column] is None else orjson.dumps(row[column]).decode()
    key = str(row.get(KEY_COLUMN, key))
    envelope = Envelope(f"{table.view}@1.g1/{key}@{number}", topic, key, time, row)
    return Record(topic, 0, number, key, encode(envelope), at)


State = TypeVar("State", bound=BaseModel)
Seen = Happened | Row | RowDeleted[Any] | TimedOut | Refused
"""What an instance of a process can see."""


class GivenInstance(Generic[State]):
    """An instance of a process after events, timers and refusals."""

    def __init__(self, process: Process[State], seen: Sequence[Seen]) -> None:
        self.process, self._seen = process, tuple(seen)
        self._play = _Play(process)
        for event in self._seen:
            self._play.see(event)

    @property
    def state(self) -> State | None:
        """The state of the instance, read back; None if it has not begun, or has ended."""
        return self._play.instance.state if self._play.instance else None

    @property
    def timers(self) -> Mapping[str, timedelta]:
        """The running timers, with the time until each fires."""
        return self._play.timers

    def when(self, seen: Seen) -> Reacted[State]:
        """Let the instance handle an event, a row, a timer or a refusal.

        Raises the errors that stop the instance in production: BadReaction, and any error of `react`. Raises TypeError
        if the process does not handle `seen`, and ValueError if it is impossible: an event or a row of another
        instance, a timer that is not running, or the refusal of a command that was not sent.
        """
        return Reacted(self.process, (*self._seen, seen))


class Reacted(GivenInstance[State]):
    """The result of one reaction: the `then…` methods check it, and `when` continues.

    commands: those that were sent, as their aggregates read them. ended: whether the instance ended.
    """

    def __init__(self, process: Process[State], seen: Sequence[Seen]) -> None:
        *before, last = seen
        super().__init__(process, before)
        self._seen = tuple(seen)
        self._timers_before = dict(self._play.timers)
        had_begun = self._play.instance is not None
        step = self._play.see(last)
        self.commands: tuple[Command, ...] = tuple(map(_read, step.commands)) if step else ()
        self.ended = step is not None and step.instance is None
        subject = f'"{process.name}" after {_named(last)}'
        self._subject = subject if step or had_begun else f"{subject}, which it ignored because it had not begun,"

    def then(self, *commands: Command) -> Reacted[State]:
        """Expect exactly these commands, in this order; raises AssertionError that shows the difference."""
        __tracebackhide__ = True
        expected = [_read_back(command) for command in commands]
        if expected != [*self.commands]:
            raise AssertionError(difference(f"{self._subject} sent other commands", expected, self.commands))
        return self

    def then_timers(self, timers: Mapping[str, timedelta]) -> Reacted[State]:
        """Expect exactly these running timers, with the time until each fires; raises AssertionError if not."""
        __tracebackhide__ = True
        if dict(timers) != dict(self.timers):
            expected, actual = _shown(timers), _shown(self.timers)
            raise AssertionError(f"{self._subject} has other timers\n    expected: {expected}\n    actual:   {actual}")
        return self

    def then_nothing(self) -> Reacted[State]:
        """Expect no commands, unchanged timers, and no end; raises AssertionError if not."""
        __tracebackhide__ = True
        self.then().then_timers(self._timers_before)
        if self.ended:
            raise AssertionError(f"{self._subject} has ended")
        return self

    def then_ended(self) -> Reacted[State]:
        """Expect that the instance has ended, with all its timers; raises AssertionError if not."""
        __tracebackhide__ = True
        if not self.ended:
            raise AssertionError(f"{self._subject} has not ended")
        return self


class _Play:
    """An instance, and the log of its test."""

    def __init__(self, process: AnyProcess) -> None:
        self.process = process
        self.instance: Instance | None = None
        self._key: str | None = None
        self._past, self._sent, self._offsets = Past(), list[Record](), count()
        declared = {id(aggregate): aggregate for aggregate in map(aggregate_of, process.events.values())}
        self._registry = CommandRegistry((aggregate.name, aggregate) for aggregate in declared.values())
        self._processes = ProcessRegistry([("given", process)])
        self._router, self._log = Router(self._registry, self._processes), MemoryLog(1)

    @property
    def timers(self) -> Mapping[str, timedelta]:
        now_ms = timestamp_ms(self._past.now)
        if self.instance is None:
            return {}
        return {name: timedelta(milliseconds=timer.due_ms - now_ms) for name, timer in self.instance.timers.items()}

    def see(self, seen: Seen) -> Step | None:
        registry = self._registry
        match seen:
            case TimedOut():
                value = self._timed_out(seen)
            case Refused():
                value = self._refused(seen)
                declared = aggregate_of(type(seen.command))
                registry = CommandRegistry([(declared.name, declared)])
            case Captured() | ViewRow() | RowDeleted():
                value = self._changed(seen)
            case _:
                value = self._happened(seen)
        envelope = decode(value)
        place = place_of(value, envelope)
        step = next_step(registry, self.process, self._key or "", self.instance, envelope, place, self._past.now)
        if step is None:
            return None
        # as after a restart
        ended = step.instance is None or step.value is None
        self.instance = None if ended else read_instance(self.process, self._key or "", step.value or b"")
        for entry in step.commands:
            self._sent.append(Record(entry.topic, 0, next(self._offsets), entry.key, entry.value, entry.timestamp_ms))
        return step

    def _happened(self, event: Happened) -> bytes | None:
        kind = event.kind if isinstance(event, Recorded) else type(event)
        if self.process.events.get(getattr(kind, "type", "")) is not kind:
            raise TypeError(f'"{self.process.name}" does not handle {event!r}: add it to the annotation of "event"')
        (entry,) = self._router.route(self._past.add(event), lambda _: True)
        if entry.topic == topics.DEAD_LETTERS:
            raise BadReaction(Letter.from_json(entry.value or b"").reason)
        return self._for_instance(entry, f'"{kind.type}"')

    def _changed(self, seen: Row | RowDeleted[Any]) -> bytes | None:
        is_deletion, table = (True, seen.table) if isinstance(seen, RowDeleted) else (False, type(seen))
        handled = [row for row in self.process.rows.values() if (row.table, row.is_deletion) == (table, is_deletion)]
        if not handled:
            raise TypeError(f'"{self.process.name}" does not handle {seen!r}: add it to the annotation of "event"')
        change = change_of(self._log, seen, self._past.now, next(self._offsets), self._key or ROW)
        copies = list(RowRouter(self._log, self._processes, handled[0].topic).copies(self.process, change, 0))
        if not copies:
            raise ValueError(f'{_named(seen)} is for no instance: its column "{handled[0].column}" is None')
        return self._for_instance(copies[0], _named(seen))

    def _for_instance(self, copy: Entry, name: str) -> bytes | None:
        key = copy.key.partition("/")[2]
        if self._key not in (None, key):
            raise ValueError(f'{name} is for the instance "{key}", but what came before it is for "{self._key}"')
        self._key = key
        return copy.value

    def _timed_out(self, seen: TimedOut) -> bytes | None:
        if self.instance is None or seen.timer not in self.instance.timers:
            raise ValueError(
                f'"{self.process.name}" has no running timer "{seen.timer}"; running: {_shown(self.timers)}'
            )
        value = timed_out(self.instance, seen.timer, 0).value
        self._past.now = max(self._past.now, decode(value).time)
        return value

    def _refused(self, seen: Refused) -> bytes | None:
        if not self.process.sees_refusals:
            raise TypeError(f'"{self.process.name}" does not see refusals: add Refused to the annotation of "event"')
        wanted = orjson.loads(seen.command.__pydantic_serializer__.to_json(seen.command))
        for sent in reversed(self._sent):
            command = decode(sent.value)
            if (command.type, command.data) == (seen.command.type, wanted):
                return self._refusal(sent, command, seen)
        raise ValueError(
            f'"{self.process.name}" cannot see a refusal of {seen.command!r}: it has not sent this command'
        )

    def _refusal(self, sent: Record, command: Envelope, seen: Refused) -> bytes | None:
        receipt = Receipt(
            command_id=command.id,
            type=command.type,
            stream=command.stream,
            outcome=seen.outcome,
            version=0,
            fingerprint="",
            time=format_time(command.time),
            error=ReceiptError(seen.code, seen.message),
        )
        # a new offset, because it distinguishes refusals of the same command
        record = structs.replace(sent, offset=next(self._offsets))
        (entry,) = refusals([(record, command)], {key_of(command): receipt.to_json()}, timestamp_ms(self._past.now))
        return entry.value


def _read(entry: Entry) -> Command:
    """A command that was sent, as the handler of its aggregate reads it; raises MalformedCommand."""
    envelope = decode(entry.value)
    # if two classes have this type, the one declared last
    *_, kind = (
        command_type
        for command_type in _every(Command)
        if vars(command_type).get("type") == envelope.type and is_declared(command_type)
    )
    return read_command(CommandType(aggregate_of(kind), kind), envelope.data, is_sealed=True).command


def _every(kind: type[Command]) -> Iterator[type[Command]]:
    for subclass in kind.__subclasses__():
        yield subclass
        yield from _every(subclass)


def _read_back(command: Command) -> Command:
    """An expected command as its aggregate would read it."""
    if not isinstance(command, Command):
        raise TypeError(f"{command!r} is not a command: expect commands")
    kind = CommandType(aggregate_of(type(command)), type(command))
    return read_command(kind, command.__pydantic_serializer__.to_json(command)).command


def _shown(timers: Mapping[str, timedelta]) -> str:
    return ", ".join(f'"{name}" in {within}' for name, within in sorted(timers.items())) or "no timers"


def _named(seen: Any) -> str:
    match seen:
        case Recorded():
            return f'"{seen.kind.type}"'
        case Event():
            return f'"{seen.type}"'
        case Refused():
            return f'the refusal of "{seen.command.type}"'
        case Captured() | ViewRow():
            return f"a row of {described(type(seen))}"
        case RowDeleted():
            return f"the deletion of a row of {described(seen.table)}"
        case _:
            return f'the timer "{seen.timer}"'
