"""Numbers in JSON texts that cannot be read as they are written, so that they are refused and not rounded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

from pydantic import BaseModel, TypeAdapter

from headwater.commands.declaring.times import mentions
from headwater.eventlog.integers import fits_64_bits
from headwater.eventlog.times import shortened

KEPT_DIGITS: Final = 15
"""A double keeps every number with so many digits, unless it is near zero."""
NEAR_ZERO: Final = re.compile(rb"[eE]-0*(?:2[89][0-9]|[3-9][0-9]{2}|[1-9][0-9]{3})")
"""The end of a number that may be below 1e-292: with KEPT_DIGITS, the last ones may be below what a double has."""
_ALIKE: Final = bytes.maketrans(b"123456789", b"000000000")
_LONG: Final = b"0" * (KEPT_DIGITS + 1)
MAX_DIGITS: Final = 20
"""Of integers with 64 bits, and a sign."""


class Rounded(NamedTuple):
    """A number that is not kept as it is written."""

    written: str
    problem: Literal["int_too_large", "float_too_small", "number_not_exact"]


_TEXTS: Final = {
    "int_too_large": "needs more than 64 bits: send it as text",
    "float_too_small": "is so near to zero that it would become 0: send 0, or send it as text",
    "number_not_exact": "has more digits than a JSON number keeps: send it as text",
}


def may_be_rounded(text: bytes) -> bool:
    """Whether a JSON text may have numbers that are not kept; False is certain, and takes no time."""
    # much faster than one pattern
    return text.translate(_ALIKE, b".").find(_LONG) >= 0 or (
        (text.find(b"e-") >= 0 or text.find(b"E-") >= 0) and NEAR_ZERO.search(text) is not None
    )


def inexact_numbers(text: bytes, kind: type[BaseModel], *inside: str) -> list[dict[str, Any]]:
    """Details of numbers in a valid JSON text for `kind` that cannot be kept as they are written, in pydantic's form.

    These are integers of more than 64 bits, numbers that a double makes 0, and in fields that have decimals those that
    it rounds. inside: the members of the text that lead to the body.
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
    if not mentions(kind.__pydantic_core_schema__, _is_decimal):
        return frozenset()
    return frozenset(
        name
        for name, info in kind.model_fields.items()
        if mentions(TypeAdapter[Any](info.annotation).core_schema, _is_decimal)  # type: ignore[arg-type]
    )


def _is_decimal(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "decimal"


def _details(
    value: object, place: tuple[str | int, ...], decimals: frozenset[str], inside: tuple[str, ...]
) -> Iterator[dict[str, Any]]:
    match value:
        case Rounded(written, problem):
            is_decimal = place[: len(inside)] == inside and decimals.intersection(place[len(inside) : len(inside) + 1])
            if is_decimal or problem != "number_not_exact":
                yield {"type": problem, "loc": place, "msg": f"{shortened(written)} {_TEXTS[problem]}"}
        case Mapping():
            for name, item in value.items():
                yield from _details(item, (*place, name), decimals, inside)
        case list():
            for index, item in enumerate(value):
                yield from _details(item, (*place, index), decimals, inside)


def _read_integer(written: str) -> int | Rounded:
    if len(written) > MAX_DIGITS or not fits_64_bits(int(written)):
        return Rounded(written, "int_too_large")
    return int(written)


def _read_fraction(written: str) -> float | Rounded:
    read = float(written)
    if read == 0.0 and re.match(r"-?[0.]*[1-9]", written):
        return Rounded(written, "float_too_small")
    try:
        return read if Decimal(repr(read)) == Decimal(written) else Rounded(written, "number_not_exact")
    except ArithmeticError:  # an exponent that no decimal has
        return Rounded(written, "number_not_exact")
