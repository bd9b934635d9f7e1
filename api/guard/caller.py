"""The caller of a request, and which rows and streams exist for a caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from fastapi import Request

from headwater.api.errors import Forbidden
from headwater.api.guard.scopes import ALL, EVERYTHING, OPERATE, PERSONAL, PLAIN, ROWS, Kind, Scopes
from headwater.api.requests.filters import MAX_VALUES, Filter
from headwater.commands.declaring.field_kinds import field_kinds
from headwater.commands.declaring.id_checks import id_claims
from headwater.commands.declaring.ids import SEPARATOR, Identity
from headwater.commands.declaring.registry import AnyAggregate, CommandRegistry
from headwater.eventlog.integers import fits_64_bits
from headwater.projections.stores.names import NUL, REPLACEMENT
from headwater.projections.table.types import ColumnType
from headwater.projections.view import View

_MAX_DIGITS: Final = 20
"""Of an integer of 64 bits, with its sign."""
STATE: Final = "caller"
"""Under which the state of a request has its caller."""
EVERYBODY: Final[tuple[Kind, str]] = ("streams", ALL)
OPERATORS: Final[tuple[Kind, str]] = (OPERATE, ALL)
Seen = tuple[tuple[str, tuple[Any, ...]], ...]
"""The values of each claim that parts of ids are filled with."""
EVERY_STREAM: Final[Seen] = ()
DECLARED: Final[Seen] = (("", ()),)
"""All streams of the aggregates that are declared here."""


def readable(view: View, claims: Mapping[str, Any]) -> tuple[Filter, ...]:
    """What rows must fulfil so that a caller with these claims may read them: nothing, if everybody may.

    A list of values is fulfilled by any of them. A claim that is missing, or has no value that the column can have, is
    fulfilled by no row.
    """
    return tuple(
        Filter(column, "in", claim_values(view.types[column], claims.get(claim.name)))
        for column, claim in view.readable_by.items()
    )


def no_row(view: View) -> tuple[Filter, ...]:
    """What no row fulfils."""
    return (Filter(view.key_name, "in", ()),)


def claim_values(kind: ColumnType, claim: Any) -> tuple[Any, ...]:
    """The texts or integers that a claim stands for: those in it, if it is a list; none, if it is missing."""
    given = claim if isinstance(claim, list) else [claim]
    if len(given) > MAX_VALUES:
        return ()
    read: Callable[[Any], Any] = _integer if kind is ColumnType.INTEGER else _text
    read_values = {value for path in given if (value := read(path)) is not None}
    return tuple(sorted(read_values))


def _text(value: Any) -> str | None:
    """A text that a row can have; PostgreSQL has another character instead of NUL, which could be somebody else's."""
    if not isinstance(value, str) or NUL in value or REPLACEMENT in value:
        return None
    try:
        value.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return None
    return value


def _integer(value: Any) -> int | None:
    """An integer; API keys have claims of text only, so also its decimal digits, as Python writes them."""
    if isinstance(value, str) and value.isascii() and len(value) <= _MAX_DIGITS and value.lstrip("-").isdigit():
        number = int(value)
        value = number if str(number) == value else None
    return value if type(value) is int and fits_64_bits(value) else None


@dataclass(frozen=True)
class Caller:
    """Who sent a request.

    name: of the key, or the token's subject; None if the API is open, so that nobody is known. expires_s: since 1970;
    None: never. claims: of the token, or what the key stands for. key_id: of an API key. signed_by: the fingerprint of
    the issuer's key that signed the token. session_ends_s: of a session of the console, since 1970.
    """

    name: str | None
    scopes: Scopes
    expires_s: float | None = None
    claims: Mapping[str, Any] = field(default_factory=dict)
    key_id: str | None = None
    signed_by: str = ""
    session_ends_s: float | None = field(default=None, compare=False)

    def must(self, kind: Kind, name: str) -> None:
        """Raise Forbidden unless this is allowed; name: see `Scopes.allow`."""
        if not self.scopes.allow(kind, name):
            raise Forbidden(kind if kind == OPERATE or kind in PLAIN else f"{kind}:{name}")

    @property
    def reads_personal(self) -> bool:
        """Whether personal values are shown to this caller."""
        return self.scopes.allow(PERSONAL, "*")

    def readable(self, view: View) -> tuple[Filter, ...]:
        """What the rows of a view must fulfil so that they exist for this caller; nothing, if all do."""
        if not view.readable_by or self.scopes.allow(ROWS, view.name):
            return ()
        return readable(view, self.claims)

    def must_some(self, kind: Kind) -> None:
        """Raise Forbidden unless any name of this kind is allowed."""
        if not self.scopes.allow_some(kind):
            raise Forbidden(f"{kind}:*")


