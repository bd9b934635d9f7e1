"""The declaration of a process: commands and timers that follow from events of several aggregates.

    def react(event: Placed | Paid | TimedOut, state: Fulfilment) -> Reaction[Fulfilment]: ...

    fulfilment = Process(name="fulfilment", key="order_id", initial=Fulfilment(), starts=(Placed,), react=react)

A process sees events, rows of captured tables and of views, its own timers (`TimedOut`), and its own commands that were
refused (`Refused`). It sees all of them with a delay. So its commands may be late, and their aggregates decide that a
late command does nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import timedelta
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Generic, Literal, TypeVar

import orjson
from pydantic import BaseModel

from headwater.commands.declaring.aggregate import AGGREGATE_NAME, Command, Event, by_recorded_type
from headwater.commands.declaring.argument_checks import (
    annotations_of,
    check_classes,
    check_function,
    check_state,
    members_of,
)
from headwater.commands.declaring.field_kinds import field_kinds
from headwater.commands.declaring.id_checks import id_claims
from headwater.commands.declaring.ids import Identity
from headwater.commands.declaring.named_commands import named_commands
from headwater.commands.declaring.personal import PersonalFields
from headwater.commands.declaring.personal_marks import is_personal
from headwater.commands.declaring.personal_reading import personal_fields
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.declaring.row_inputs import Row, RowDeleted, RowInput, row_input
from headwater.commands.errors import DeclarationError
from headwater.eventlog.capturing.declaring import Captured, SourceRegistry
from headwater.eventlog.declaring import arguments_checked
from headwater.eventlog.places import called_from, declared_in
from headwater.eventlog.programs.modules import by_name, find

State = TypeVar("State", bound=BaseModel)
Input = type[Event] | type[Row] | type[RowDeleted[Any]]
"""What can begin an instance."""


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

    state: the new state.
    commands: the commands to send.
    timers: timers to set, by name, counted from the time of the event; setting a running timer again replaces it; None
    cancels it.
    ended: delete the instance and its timers.
    """

    state: State
    commands: Sequence[Command] = ()
    timers: Mapping[str, timedelta | None] = field(default_factory=dict)
    ended: bool = False


