"""The declaration of an aggregate: its messages and its three pure functions."""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticUndefined

from commands.declaring.steps import Change
from commands.declaring.upcasting import History, HistoryError, kind_of
from commands.errors import DeclarationError

TYPE_NAME = re.compile(r"[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*")
AGGREGATE_NAME = re.compile(r"[a-z][a-z0-9_]*")
RESERVED_NAMES = frozenset({"headwater", "heartbeat", "progress"})

State = TypeVar("State", bound=BaseModel)
Kind = TypeVar("Kind", bound="Message")


class Message(BaseModel):
    """Base of commands and events: frozen, without unknown fields, with an explicit storage name."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    type: ClassVar[str]
    id_field: ClassVar[str]
    """The field with the aggregate's id; set by the Aggregate that the message belongs to."""
    declared_by: ClassVar[Any]
    """The Aggregate that the message belongs to; if several declare it, the first one."""

    def __init_subclass__(cls, *, type: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not type:
            return
        if not TYPE_NAME.fullmatch(type):
            raise DeclarationError(f'"{type}" is not a message type: write it like "listing.price_changed"')
        cls.type = type


class Command(Message):
    """A request to an aggregate: `class ChangePrice(Command, type="listing.change_price")`."""


class Event(Message):
    """Something that happened: `class PriceChanged(Event, type="listing.price_changed")`.

    The type is part of the storage format: it stays if the class is renamed. So are the fields: to change them, raise
    `version` and list the changes in `history` (see `declaring/steps.py`); then older events are read as the current
    version. An event contains what views need, because a view sees one event at a time: for example the previous price
    and the city.
    """

    version: ClassVar[int] = 1
    history: ClassVar[History] = History(1, (), {})

    def __init_subclass__(cls, *, version: int = 1, history: Sequence[Change] = (), **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.version = version

    @classmethod
    def __pydantic_init_subclass__(cls, *, version: int = 1, history: Sequence[Change] = (), **kwargs: Any) -> None:
        # pydantic knows the fields only at this point
        fields = {info.alias or name: info for name, info in cls.model_fields.items()}
        for name, info in fields.items():
            if info.default not in (PydanticUndefined, None) or info.default_factory is not None:
                raise cls._declaration_error(
                    f'its field "{name}" has a default, which Spark does not know: remove it; for a new field, raise '
                    f'the version and add default("{name}", …) to the history'
                )
        required = [name for name, info in fields.items() if not is_nullable(info.annotation)]
        try:
            cls.history = History(
                version, history, {name: kind_of(info.annotation) for name, info in fields.items()}, required
            )
        except HistoryError as error:
            raise cls._declaration_error(str(error)) from error

    @classmethod
    def _declaration_error(cls, reason: str) -> DeclarationError:
        file = getattr(sys.modules.get(cls.__module__), "__file__", None) or cls.__module__
        return DeclarationError(f'{file}: event "{getattr(cls, "type", cls.__name__)}": {reason}')


@dataclass(frozen=True, slots=True)
class Aggregate(Generic[State]):
    """One kind of aggregate. Register it by assigning it in a module of HEADWATER_MODULES.

    name: the first part of its streams (`listing` in `listing/L1`) and of its message types.
    id_field: the field of every command and event with the aggregate's id.
    initial: the state before the first event.
    decide: `(command, state) -> events`, at most 10,000, as a list or a generator; raises `Rejected` if a rule refuses
    the command; no events means that nothing has to change.
    evolve: `(state, event) -> state`; must accept every event that `decide` makes. The event was read back from JSON.
    state_version: raise it if `evolve` makes another state of the same events, but the fields of the state are the
    same: then all snapshots are folded again. If the fields change, this happens automatically.

    The command and event types are read from the annotations of `decide` and `evolve`.
    """

    name: str
    id_field: str
    initial: State
    decide: Callable[[Any, State], Iterable[Event]]
    evolve: Callable[[State, Any], State]
    state_version: int = 1
    commands: dict[str, type[Command]] = field(init=False)
    events: dict[str, type[Event]] = field(init=False)
    shape: str = field(init=False)
    """Digest of the state's schema and version; a snapshot with another shape is folded again from the events."""

    def __post_init__(self) -> None:
        if not AGGREGATE_NAME.fullmatch(self.name):
            raise DeclarationError(f'"{self.name}" is not an aggregate name: use a-z, 0-9 and _')
        if self.name in RESERVED_NAMES:
            raise DeclarationError(f'"{self.name}" is reserved by Headwater: use another name')
        if not self.initial.model_config.get("frozen"):
            raise DeclarationError(f'the state of "{self.name}" is mutable: make its model frozen')
        for function in (self.decide, self.evolve):
            if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
                raise DeclarationError(f'"{function.__name__}" of "{self.name}" is asynchronous: write it with "def"')
        object.__setattr__(self, "commands", self._messages(self.decide, "command", Command))
        object.__setattr__(self, "events", self._messages(self.evolve, "event", Event))
        object.__setattr__(self, "shape", self._shape())

    def _shape(self) -> str:
        schema = orjson.dumps(type(self.initial).model_json_schema(), option=orjson.OPT_SORT_KEYS)
        if self.state_version != 1:
            schema += b"\n%d" % self.state_version
        return hashlib.blake2b(schema, digest_size=8).hexdigest()

    def _messages(self, function: Callable[..., Any], argument: str, kind: type[Kind]) -> dict[str, type[Kind]]:
        """The message classes in the annotation of an argument of `function`, by storage name."""
        annotation = typing.get_type_hints(function).get(argument)
        union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
        members = typing.get_args(annotation) if union else (annotation,)
        found: dict[str, type[Kind]] = {}
        for member in members:
            if not (isinstance(member, type) and issubclass(member, kind) and hasattr(member, "type")):
                raise DeclarationError(
                    f'"{function.__name__}" of "{self.name}" needs an argument "{argument}" annotated with its '
                    f"{kind.__name__} classes, each with a type; found {member!r}"
                )
            if not member.type.startswith(f"{self.name}."):
                raise DeclarationError(f'"{member.type}" belongs to "{self.name}": its type must start "{self.name}."')
            if self.id_field not in member.model_fields:
                raise DeclarationError(f'"{member.type}" has no field "{self.id_field}", the id of "{self.name}"')
            if member.type in found:
                raise DeclarationError(f'two classes of "{self.name}" have the type "{member.type}": rename one')
            member.id_field = self.id_field
            if "declared_by" not in vars(member):
                member.declared_by = self
            found[member.type] = member
        return found


def is_nullable(annotation: Any) -> bool:
    """Whether a field with this annotation may be null."""
    return annotation in (None, Any) or type(None) in typing.get_args(annotation)