ANYONE: Final = Caller(None, EVERYTHING)
"""Of an open API."""


def caller_of(request: Request) -> Caller:
    """The caller of a request, which a middleware has found."""
    caller: Caller = getattr(request.state, STATE)
    return caller


class _Claimed(NamedTuple):
    """A part of an id that is filled with a claim; place: among the parts."""

    place: int
    claim: str
    kind: ColumnType


@dataclass(frozen=True)
class _Owned:
    """An aggregate whose streams are those of callers."""

    identity: Identity
    claimed: tuple[_Claimed, ...]

    def is_of(self, caller: Caller, aggregate_id: str) -> bool:
        """Whether all claimed parts of the id are values of the caller's claims."""
        parts = self.identity.parts(aggregate_id)
        if parts is None:
            return False
        return all(self._is_claimed(caller, part, parts[part.place]) for part in self.claimed)

    def has_person(self, caller: Caller, person: str) -> bool:
        """Whether a person is the subject of such an id, or is named in a stream with such claimed parts."""
        parts = person.split(SEPARATOR)
        named = len(parts) == len(self.claimed) + 1 and self.identity.has_parts
        return self.is_of(caller, person) or (
            named
            and all(
                self._is_claimed(caller, claimed, unquote(part))
                for claimed, part in zip(self.claimed, parts[:-1], strict=True)
            )
        )

    @staticmethod
    def _is_claimed(caller: Caller, of: _Claimed, part: str) -> bool:
        return part in map(str, claim_values(of.kind, caller.claims.get(of.claim)))


class OwnStreams:
    """Knows the aggregates of a deployment whose ids have parts that the API fills with claims.

    Raises DeclarationError if its commands fill the id with different claims.
    """

    def __init__(self, commands: CommandRegistry) -> None:
        owned = ((name, _owned(aggregate)) for name, aggregate in commands.aggregates.items())
        self._owned: Mapping[str, _Owned] = {name: claimed for name, claimed in owned if claimed.claimed}
        self._declared = frozenset(commands.aggregates)

    @property
    def names(self) -> tuple[str, ...]:
        """These aggregates."""
        return tuple(self._owned)

    @property
    def all_events(self) -> tuple[Kind, str]:
        """What a caller needs to read the events of all streams: they are for operators if some are of others."""
        return OPERATORS if self._owned else EVERYBODY

    def exists_for(self, caller: Caller | None, stream: str) -> bool:
        """Whether a caller may know of a stream, as far as its id decides that. Without a caller, nobody may.

        An aggregate of another service may have owners that are not known here: it is for operators.
        """
        aggregate, _, aggregate_id = stream.partition("/")
        owned = self._owned.get(aggregate)
        if owned is None and aggregate in self._declared:
            return True
        if caller is None or caller.scopes.allow(*OPERATORS):
            return caller is not None
        return owned is not None and owned.is_of(caller, aggregate_id)

    def has_event(self, caller: Caller | None, event_id: str) -> bool:
        """Whether an event exists for a caller: whether its stream does."""
        return self.exists_for(caller, event_id.rpartition("/")[0])

    def events_of(self, caller: Caller) -> tuple[Filter, ...]:
        """What rows of the view of all events must fulfil so that a caller who may read them all may know of them."""
        if caller.scopes.allow(*OPERATORS):
            return ()
        return (Filter("stream", "prefix", tuple(f"{name}/" for name in sorted(self._declared))),)

    def has_person(self, caller: Caller, person: str) -> bool:
        """Whether a person is one of the caller's tenant, as far as their id says so; all are, if there are none."""
        if not self._owned or caller.scopes.allow(*OPERATORS):
            return True
        return any(owned.has_person(caller, person) for owned in self._owned.values())

    def seen_by(self, caller: Caller | None) -> Seen:
        """What decides which streams exist for a caller: callers with the same see the same streams."""
        if caller is not None and caller.scopes.allow(*OPERATORS):
            return EVERY_STREAM
        if not self._owned:
            return DECLARED
        claims = {} if caller is None else caller.claims
        parts = (part for owned in self._owned.values() for part in owned.claimed)
        values = {(part.claim, part.kind): claim_values(part.kind, claims.get(part.claim)) for part in parts}
        return tuple((claim, claim_value) for (claim, _), claim_value in values.items())


def _owned(aggregate: AnyAggregate) -> _Owned:
    identity = aggregate.identity
    claims = id_claims(aggregate.name, identity, aggregate.commands)
    command = next(iter(aggregate.commands.values()))
    claimed = []
    for place, name in enumerate(identity.names):
        if name in claims:
            is_integer = field_kinds(command)[name].kind is int
            claimed.append(_Claimed(place, claims[name], ColumnType.INTEGER if is_integer else ColumnType.TEXT))
    return _Owned(identity, tuple(claimed))