@arguments_checked(
    lambda name, problem: DeclarationError(f'process "{name}": {problem}'),
    {
        "name": '"expiry"',
        "key": '"order_id"',
        "initial": "Waiting()",
        "starts": "(Placed,)",
        "react": "react",
    },
)
@dataclass(frozen=True, slots=True)
class Process(Generic[State]):
    """One kind of process. Register it by assigning it in a module of HEADWATER_MODULES.

    name: part of the ids of its commands, so it must not change.
    key: the field of all its events that names the instance, or a tuple of several fields; of a row, the column of this
    name, or if its class has no such column, the key of the row. A process with several fields handles no rows.
    initial: the state before the first event.
    starts: the inputs that begin an instance; others without an instance are ignored.
    react: `(event, state) -> Reaction`, pure; the inputs are read from its annotation: classes of events, captured
    classes such as `Customer` and classes derived from `ViewRow` for a row as it is now, `RowDeleted[Customer]`,
    `TimedOut` if it sets timers, and `Refused` if it handles refused commands.
    begins: what a newly deployed process sees first: "now" is what happens from its deployment on, "origin" is all
    events of the log and the last change of each row, and timers that were due in the past fire at once.
    """

    name: str
    key: str | tuple[str, ...]
    initial: State
    starts: tuple[Input, ...]
    react: Callable[[Any, State], Reaction[State]]
    begins: Literal["now", "origin"] = "now"
    identity: Identity = field(init=False, repr=False)
    """How `key` names an instance."""
    events: Mapping[str, type[Event]] = field(init=False)
    """The events that it handles, by every type under which they were recorded: each is an input of its own."""
    rows: Mapping[str, RowInput] = field(init=False)
    """What it handles of captured tables and views, by the type of the input."""
    starting: frozenset[str] = field(init=False)
    """The types of `starts`."""
    sees_refusals: bool = field(init=False, default=False)
    """Whether `react` accepts Refused."""
    shape: str = field(init=False)
    """Digest of the state's schema."""
    sealed_fields: PersonalFields | None = field(init=False, repr=False)
    """The personal fields of its state; None if it has none."""
    place: str = field(init=False, repr=False, compare=False)
    """Where it is declared, as `file:line`; empty if that is not known."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", called_from())
        if not isinstance(self.name, str) or not AGGREGATE_NAME.fullmatch(self.name):
            raise DeclarationError(f'"{self.name}" is not a process name: use a-z, 0-9 and _')
        if self.begins not in ("now", "origin"):
            raise DeclarationError(f'process "{self.name}" begins at "{self.begins}": use "now" or "origin"')
        try:
            object.__setattr__(self, "identity", Identity.of_names("key", self.key, '"order_id"'))
            check_state(self.initial)
            check_function("react", self.react, ("event", "state"))
            check_classes("starts", self.starts)
            annotation = annotations_of(self.react).get("event")
        except ValueError as error:
            raise DeclarationError(f'process "{self.name}": {error}') from error
        self._read_inputs(annotation)
        rows = {start: row_input(self.name, self._row_key, start) for start in self.starts}
        starting = {kind: row.name if row else getattr(kind, "type", None) for kind, row in rows.items()}
        unhandled = [str(name or kind) for kind, name in starting.items() if name not in {*self.events, *self.rows}]
        if unhandled or not self.starts:
            raise DeclarationError(
                f'process "{self.name}" must start with events or rows that "react" handles; it does not handle '
                f"{', '.join(unhandled)}: add them to its annotation of event"
                if unhandled
                else f'process "{self.name}" has no event that begins an instance: write starts=(Placed,)'
            )
        begun_by = {*starting.values()}
        begun_by |= {name for name, event in self.events.items() if event.type in begun_by}
        object.__setattr__(self, "starting", frozenset(begun_by))
        sealed = personal_fields(type(self.initial), self.name, subject="the key", is_state=True)
        object.__setattr__(self, "sealed_fields", sealed)
        schema = orjson.dumps(type(self.initial).model_json_schema(), option=orjson.OPT_SORT_KEYS)
        object.__setattr__(self, "shape", hashlib.blake2b(schema, digest_size=8).hexdigest())

    @property
    def is_personal(self) -> bool:
        """Whether its state, or an event that it handles, has personal fields."""
        return self.sealed_fields is not None or any(event.sealed_fields is not None for event in self.events.values())

    def _read_inputs(self, annotation: Any) -> None:
        events: dict[str, type[Event]] = {}
        rows: dict[str, RowInput] = {}
        for member in members_of(annotation):
            if member is TimedOut:
                continue
            if member is Refused:
                object.__setattr__(self, "sees_refusals", True)
            elif (row := row_input(self.name, self._row_key, member)) is not None:
                if self.identity.has_parts:
                    raise DeclarationError(
                        f'process "{self.name}" has a key of several fields, so it cannot handle rows of '
                        f'"{row.table.__name__}": handle them in a process of their own'
                    )
                if (other := rows.setdefault(row.name, row)) != row:
                    raise DeclarationError(
                        f'"{other.table.__name__}" and "{row.table.__name__}" in "react" of "{self.name}" are the same '
                        "rows: declare one class with the columns of both"
                    )
            else:
                events |= by_recorded_type([self._event(member)])
        for name in rows.keys() & events.keys():
            raise DeclarationError(f'"{name}" of "{self.name}" is both an event and a row: use two processes')
        object.__setattr__(self, "events", MappingProxyType(events))
        object.__setattr__(self, "rows", MappingProxyType(rows))

    def _event(self, member: Any) -> type[Event]:
        if not (isinstance(member, type) and issubclass(member, Event) and hasattr(member, "type")):
            raise DeclarationError(
                f'"react" of "{self.name}" needs an argument "event" annotated with Event classes, captured classes, '
                f"ViewRow classes, RowDeleted[…], TimedOut and Refused; found {member!r}"
            )
        for name in self.identity.names:
            if name not in member.model_fields:
                raise DeclarationError(f'"{member.type}" has no field "{name}", the key of process "{self.name}"')
            if is_personal(member.model_fields[name]):
                raise DeclarationError(
                    f'"{name}" of "{member.type}", the key of process "{self.name}", is personal, and names of '
                    "instances stay in plaintext: choose a field with a pseudonymous id"
                )
            if field_kinds(member)[name].nullable:
                raise DeclarationError(
                    f'"{name}" of "{member.type}", the key of process "{self.name}", may be null, which names no '
                    "instance: choose a field that always has a value"
                )
        return member

    @property
    def _row_key(self) -> str:
        """The key as the name of a column."""
        return self.key if isinstance(self.key, str) else ""


AnyProcess = Process[Any]


class ProcessRegistry:
    """The processes of a deployment.

    processes: by name.
    by_event: those that handle an event type.
    by_topic: those that handle rows of a captured table or a view, or their deletion, by the topic of the rows.
    tables: the captured ones among these, by their topics.
    """

    def __init__(self, found: Iterable[tuple[str, AnyProcess]]) -> None:
        """Take (module, process) pairs; raises DeclarationError naming both modules if two have the same name."""
        processes = by_name(found, attrgetter("name"), "a process", DeclarationError)
        by_event: dict[str, list[AnyProcess]] = {}
        by_topic: dict[str, list[AnyProcess]] = {}
        tables: dict[str, type[Captured]] = {}
        for process in processes.values():
            for event_type in process.events:
                by_event.setdefault(event_type, []).append(process)
            for topic in dict.fromkeys(row.topic for row in process.rows.values()):
                by_topic.setdefault(topic, []).append(process)
            tables |= {row.topic: row.table for row in process.rows.values() if issubclass(row.table, Captured)}
        self.processes: Mapping[str, AnyProcess] = MappingProxyType(processes)
        self.by_event: Mapping[str, Sequence[AnyProcess]] = MappingProxyType(by_event)
        self.by_topic: Mapping[str, Sequence[AnyProcess]] = MappingProxyType(by_topic)
        self.tables: Mapping[str, type[Captured]] = MappingProxyType(tables)

    @classmethod
    def load(cls, modules: Sequence[str]) -> ProcessRegistry:
        """The processes of a deployment that loads `modules` (see `LogSettings.modules`).

        Raises DeclarationError if a process handles an event, or sends a command, that no aggregate in `modules` has,
        or handles a table of a source that is not in `modules`.
        """
        processes, commands = find(modules, Process), CommandRegistry.load(modules)
        captured = {table for source in SourceRegistry.load(modules).sources.values() for table in source.tables}
        for module, process in processes:
            if problem := _problem(process, commands, captured):
                raise DeclarationError(f'process "{process.name}" {problem} ({declared_in(module, process)})')
        return cls(processes)


def _problem(process: AnyProcess, commands: CommandRegistry, captured: Set[type[Captured]]) -> str:
    """What a process needs, but the deployment lacks; empty if there is nothing."""
    for table in {row.table for row in process.rows.values() if issubclass(row.table, Captured)} - captured:
        return (
            f'handles rows of "{table.table}" of the source "{table.source_name}", which this deployment does not '
            f'have: add the module "{table.__module__}" to HEADWATER_MODULES'
        )
    for event in process.events.values():
        if problem := commands.why_not_recorded(event):
            return f'handles "{event.type}"{problem}'
        if process.sealed_fields is not None and (aggregate := commands.aggregates.get(event.type.partition(".")[0])):
            claimed = id_claims(aggregate.name, aggregate.identity, aggregate.commands)
            if not claimed.keys().isdisjoint(process.identity.names):
                process.sealed_fields.set_tenants(process.identity.names, claimed)
        if (missing := commands.missing_part(event, process.identity.names)) is not None:
            aggregate, part = missing
            has, fields = (
                ", ".join(f'"{name}"' for name in names) for names in (process.identity.names, aggregate.identity.names)
            )
            return (
                f'has the key {has} of "{event.type}" without "{part}", which the API fills with a '
                f"claim: instances of different callers would be one; write key=({fields})"
            )
    for command in named_commands(process.react, type(process.initial)):
        if problem := commands.why_not_decided(command):
            return f'sends "{command.type}"{problem}'
    return ""
