"""Checks of the fields with an aggregate's id, and the claims that they are filled with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel

from headwater.commands.declaring.field_kinds import field_kinds
from headwater.commands.declaring.filled_fields import filled_fields
from headwater.commands.declaring.ids import Identity
from headwater.commands.errors import DeclarationError

if TYPE_CHECKING:
    from headwater.commands.declaring.aggregate import Command

PART_KINDS: Final = (str, int)


def check_id_fields(aggregate: str, identity: Identity, message: type[BaseModel]) -> None:
    """Raise DeclarationError unless a message has the fields of its aggregate's id, and these can be parts of it.

    The only field of an id may be anything: nothing is joined to its text.
    """
    name = getattr(message, "type", message.__name__)
    for field in identity.names:
        info = message.model_fields.get(field)
        if info is None:
            part = "part of the id" if identity.has_parts else "the id"
            raise DeclarationError(f'"{name}" has no field "{field}", {part} of "{aggregate}"')
        if not identity.has_parts:
            return
        place = f'field "{field}" of "{name}" is part of the id of "{aggregate}", and'
        kind = field_kinds(message)[field]
        if kind.nullable:
            raise DeclarationError(f"{place} may be null, which names no stream: write {field}: str")
        if kind.kind not in PART_KINDS:
            raise DeclarationError(f"{place} is no text and no integer: write {field}: str or {field}: int")


def id_claims(aggregate: str, identity: Identity, commands: Mapping[str, type[Command]]) -> Mapping[str, str]:
    """The fields of the id that the API fills with a claim of the caller, each with the name of the claim.

    Raises DeclarationError if a command leaves such a field to its sender, or fills it with another claim: then callers
    could act on streams that are not theirs. Nobody calls for an internal command.
    """
    by_claim: dict[str, str] = {}
    for field in identity.names:
        called = {name: command for name, command in commands.items() if not command.is_internal}
        claims = {name: filled_fields(command).claims.get(field) for name, command in called.items()}
        given = {claim: name for name, claim in claims.items() if claim is not None}
        if not given:
            continue
        claim, filling = next(iter(given.items()))
        for name, other in claims.items():
            if other != claim:
                fills = "leaves it to its sender" if other is None else f'fills it with Claim("{other}")'
                raise DeclarationError(
                    f'field "{field}" is part of the id of "{aggregate}": "{filling}" fills it with Claim("{claim}"), '
                    f'and "{name}" {fills}: write the same Claim in all commands of "{aggregate}"'
                )
        by_claim[field] = claim
    return by_claim
