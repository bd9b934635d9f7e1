"""One instance of a process: what it knows, its timers, and the commands that follow from an event. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson
from pydantic import ValidationError

from commands.aggregate import Command, Event
from commands.errors import UnreadableProcess
from commands.process import AnyProcess, Reaction, TimedOut
from eventlog import topics
from eventlog.envelope import Envelope, encode, stream_name, timestamp_ms
from eventlog.ports import Entry


class Cause(NamedTuple):
    """What a command follows from: part of its id, when it was, and what it carries on."""

    id: str
    time: datetime
    causation_id: str
    correlation_id: str | None
    traceparent: str | None = None


class Timer(NamedTuple):
    """When a timer runs out (ms since 1970), and which event set it."""

    due_ms: int
    causation_id: str
    correlation_id: str | None


@dataclass(frozen=True, slots=True)
class Instance:
    """What is known of one instance.

    seen: the last event of each stream; whatever is no later was handled. missed: ids of events that could not be, and
    became dead letters; these are handled when they come again.
    """

    process: AnyProcess
    key: str
    state: Any
    seen: Mapping[str, int] = field(default_factory=dict)
    timers: Mapping[str, Timer] = field(default_factory=dict)
    missed: frozenset[str] = frozenset()

    @property
    def record_key(self) -> str:
        """Its key in the topics `process-inbox` and `processes`."""
        return f"{self.process.name}/{self.key}"

    def handle(self, event: Event, envelope: Envelope, now: datetime) -> tuple[Instance | None, list[Entry]]:
        """The instance after an event (None: it has ended), and its commands; unchanged where it has seen the event."""
        last = self.seen.get(envelope.stream, 0)
        if envelope.sequence <= last and envelope.id not in self.missed:
            return self, []
        cause = Cause(
            envelope.id, envelope.time, envelope.id, envelope.correlation_id or envelope.id, envelope.traceparent
        )
        seen = {**self.seen, envelope.stream: max(last, envelope.sequence)}
        noted = replace(self, seen=seen, missed=self.missed - {envelope.id})
        return noted._after(self.process.react(event, self.state), cause, now)

    def ring(self, name: str, now: datetime) -> tuple[Instance | None, list[Entry]]:
        """The instance after its timer `name` has run out."""
        timer = self.timers[name]
        due = datetime.fromtimestamp(timer.due_ms / 1000, UTC)
        cause = Cause(f"{self.key}/{name}@{timer.due_ms}", due, timer.causation_id, timer.correlation_id)
        rest = {other: set_for for other, set_for in self.timers.items() if other != name}
        return replace(self, timers=rest)._after(self.process.react(TimedOut(name), self.state), cause, now)

    def _after(self, reaction: Reaction[Any], cause: Cause, now: datetime) -> tuple[Instance | None, list[Entry]]:
        time = max(now, cause.time)
        commands = [
            command_entry(command, f"{self.process.name}:{cause.id}:{step}", cause, time)
            for step, command in enumerate(reaction.commands)
        ]
        if reaction.ended:
            return None, commands
        timers = dict(self.timers)
        for name, within in reaction.timers.items():
            timers.pop(name, None)
            if within is not None:
                timers[name] = Timer(timestamp_ms(cause.time + within), cause.causation_id, cause.correlation_id)
        return replace(self, state=reaction.state, timers=timers), commands


def begin(process: AnyProcess, key: str, event: Event) -> Instance | None:
    """A new instance, where `event` starts one."""
    return Instance(process, key, process.initial) if isinstance(event, process.starts) else None


def command_entry(command: Command, command_id: str, cause: Cause, time: datetime) -> Entry:
    """The record of `commands`; the same id whenever the same event comes again."""
    stream = stream_name(command.type.partition(".")[0], str(getattr(command, command.id_field)))
    envelope = Envelope(
        id=command_id,
        type=command.type,
        stream=stream,
        time=time,
        data={},
        source=f"/headwater/{command_id.partition(':')[0]}",
        correlation_id=cause.correlation_id,
        causation_id=cause.causation_id,
        traceparent=cause.traceparent,
    )
    body = command.__pydantic_serializer__.to_json(command)
    return Entry(topics.COMMANDS, stream, encode(envelope, body), timestamp_ms(time))


def write_instance(instance: Instance) -> bytes:
    """The value of a record of `processes`."""
    timers = {name: timer._asdict() for name, timer in instance.timers.items()}
    state = instance.state.__pydantic_serializer__.to_json(instance.state)
    document: dict[str, Any] = {"shape": instance.process.shape, "seen": instance.seen, "timers": timers}
    if instance.missed:
        document["missed"] = sorted(instance.missed)
    return orjson.dumps(document | {"state": orjson.Fragment(state)})


def read_instance(process: AnyProcess, key: str, value: bytes) -> Instance:
    """The instance of a record; raises UnreadableProcess where it does not fit the state as it is declared now."""
    try:
        document = orjson.loads(value)
        state = type(process.initial).model_validate_json(orjson.dumps(document["state"]))
        timers = {name: Timer(**timer) for name, timer in document["timers"].items()}
        return Instance(process, key, state, document["seen"], timers, frozenset(document.get("missed", ())))
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError, ValidationError) as error:
        raise UnreadableProcess(process.name, key, str(error)) from error
