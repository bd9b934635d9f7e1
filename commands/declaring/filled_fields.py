"""Fields of commands and observations that the API fills, so that no client can forge them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from pydantic import BaseModel

from headwater.commands.declaring.personal_marks import mentions
from headwater.commands.errors import DeclarationError, UnfitClaim


@dataclass(frozen=True)
class Claim:
    """Marks a field that the API fills with a claim of the caller: `owner: Annotated[str, Claim("sub")]`.

    name: of the claim in the caller's token. An API key has `sub`, which is its name, and the claims that it was made
    with. Senders other than the API, such as a process, set the field themselves.
    """

    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise DeclarationError(f'Claim({self.name!r}) names no claim: write it like Claim("sub")')


@dataclass(frozen=True)
class AcceptedAt:
    """Marks a field that the API fills with the time at which it accepted the command or observation.

    Write it `at: Annotated[datetime, AcceptedAt()]`. Senders other than the API may set the field themselves.
    """


class FilledFields(NamedTuple):
    """By field, the claim that it is filled with; and the fields that are filled with the time."""

    claims: Mapping[str, str]
    times: Sequence[str]

    def given_in(self, data: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Details of those that a body has although it must not, in pydantic's form."""
        names = []
        for field in data:
            if field in self.claims:
                source = f'the claim "{self.claims[field]}" of the caller'
            elif field in self.times:
                source = "the time at which it accepts the message"
            else:
                continue
            names.append({"type": "filled", "loc": (field,), "msg": f"the API fills it with {source}: leave it out"})
        return names

    def from_caller(self, message_type: str, claims: Mapping[str, Any]) -> dict[str, Any]:
        """The fields that are filled with claims; raises UnfitClaim. claims: of the caller."""
        for field, claim in self.claims.items():
            if claim not in claims:
                raise UnfitClaim(message_type, field, claim)
        return {field: claims[claim] for field, claim in self.claims.items()}

    def check(self, message_type: str, details: Sequence[Mapping[str, Any]], *inside: str) -> None:
        """Raise UnfitClaim if one of these details of pydantic is about a field that was filled with a claim.

        inside: the members that lead to the message.
        """
        for detail in details:
            field = str(detail["loc"][len(inside)]) if len(detail["loc"]) > len(inside) else ""
            if field in self.claims:
                raise UnfitClaim(message_type, field, self.claims[field], detail["msg"])


NOTHING: Final = FilledFields({}, ())


class NotComplete(DeclarationError):
    """The types of a class are not known yet."""


def check_filled_fields(kind: type[BaseModel]) -> None:
    """Raise DeclarationError if the API could not fill a field that it should, as far as that is known already."""
    with suppress(NotComplete):  # it is checked when the class is used
        filled_fields(kind)


@lru_cache(maxsize=10_000)
def filled_fields(kind: type[BaseModel]) -> FilledFields:
    """The fields of a command or observation that the API fills; raises DeclarationError if it could not.

    A mark that is not the field's own, such as one in a list or in another model, would be ignored, and the field open.
    So would the marks of a class whose types are not known yet.
    """
    if not kind.__pydantic_complete__ and not kind.model_rebuild(raise_errors=False):
        raise NotComplete(f'"{getattr(kind, "type", "") or kind.__name__}" has a field whose type is not defined')
    claims, times = dict[str, str](), list[str]()
    for name, info in kind.model_fields.items():
        marks = [mark for mark in info.metadata if _is_mark(mark)]
        place = f'field "{name}" of "{getattr(kind, "type", "") or kind.__name__}"'
        if mentions(info.annotation, _is_mark, set()):
            raise DeclarationError(
                f"{place} has Claim or AcceptedAt inside its type: mark the whole field of the command or observation, "
                f'as in {name}: Annotated[str, Claim("sub")]'
            )
        if not marks:
            continue
        if len(marks) > 1:
            raise DeclarationError(f"{place} has several of Claim and AcceptedAt: use one")
        if isinstance(marks[0], Claim):
            claims[name] = marks[0].name
        else:
            times.append(name)
    return FilledFields(claims, tuple(times)) if claims or times else NOTHING


def _is_mark(mark: object) -> bool:
    """Whether it is a mark; the class itself, as in Annotated[datetime, AcceptedAt], is one that would be ignored."""
    if mark in (Claim, AcceptedAt) and isinstance(mark, type):
        raise DeclarationError(f'write {mark.__name__}(…), with parentheses: Claim("sub"), AcceptedAt()')
    return isinstance(mark, Claim | AcceptedAt)
