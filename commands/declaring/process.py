"""The declaration of a process: commands and timers that follow from events of several aggregates.

    def react(event: Placed | Paid | TimedOut, state: Fulfilment) -> Reaction[Fulfilment]: ...

    fulfilment = Process(name="fulfilment", key="order_id", initial=Fulfilment(), starts=(Placed,), react=react)

A process sees events, its own timers (`TimedOut`), and its own commands that were refused (`Refused`). It sees all of
them with a delay. So its commands may be late, and their aggregates decide that a late command does nothing.
"""

from __future__ import annotations

import hashlib
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Generic, Literal, TypeVar

import orjson
from pydantic import BaseModel

from commands.declaring.aggregate import AGGREGATE_NAME, Command, Event
from commands.declaring.registry import CommandRegistry
from commands.errors import DeclarationError
from eventlog.modules import DEFAULT_MODULES, find

ROOM = "commands.processes"

State = TypeVar("State", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class TimedOut:
    """Given to a process when one of its timers fires."""

    timer: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Given to a process when one of its commands was refused.

    command: as the process sent it. outcome: `rejected` by a rule of the aggregate, `conflict` with another version, or
    `failed` (the command could not be read, or the aggregate's code failed). code, message: those of the receipt; the
    code is stable, for programs.
    """

    command: Command
    outcome: Literal["rejected", "conflict", "failed"]
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Reaction(Generic[State]):
    """The reaction to an event.

    state: the new state. commands: the commands to send. timers: timers to set, by name, counted from the time of the
    event; setting a running timer again replaces it; None cancels it. ended: delete the instance and its timers.
    """

    state: State
    commands: Sequence[Command] = ()
    timers: Mapping[str, timedelta | None] = field(default_factory=dict)
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Process(Generic[State]):
    """One kind of process. Register it by assigning it in a module of HEADWATER_MODULES.

    name: part of the ids of its commands, so it must not change. key: the field of all its events that names the
    instance. initial: the state before the first event. starts: the events that begin an instance; other events without
    an instance are ignored. react: `(event, state) -> Reaction`, pure; the events are read from its annotation, with
    `TimedOut` if it sets timers, and `Refused` if it handles refused commands. begins: what a newly deployed process
    sees first: "now" is the events from its deployment on, "origin" is all events of the log, and timers that were due
    in the past fire at once.
    """

    name: str
    key: str
    initial: State
    starts: tuple[type[Event], ...]
    react: Callable[[Any, State], Reaction[State]]
    begins: Literal["now", "origin"] = "now"
    events: Mapping[str, type[Event]] = field(init=False)
    sees_refusals: bool = field(init=False, default=False)
    """Whether `react` accepts Refused."""
    shape: str = field(init=False)
    """Digest of the state's schema."""

    def __post_init__(self) -> None:
        if not AGGREGATE_NAME.fullmatch(self.name):
            raise DeclarationError(f'"{self.name}" is not a process name: use a-z, 0-9 and _')
        if self.begins not in ("now", "origin"):
            raise DeclarationError(f'process "{self.name}" begins at "{self.begins}": use "now" or "origin"')
        if not self.initial.model_config.get("frozen"):
            raise DeclarationError(f'the state of "{self.name}" is mutable: make its model frozen')
        annotation = typing.get_type_hints(self.react).get("event")
        union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
        found: dict[str, type[Event]] = {}
        for member in typing.get_args(annotation) if union else (annotation,):
            if member is TimedOut:
                continue
            if member is Refused:
                object.__setattr__(self, "sees_refusals", True)
                continue
            if not (isinstance(member, type) and issubclass(member, Event) and hasattr(member, "type")):
                raise DeclarationError(
                    f'"react" of "{self.name}" needs an argument "event" annotated with Event classes, TimedOut and '
                    f"Refused; found {member!r}"
                )
            if self.key not in member.model_fields:
                raise DeclarationError(f'"{member.type}" has no field "{self.key}", the key of process "{self.name}"')
            found[member.type] = member
        unhandled = [event.type for event in self.starts if event.type not in found]
        if unhandled or not self.starts:
            raise DeclarationError(
                f'process "{self.name}" must start with events that "react" handles; it does not handle {unhandled}'
            )
        object.__setattr__(self, "events", MappingProxyType(found))
        schema = orjson.dumps(type(self.initial).model_json_schema(), option=orjson.OPT_SORT_KEYS)
        object.__setattr__(self, "shape", hashlib.blake2b(schema, digest_size=8).hexdigest())


AnyProcess = Process[Any]


class ProcessRegistry:
    """The processes of a deployment. processes: by name. by_event: those that handle an event type."""

    def __init__(self, found: Iterable[tuple[str, AnyProcess]]) -> None:
        """Take (module, process) pairs; raises DeclarationError naming both modules if two have the same name."""
        modules: dict[str, str] = {}
        processes: dict[str, AnyProcess] = {}
        by_event: dict[str, list[AnyProcess]] = {}
        for module, process in found:
            if process.name in processes:
                raise DeclarationError(
                    f'"{modules[process.name]}" and "{module}" both declare a process "{process.name}": rename one'
                )
            modules[process.name], processes[process.name] = module, process
            for event_type in process.events:
                by_event.setdefault(event_type, []).append(process)
        self.processes: Mapping[str, AnyProcess] = MappingProxyType(processes)
        self.by_event: Mapping[str, Sequence[AnyProcess]] = MappingProxyType(by_event)

    @classmethod
    def load(cls, modules: Sequence[str] = DEFAULT_MODULES) -> ProcessRegistry:
        """The processes of a deployment that loads `modules` (see `LogSettings.modules`).

        Raises DeclarationError if a process handles an event of a shipped domain that is not in `modules`.
        """
        found, commands = find(modules, Process, ROOM), CommandRegistry.load(modules)
        for module, process in found:
            for event in process.events.values():
                if domain := commands.absent_domain(event):
                    raise DeclarationError(
                        f'process "{process.name}" handles "{event.type}" of the shipped domain "{domain}", which this '
                        f'deployment does not have: add "{domain}" to HEADWATER_MODULES (declared in "{module}")'
                    )
        return cls(found)
