"""How a field of the current version of an event is made from what an older version recorded: its lineage.

Lineages are applied here in Python, and compiled for Spark in `projections/spark/upcasting.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final, assert_never

from commands.declaring.steps import (
    MAX_NUMBER_CHARACTERS,
    Conversion,
    Kind,
    Parsed,
    Recoded,
    Rounded,
    Scaled,
    Widened,
    Written,
)
from commands.declaring.times import is_time
from eventlog.integers import fits_64_bits

WHOLE: Final = r"-?[0-9]+"
NUMBER: Final = r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?"
"""Patterns of texts that are integers or numbers; Java and Python read them the same way."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The recorded field with this name."""

    name: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A value for a field that was not recorded."""

    value: Any


@dataclass(frozen=True, slots=True)
class Converted:
    """`of`, of the kind `source`, converted."""

    of: Lineage
    how: Conversion
    source: Kind


@dataclass(frozen=True, slots=True)
class Part:
    """One part, by number, of the text `of`, split into at most `parts` parts."""

    of: Lineage
    at: str
    number: int
    parts: int


Lineage = Recorded | Constant | Converted | Part


def lineage_text(lineage: Lineage) -> str:
    """The lineage of a field in the fingerprints of views; it must not depend on names of classes."""
    match lineage:
        case Recorded():
            return f"Recorded(name={lineage.name!r})"
        case Constant():
            return f"Constant(value={lineage.value!r})"
        case Converted():
            how = _conversion_text(lineage.how)
            return f"Converted(of={lineage_text(lineage.of)}, how={how}, source={lineage.source!r})"
        case Part():
            of = lineage_text(lineage.of)
            return f"Part(of={of}, at={lineage.at!r}, number={lineage.number!r}, parts={lineage.parts!r})"
        case _:
            assert_never(lineage)


def _conversion_text(how: Conversion) -> str:
    match how:
        case Scaled():
            return f"Scaled(by={how.by!r})"
        case Rounded():
            return f"Rounded(times={how.times!r})"
        case Parsed():
            return f"Parsed(kind={how.kind!r})"
        case Written():
            return "Written()"
        case Widened():
            return "Widened()"
        case Recoded():
            return f"Recoded(words={how.words!r})"
        case _:
            assert_never(how)


class _Unfit(Enum):
    ABSENT = "absent"
    UNFIT = "unfit"


ABSENT: Final = _Unfit.ABSENT
"""The value of a field that was not recorded."""
UNFIT: Final = _Unfit.UNFIT
"""The value of a field that was recorded with a wrong type."""


def evaluate(lineage: Lineage, data: Mapping[str, Any]) -> Any:
    """The value of a field in JSON types; ABSENT if it was not recorded, UNFIT if it has a wrong type."""
    match lineage:
        case Recorded():
            return data.get(lineage.name, ABSENT)
        case Constant():
            return lineage.value
        case Converted():
            value = evaluate(lineage.of, data)
            if value is None or isinstance(value, _Unfit):
                return value
            return _convert(lineage.how, value, lineage.source) if fits(value, lineage.source) else UNFIT
        case Part():
            value = evaluate(lineage.of, data)
            if value is None or isinstance(value, _Unfit):
                return value
            if not isinstance(value, str):
                return UNFIT
            parts = value.split(lineage.at, lineage.parts - 1)
            return parts[lineage.number] if lineage.number < len(parts) else ""
        case _:
            assert_never(lineage)


def fits(value: Any, kind: Kind) -> bool:
    """Whether a JSON value is of this kind: integers of up to 64 bits, finite floats, times (see `is_time`)."""
    if kind is int:
        return type(value) is int and fits_64_bits(value)
    if kind is float:
        return type(value) in (int, float) and math.isfinite(value)
    if kind is datetime:
        return is_time(value)
    return value is not None and not isinstance(value, _Unfit) and isinstance(value, kind)


def _convert(how: Conversion, value: Any, source: Kind) -> Any:
    """The converted value of the kind `source`; UNFIT if it cannot be converted."""
    match how:
        case Scaled():
            if source is object and not fits(value, float):
                return UNFIT
            whole = source is int or (source is object and isinstance(value, int) and isinstance(how.by, int))
            made = value * how.by if whole else float(value) * float(how.by)
            return made if fits(made, type(made)) else UNFIT
        case Rounded():
            scaled = float(value) * how.times
            return round(scaled) if abs(scaled) < 2.0**63 else UNFIT
        case Parsed():
            pattern = WHOLE if how.kind is int else NUMBER
            if len(value) > MAX_NUMBER_CHARACTERS or not re.fullmatch(pattern, value):
                return UNFIT
            number = how.kind(value)
            return number if fits(number, how.kind) else UNFIT
        case Written():
            return str(value)
        case Widened():
            return float(value)
        case Recoded():
            return dict(how.words).get(value, value)
        case _:
            assert_never(how)
