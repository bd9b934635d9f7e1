"""Numbers in JSON texts that cannot be read as they are written, so that they are refused and not rounded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, TypeAdapter

from headwater.eventlog.integers import fits_64_bits
from headwater.eventlog.times import shortened

KEPT_DIGITS: Final = 15
"""A double keeps every number with so many digits, unless it is near zero."""
NEAR_ZERO: Final = re.compile(rb"[eE]-0*[3-9]")
"""The end of a number that may be below 1e-300."""
_ALIKE: Final = bytes.maketrans(b"123456789", b"000000000")
_LONG: Final = b"0" * (KEPT_DIGITS + 1)
MAX_DIGITS: Final = 20
"""Of integers with 64 bits, and a sign."""


class Rounded(NamedTuple):
    """A number that is not kept as it is written."""

    written: str
    is_integer: bool


def may_be_rounded(text: bytes) -> bool:
    """Whether a JSON text may have numbers that are not kept; False is certain, and takes no time."""
    # much faster than one pattern
    return text.translate(_ALIKE, b".").find(_LONG) >= 0 or (
        (text.find(b"e-") >= 0 or text.find(b"E-") >= 0) and NEAR_ZERO.search(text) is not None
    )


def inexact_numbers(text: bytes, kind: type[BaseModel], *inside: str) -> list[dict[str, Any]]:
    """Details of numbers in a valid JSON text for `kind` that cannot be kept as they are written, in pydantic's form.

    These are integers of more than 64 bits, and numbers with a fraction in fields that have decimals: doubles may round
    them. inside: the members of the text that lead to the body.
    """
    if not may_be_rounded(text):
        return []
    try:
        document = json.loads(text, parse_int=_read_integer, parse_float=_read_fraction)
        return list(_details(document, (), decimal_fields(kind), inside))
    except RecursionError:
        return [{"type": "recursion_loop", "loc": (), "msg": "it is nested too deeply: use fewer levels"}]


@lru_cache(maxsize=10_000)
def decimal_fields(kind: type[BaseModel]) -> frozenset[str]:
    """The fields of a message that may have decimals, at any depth, by their names in JSON."""
    if not _mentions_decimals(kind.__pydantic_core_schema__):
        return frozenset()
    return frozenset(
        info.alias or name
        for name, info in kind.model_fields.items()
        if _mentions_decimals(TypeAdapter[Any](info.annotation).core_schema)  # type: ignore[arg-type]
    )


def _details(
    value: object, place: tuple[str | int, ...], decimals: frozenset[str], inside: tuple[str, ...]
) -> Iterator[dict[str, Any]]:
    match value:
        case Rounded(written, True):
            problem = f"{shortened(written)} needs more than 64 bits: send it as text"
            yield {"type": "int_too_large", "loc": place, "msg": problem}
        case Rounded(written):
            if place[: len(inside)] == inside and not decimals.isdisjoint(place[len(inside) : len(inside) + 1]):
                problem = f"{shortened(written)} has more digits than a JSON number keeps: send it as text"
                yield {"type": "number_not_exact", "loc": place, "msg": problem}
        case Mapping():
            for name, item in value.items():
                yield from _details(item, (*place, name), decimals, inside)
        case list():
            for index, item in enumerate(value):
                yield from _details(item, (*place, index), decimals, inside)


def _read_integer(written: str) -> int | Rounded:
    if len(written) > MAX_DIGITS or not fits_64_bits(int(written)):
        return Rounded(written, is_integer=True)
    return int(written)


def _read_fraction(written: str) -> float | Rounded:
    read = float(written)
    try:
        return read if Decimal(repr(read)) == Decimal(written) else Rounded(written, is_integer=False)
    except ArithmeticError:  # an exponent that no decimal has
        return Rounded(written, is_integer=False)


def _mentions_decimals(schema: object) -> bool:
    match schema:
        case Mapping():
            return schema.get("type") == "decimal" or any(_mentions_decimals(each) for each in schema.values())
        case list() | tuple():
            return any(_mentions_decimals(each) for each in schema)
        case _:
            return False
