"""The declaration of an aggregate: its messages and its three pure functions."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticUndefined

from headwater.commands.declaring.argument_checks import (
    annotations_of,
    check_function,
    check_round_trip,
    check_state,
    members_of,
    quoted_value,
    take_arguments,
)
from headwater.commands.declaring.filled_fields import NotComplete, check_filled_fields
from headwater.commands.declaring.golden_files import unreadable_version
from headwater.commands.declaring.history import TYPE_NAME, History, Upcast, check_history
from headwater.commands.declaring.id_checks import check_id_fields, id_claims
from headwater.commands.declaring.ids import Identity
from headwater.commands.declaring.personal import PersonalFields
from headwater.commands.declaring.personal_reading import personal_fields
from headwater.commands.errors import DeclarationError
from headwater.eventlog.declaring import arguments_checked, must_be_version, shown
from headwater.eventlog.places import called_from

AGGREGATE_NAME = re.compile(r"[a-z][a-z0-9_]*")
RESERVED_NAMES = frozenset({"headwater", "heartbeat", "progress"})

_DOCUMENTATION = frozenset({"title", "description", "examples", "deprecated", "$comment"})
"""Members of a JSON schema that say nothing about which values are valid."""
_BY_NAME = frozenset({"properties", "patternProperties", "$defs", "dependentSchemas"})
"""Members whose own members have names of the user's, which may be words of JSON schema."""
_VALUES = frozenset({"default", "const", "enum", "required"})
"""Members that hold values, which are not schemas."""

State = TypeVar("State", bound=BaseModel)
Kind = TypeVar("Kind", bound="Message")


class Message(BaseModel):
    """Base of commands and events: frozen, without unknown fields, with an explicit storage name."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    type: ClassVar[str]
    id_field: ClassVar[str | tuple[str, ...]]
    """The field or fields with the aggregate's id; set by the Aggregate that the message belongs to."""
    identity: ClassVar[Identity]
    """How they make the id; set likewise."""
    declared_by: ClassVar[Any]
    """The Aggregate that the message belongs to; if several declare it, the first one."""
    sealed_fields: ClassVar[PersonalFields | None] = None
    """Its personal fields; set likewise. None: it has none, as nearly all messages."""

    def __init_subclass__(cls, *, type: str = "", **kwargs: Any) -> None:
        take_arguments(super().__init_subclass__, cls, kwargs, ("type",))
        if type == "":
            return
        if not isinstance(type, str) or not TYPE_NAME.fullmatch(type):
            raise DeclarationError(
                f'"{cls.__name__}": {quoted_value(type)} is not a message type: write it like "listing.price_changed"'
            )
        cls.type = type


class Command(Message):
    """A request to an aggregate: `class ChangePrice(Command, type="listing.change_price")`.

    With `internal=True`, only processes and outboxes may send it: over HTTP and for the Python client it is unknown.
    """

    is_internal: ClassVar[bool] = False

    def __init_subclass__(cls, *, internal: bool = False, **kwargs: Any) -> None:
        take_arguments(super().__init_subclass__, cls, kwargs, ("type", "internal"))
        cls.is_internal = internal


class Event(Message):
    """Something that happened: `class PriceChanged(Event, type="listing.price_changed")`.

    The type is part of the storage format: it stays if the class is renamed. So are the fields: to change them, raise
    `version`, and say in `history` how older data becomes current data (see `upcast`); then older events are read as
    the current version. An event contains what views need, because a view sees one event at a time: for example the
    previous price and the city.
    """

    version: ClassVar[int] = 1
    history: ClassVar[History] = History(1)

    def __init_subclass__(cls, *, version: int = 1, history: Sequence[Upcast] = (), **kwargs: Any) -> None:
        take_arguments(super().__init_subclass__, cls, kwargs, ("type", "version", "history"))
        cls.version = version

    @classmethod
    def __pydantic_init_subclass__(cls, *, version: int = 1, history: Sequence[Upcast] = (), **kwargs: Any) -> None:
        # pydantic knows the fields only at this point
        for name, info in cls.model_fields.items():
            if info.default not in (PydanticUndefined, None) or info.default_factory is not None:
                raise cls._declaration_error(
                    f'its field "{name}" has a default, which Spark does not know: remove it; for a new field, raise '
                    f'the version and add default("{name}", …) to the history'
                )
        try:
            must_be_version("version", version)
            check_history(history)
            cls.history = History(version, history, getattr(cls, "type", ""), cls)
        except ValueError as error:
            raise cls._declaration_error(str(error)) from error

    @classmethod
    def _declaration_error(cls, reason: str) -> DeclarationError:
        return DeclarationError(f'event "{getattr(cls, "type", cls.__name__)}": {reason}')


