"""All aggregates of a deployment, by name and by message type."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from headwater.commands.declaring.aggregate import Aggregate, Command, Event, Message, by_recorded_type
from headwater.commands.declaring.id_checks import id_claims
from headwater.commands.errors import DeclarationError, UnknownCommand
from headwater.eventlog.programs.modules import by_name, domain_of, find

AnyAggregate = Aggregate[Any]


@dataclass(frozen=True, slots=True)
class CommandType:
    """One type of command: its class and the aggregate that decides it."""

    aggregate: AnyAggregate
    command: type[Command]


class CommandRegistry:
    """What the aggregates of a deployment accept and record.

    aggregates: by name. commands: by command type. public: those that clients may send. events: class of each event, by
    event type. recorded: likewise, also by earlier types.
    personal: the names of aggregates that have personal fields.
    """

    def __init__(self, found: Iterable[tuple[str, AnyAggregate]]) -> None:
        """Take (module, aggregate) pairs; raises DeclarationError naming both modules if two have the same name."""
        aggregates = by_name(found, attrgetter("name"), "an aggregate", DeclarationError)
        for aggregate in aggregates.values():
            aggregate.check_claims()
        # message types start with their aggregate's name, so they are unique if the names are
        self.aggregates: Mapping[str, AnyAggregate] = MappingProxyType(aggregates)
        self.commands: Mapping[str, CommandType] = MappingProxyType(
            {name: CommandType(a, command) for a in aggregates.values() for name, command in a.commands.items()}
        )
        self.public: Mapping[str, CommandType] = MappingProxyType(
            {name: kind for name, kind in self.commands.items() if not kind.command.is_internal}
        )
        self.events: Mapping[str, type[Event]] = MappingProxyType(
            {name: event for a in aggregates.values() for name, event in a.events.items()}
        )
        self.recorded: Mapping[str, type[Event]] = MappingProxyType(by_recorded_type(self.events.values()))
        self.personal: frozenset[str] = frozenset(
            aggregate.name for aggregate in aggregates.values() if aggregate.is_personal
        )

    @classmethod
    def load(cls, modules: Sequence[str]) -> CommandRegistry:
        """The aggregates of a deployment that loads `modules` (see `LogSettings.modules`)."""
        return cls(find(modules, Aggregate))

    def types_of(self, event_type: str) -> tuple[str, ...]:
        """All types of the event that has, or had, this one; itself, if no event has."""
        event = self.recorded.get(event_type)
        return (event_type,) if event is None else event.history.types

    def why_not_recorded(self, event: type[Event]) -> str:
        """Why no aggregate of this deployment records `event`, and what to add; empty if one does.

        The text follows the name of the event in a sentence.
        """
        if self.events.get(event.type) is event:
            return ""
        if domain := domain_of(event.__module__):
            return _of_domain(domain)
        unknown = f", which no aggregate of this deployment records: {self._add(event)}"
        return "" if event.type in self.events else unknown

    def why_not_decided(self, command: type[Command]) -> str:
        """Why no aggregate of this deployment decides `command`, in the same way."""
        if command.type in self.commands:
            return ""
        if domain := domain_of(command.__module__):
            return _of_domain(domain)
        return f", which no aggregate of this deployment decides: {self._add(command)}"

    def missing_part(self, event: type[Event], key: Collection[str]) -> tuple[AnyAggregate, str] | None:
        """The aggregate of an event, and the part of its id that a key lacks, so that callers share what has this key.

        That is a part which the API fills with a claim of the caller, if the key has another part of the id. key:
        fields of the event. None: nothing is lacking, or the key is no id at all, such as that of a statistic. Raises
        DeclarationError if commands fill the id with different claims.
        """
        aggregate = self.aggregates.get(event.type.partition(".")[0])
        if aggregate is None or not set(key) & set(aggregate.identity.names):
            return None
        claimed = id_claims(aggregate.name, aggregate.identity, aggregate.commands)
        lacking = [name for name in aggregate.identity.names if name in claimed and name not in key]
        return (aggregate, lacking[0]) if lacking else None

    def _add(self, message: type[Message]) -> str:
        """What to do so that an aggregate of the deployment has this message."""
        declared_by: AnyAggregate | None = getattr(message, "declared_by", None)
        name = message.type.partition(".")[0]
        if declared_by is not None:
            place = f" ({declared_by.place})" if declared_by.place else ""
            return f'add "{message.__module__}", which has the aggregate "{name}"{place}, to HEADWATER_MODULES'
        function = "decide" if issubclass(message, Command) else "evolve"
        if name in self.aggregates:
            return f'name "{message.__name__}" in the annotation of "{function}" of the aggregate "{name}"'
        return f'add the module of the aggregate "{name}", whose "{function}" handles it, to HEADWATER_MODULES'

    def command(self, command_type: str) -> CommandType:
        """The command type with this name; raises UnknownCommand."""
        return _found(self.commands, command_type)

    def public_command(self, command_type: str) -> CommandType:
        """Likewise of a command that a client sends: an internal one is unknown."""
        return _found(self.public, command_type)


def _found(commands: Mapping[str, CommandType], command_type: str) -> CommandType:
    if command_type not in commands:
        raise UnknownCommand(command_type, tuple(commands))
    return commands[command_type]


def _of_domain(domain: str) -> str:
    return f' of the sample "{domain}", which this deployment does not have: add "{domain}" to HEADWATER_MODULES'
