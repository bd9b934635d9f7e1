"""What is wrong with a message: the first faults in pydantic's form, and how many there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from headwater.eventlog.hidden_values import places_of_error

Model = TypeVar("Model", bound=BaseModel)

MAX_FAULTS: Final = 100
"""Faults of one message that are kept: a body of 500 kB may have 250,000 of them, with a kilobyte each."""
MAX_PLACE_CHARACTERS: Final = 1_000
"""Of the names on the way to a fault, which clients choose; what lies deeper is left out."""
MAX_DETAIL_CHARACTERS: Final = 1_000


class Faults(NamedTuple):
    """The first details, in pydantic's form, and the number of all."""

    details: Sequence[dict[str, Any]]
    total: int


def validated(model: type[Model], text: bytes, name: str, *, is_personal: bool) -> Model:
    """A message in a JSON text; raises pydantic's ValidationError, and whatever else a user's validator raises.

    name: of the message. is_personal: whether an error of a validator may repeat a personal value. None of them ends
    the process, or its event loop.
    """
    try:
        message: Model = model.__pydantic_validator__.validate_json(text)
        return message
    except ValidationError:
        raise
    except BaseException as error:
        if is_personal:
            raise RuntimeError(f'a validator of "{name}" failed\n{places_of_error(error)}') from None
        if isinstance(error, SystemExit | GeneratorExit):
            raise RuntimeError(f'a validator of "{name}" raised {error!r}') from error
        raise


def faults_of(error: ValidationError) -> Faults:
    """The first faults that pydantic found, without the values of the message."""
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    return Faults([_bounded(dict(fault)) for fault in errors[:MAX_FAULTS]], len(errors))


def first_faults(details: Iterable[dict[str, Any]]) -> Faults:
    """The first of these details; all are counted."""
    first: list[dict[str, Any]] = []
    count = 0
    for count, detail in enumerate(details, 1):
        if count <= MAX_FAULTS:
            first.append(_bounded(detail))
    return Faults(first, count)


def _bounded(detail: dict[str, Any]) -> dict[str, Any]:
    place: list[Any] = []
    left = MAX_PLACE_CHARACTERS
    for part in detail["loc"]:
        left -= len(str(part))
        if left < 0:
            break
        place.append(part)
    text = str(detail["msg"])
    shown = text if len(text) <= MAX_DETAIL_CHARACTERS else text[:MAX_DETAIL_CHARACTERS] + "…"
    return {**detail, "loc": tuple(place), "msg": shown}