@arguments_checked(
    lambda name, problem: DeclarationError(f'aggregate "{name}": {problem}'),
    {
        "name": '"account"',
        "id_field": '"account_id"',
        "initial": "Account()",
        "decide": "decide",
        "evolve": "evolve",
    },
)
@dataclass(frozen=True, slots=True)
class Aggregate(Generic[State]):
    """One kind of aggregate. Register it by assigning it in a module of HEADWATER_MODULES.

    name: the first part of its streams (`listing` in `listing/L1`) and of its message types.
    id_field: the field of every command and event with the aggregate's id; or a tuple of several fields, such as
    `("tenant", "account_id")`, whose streams are named like `account/acme/A1`, with each part percent-encoded.
    initial: the state before the first event.
    decide: `(command, state) -> events`, at most 10,000, as a list or a generator; raises `Rejected` if a rule refuses
    the command; no events means that nothing has to change.
    evolve: `(state, event) -> state`; must accept every event that `decide` makes. The event was read back from JSON.
    state_version: raise it if `evolve` makes another state of the same events, but the fields of the state are the
    same: then all snapshots are folded again. If the fields change, this happens automatically.

    The command and event types are read from the annotations of `decide` and `evolve`.
    """

    name: str
    id_field: str | tuple[str, ...]
    initial: State
    decide: Callable[[Any, State], Iterable[Event]]
    evolve: Callable[[State, Any], State]
    state_version: int = 1
    commands: dict[str, type[Command]] = field(init=False)
    events: dict[str, type[Event]] = field(init=False)
    recorded: dict[str, type[Event]] = field(init=False, repr=False)
    """The events by every type under which they were recorded, earlier ones too."""
    identity: Identity = field(init=False, repr=False)
    """How `id_field` makes the id."""
    shape: str = field(init=False)
    """Digest of the state's fields and `state_version`, without documentation; a snapshot with another shape is folded
    again from the events."""
    place: str = field(init=False, repr=False, compare=False)
    """Where it is declared, as `file:line`; empty if that is not known."""
    sealed_fields: PersonalFields | None = field(init=False, repr=False)
    """The personal fields of its state; None if it has none."""
    is_personal: bool = field(init=False, repr=False)
    """Whether its state, or any of its messages, has personal fields."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", called_from())
        if not isinstance(self.name, str) or not AGGREGATE_NAME.fullmatch(self.name):
            raise DeclarationError(f'"{self.name}" is not an aggregate name: use a-z, 0-9 and _')
        if self.name in RESERVED_NAMES:
            raise DeclarationError(f'"{self.name}" is reserved by Headwater: use another name')
        try:
            identity = Identity.of_names("id_field", self.id_field, f'"{self.name}_id"')
            must_be_version("state_version", self.state_version)
            check_state(self.initial)
            check_function("decide", self.decide, ("command", "state"))
            check_function("evolve", self.evolve, ("state", "event"))
        except ValueError as error:
            raise DeclarationError(f'aggregate "{self.name}": {error}') from error
        object.__setattr__(self, "identity", identity)
        object.__setattr__(self, "commands", self._messages(self.decide, "command", Command))
        object.__setattr__(self, "events", self._messages(self.evolve, "event", Event))
        self._check_histories()
        object.__setattr__(self, "recorded", by_recorded_type(self.events.values()))
        sealed = personal_fields(type(self.initial), self.name, subject="the id", is_state=True)
        object.__setattr__(self, "sealed_fields", sealed)
        self.check_claims()
        messages = (*self.commands.values(), *self.events.values())
        is_personal = sealed is not None or any(message.sealed_fields is not None for message in messages)
        object.__setattr__(self, "is_personal", is_personal)
        schema = type(self.initial).model_json_schema()
        if sealed is not None:  # snapshots with plaintext values must not stay
            schema["personal"] = sorted([personal_field.path, personal_field.of] for personal_field in sealed.all)
        text = orjson.dumps(undocumented(schema), option=orjson.OPT_SORT_KEYS)
        if self.state_version != 1:
            text += b"\n%d" % self.state_version
        object.__setattr__(self, "shape", hashlib.blake2b(text, digest_size=8).hexdigest())

    def check_claims(self) -> None:
        """Note which parts of the id the API fills, as far as the types of the commands are known already. Raises
        DeclarationError if commands fill it with different claims."""
        with suppress(NotComplete):
            claimed = id_claims(self.name, self.identity, self.commands)
            messages = (*self.commands.values(), *self.events.values())
            for fields in (self.sealed_fields, *(message.sealed_fields for message in messages)):
                if fields is not None:
                    fields.set_tenants(self.identity.names, claimed)

    def _check_histories(self) -> None:
        """Raise DeclarationError if a version of an event cannot be read, or has the type of another message."""
        for event in self.events.values():
            if problem := unreadable_version(event):
                raise DeclarationError(f'event "{event.type}": {problem}')
        owners = {name: name for name in self.commands}
        owners |= {name: name for name in self.events}
        for event in self.events.values():
            for name in event.history.types:
                if owners.setdefault(name, event.type) != event.type:
                    raise DeclarationError(
                        f'"{event.type}" was recorded as "{name}", which is a type of "{owners[name]}" too: recorded '
                        "events could not be told apart, so choose another type for the other one"
                    )

    def _messages(self, function: Callable[..., Any], argument: str, kind: type[Kind]) -> dict[str, type[Kind]]:
        """The message classes in the annotation of an argument of `function`, by storage name."""
        try:
            annotation = annotations_of(function).get(argument)
        except ValueError as error:
            raise DeclarationError(f'aggregate "{self.name}": {error}') from error
        messages: dict[str, type[Kind]] = {}
        for member in members_of(annotation):
            if not (isinstance(member, type) and issubclass(member, kind) and hasattr(member, "type")):
                raise DeclarationError(
                    f'"{function.__name__}" of "{self.name}" needs an argument "{argument}" annotated with its '
                    f"{kind.__name__} classes, each with a type; found {shown(member)}: "
                    f'write class Opened({kind.__name__}, type="{self.name}.…"), and {argument}: Opened'
                )
            if not member.type.startswith(f"{self.name}."):
                raise DeclarationError(f'"{member.type}" belongs to "{self.name}": its type must start "{self.name}."')
            try:
                check_round_trip(member)
            except ValueError as error:
                raise DeclarationError(f'"{member.type}": {error}') from error
            check_id_fields(self.name, self.identity, member)
            if member.type in messages:
                raise DeclarationError(f'two classes of "{self.name}" have the type "{member.type}": rename one')
            if issubclass(member, Command):
                check_filled_fields(member)
            member.id_field, member.identity = self.id_field, self.identity
            member.sealed_fields = personal_fields(member, member.type, ids=self.identity.names, subject="the id")
            if "declared_by" not in vars(member):
                member.declared_by = self
            messages[member.type] = member
        return messages


def by_recorded_type(events: Iterable[type[Event]]) -> dict[str, type[Event]]:
    """Events by every type under which they were recorded: the current one, and earlier ones (`recorded_as`)."""
    return {name: event for event in events for name in event.history.types}


def undocumented(schema: Any) -> Any:
    """A JSON schema without what only describes it: a changed docstring is no other schema."""
    if isinstance(schema, list):
        return [undocumented(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for name, value in schema.items():
        if name in _BY_NAME and isinstance(value, dict):
            kept[name] = {key: undocumented(item) for key, item in value.items()}
        elif name in _VALUES:
            kept[name] = value
        elif name not in _DOCUMENTATION:
            kept[name] = undocumented(value)
    return kept
