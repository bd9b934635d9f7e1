"""Which streams exist for a caller: those whose id has its claims, if the API fills the id with claims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from headwater.api.guard.caller import Caller
from headwater.api.guard.readable import claim_values
from headwater.api.guard.scopes import ALL, OPERATE, Kind
from headwater.commands.declaring.field_kinds import field_kinds
from headwater.commands.declaring.id_checks import id_claims
from headwater.commands.declaring.ids import Identity
from headwater.commands.declaring.registry import AnyAggregate, CommandRegistry
from headwater.projections.table.types import ColumnType

EVERYBODY: Final[tuple[Kind, str]] = ("streams", ALL)
OPERATORS: Final[tuple[Kind, str]] = (OPERATE, ALL)
Seen = tuple[tuple[str, tuple[Any, ...]], ...]
"""The values of each claim that parts of ids are filled with."""
EVERY_STREAM: Final[Seen] = ()


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
        return all(
            parts[each.place] in map(str, claim_values(each.kind, caller.claims.get(each.claim)))
            for each in self.claimed
        )


class OwnStreams:
    """Knows the aggregates of a deployment whose ids have parts that the API fills with claims.

    Raises DeclarationError if its commands fill the id with different claims.
    """

    def __init__(self, commands: CommandRegistry) -> None:
        owned = ((name, _owned(aggregate)) for name, aggregate in commands.aggregates.items())
        self._owned: Mapping[str, _Owned] = {name: each for name, each in owned if each.claimed}

    @property
    def names(self) -> tuple[str, ...]:
        """These aggregates."""
        return tuple(self._owned)

    @property
    def all_events(self) -> tuple[Kind, str]:
        """What a caller needs to read the events of all streams: they are for operators if some are of others."""
        return OPERATORS if self._owned else EVERYBODY

    def exists_for(self, caller: Caller | None, stream: str) -> bool:
        """Whether a caller may know of a stream, as far as its id decides that. Without a caller, nobody may."""
        aggregate, _, aggregate_id = stream.partition("/")
        owned = self._owned.get(aggregate)
        if owned is None:
            return True
        return caller is not None and (caller.scopes.allow(*OPERATORS) or owned.is_of(caller, aggregate_id))

    def seen_by(self, caller: Caller | None) -> Seen:
        """What decides which streams exist for a caller: callers with the same see the same streams."""
        if not self._owned or (caller is not None and caller.scopes.allow(*OPERATORS)):
            return EVERY_STREAM
        claims = {} if caller is None else caller.claims
        parts = (part for owned in self._owned.values() for part in owned.claimed)
        values = {(each.claim, each.kind): claim_values(each.kind, claims.get(each.claim)) for each in parts}
        return tuple((claim, found) for (claim, _), found in values.items())

    def hides_others(self, caller: Caller) -> bool:
        """Whether a caller must not learn that commands of other streams have the same id.

        They may be those of others, also if the caller sends none to such aggregates. So it finds a receipt only with
        its stream, and the receipt does not say that it is shared.
        """
        return bool(self._owned) and not caller.scopes.allow(*OPERATORS)


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
