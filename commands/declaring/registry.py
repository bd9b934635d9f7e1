"""All aggregates of a deployment, by name and by message type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from commands.declaring.aggregate import Aggregate, Command, Event
from commands.errors import DeclarationError, UnknownCommand
from eventlog.modules import by_name, domain_of, find

ROOM = "commands.aggregates"

AnyAggregate = Aggregate[Any]


@dataclass(frozen=True, slots=True)
class CommandType:
    """One type of command: its class and the aggregate that decides it."""

    aggregate: AnyAggregate
    command: type[Command]


class CommandRegistry:
    """What the aggregates of a deployment accept and record.

    aggregates: by name. commands: by command type. events: class of each event, by event type.
    """

    def __init__(self, found: Iterable[tuple[str, AnyAggregate]]) -> None:
        """Take (module, aggregate) pairs; raises DeclarationError naming both modules if two have the same name."""
        aggregates = by_name(found, attrgetter("name"), "an aggregate", DeclarationError)
        # message types start with their aggregate's name, so they are unique if the names are
        self.aggregates: Mapping[str, AnyAggregate] = MappingProxyType(aggregates)
        self.commands: Mapping[str, CommandType] = MappingProxyType(
            {name: CommandType(a, command) for a in aggregates.values() for name, command in a.commands.items()}
        )
        self.events: Mapping[str, type[Event]] = MappingProxyType(
            {name: event for a in aggregates.values() for name, event in a.events.items()}
        )

    @classmethod
    def load(cls, modules: Sequence[str]) -> CommandRegistry:
        """The aggregates of a deployment that loads `modules` (see `LogSettings.modules`)."""
        return cls(find(modules, Aggregate, ROOM))

    def absent_domain(self, event: type[Event]) -> str | None:
        """The shipped domain that declares `event`, if no aggregate of this deployment records it."""
        return None if self.events.get(event.type) is event else domain_of(event.__module__)

    def command(self, command_type: str) -> CommandType:
        """The command type with this name; raises UnknownCommand."""
        found = self.commands.get(command_type)
        if found is None:
            raise UnknownCommand(command_type, tuple(self.commands))
        return found
