"""The values that lineages make of what was recorded, in JSON types."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import Any, Final, assert_never

from headwater.commands.declaring.lineages import (
    Changed,
    Constant,
    Converted,
    Gone,
    Into,
    ItemItself,
    Items,
    Lineage,
    Member,
    Part,
    Recorded,
    With,
)
from headwater.commands.declaring.steps import (
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
from headwater.commands.declaring.times import is_time
from headwater.eventlog.integers import fits_64_bits

WHOLE: Final = r"-?[0-9]+"
NUMBER: Final = r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?"
"""Patterns of texts that are integers or numbers; Java and Python read them the same way."""


class _Absent(Enum):
    ABSENT = "absent"


ABSENT: Final = _Absent.ABSENT
"""The value of a field that was not recorded."""


class WrongType(ValueError):
    """A value was recorded with a wrong type, inside the field with this place."""

    def __init__(self, place: str = "") -> None:
        super().__init__(place)
        self.place = place


def evaluate(lineage: Lineage, data: Any, *, strictly: bool = False) -> Any:
    """The value of a field in JSON types; ABSENT if it was not recorded, None if it has a wrong type.

    data: what was recorded. strictly: raises WrongType instead.
    """
    match lineage:
        case Recorded():
            return data.get(lineage.name, ABSENT)
        case Constant():
            return lineage.value
        case Gone():
            return ABSENT
        case ItemItself():
            return data
    value = evaluate(lineage.of, data, strictly=strictly)
    if isinstance(lineage, With):
        return _with(lineage.into, value, data, strictly=strictly)[0]
    if value is None or value is ABSENT:
        return value
    try:
        return _made(lineage, value, strictly=strictly)
    except _Unfit:
        if strictly:
            raise WrongType from None
        return None


class _Unfit(Exception):
    """A value has a wrong type."""


def _made(lineage: Converted | Part | Member | Changed | Items, value: Any, *, strictly: bool) -> Any:
    """What becomes of a value that was recorded, and is not null."""
    match lineage:
        case Converted():
            if not fits(value, lineage.source):
                raise _Unfit
            made = _convert(lineage.how, value, lineage.source)
            return made or 0.0 if isinstance(made, float) else made  # no negative zero, which Spark's variants lack
        case Part():
            if not isinstance(value, str):
                raise _Unfit
            parts = value.split(lineage.at, lineage.parts - 1)
            return parts[lineage.number] if lineage.number < len(parts) else ""
        case Member():
            if not isinstance(value, dict):
                raise _Unfit
            return value.get(lineage.name, ABSENT)
        case Changed():
            if not isinstance(value, dict):
                raise _Unfit
            return _changed(lineage, value, strictly=strictly)
        case Items():
            if not isinstance(value, list):
                raise _Unfit
            try:
                return [evaluate(lineage.each, each, strictly=strictly) for each in value]
            except WrongType as error:
                raise WrongType(f"[]{error.place}") from None
        case _:
            assert_never(lineage)


def _changed(lineage: Changed, value: Mapping[str, Any], *, strictly: bool) -> dict[str, Any]:
    """The object with the changed fields behind the others, as Spark has it."""
    names = dict(lineage.fields)
    made = {name: each for name, each in value.items() if name not in names}
    for name, of in lineage.fields:
        try:
            each = evaluate(of, value, strictly=strictly)
        except WrongType as error:
            raise WrongType(f".{name}{error.place}") from None
        if each is not ABSENT:
            made[name] = each
    return made


def _with(into: Into, of: Any, data: Any, *, strictly: bool) -> tuple[Any, bool | None]:
    """The object with the values, and whether any of them is not null; None if none was recorded."""
    made, says = dict[str, Any](), set[bool | None]()
    for name, each in into.fields:
        try:
            if isinstance(each, Into):
                inner = of.get(name, ABSENT) if isinstance(of, dict) else ABSENT
                value, inner_says = _with(each, inner, data, strictly=strictly)
                says.add(inner_says)
            else:
                value = evaluate(each, data, strictly=strictly)
                says.add(None if value is ABSENT else value is not None)
        except WrongType as error:
            raise WrongType(f".{name}{error.place}") from None
        if value is not ABSENT:
            made[name] = value
    if says == {None}:
        return of, None
    says_something = True in says
    if of is None or of is ABSENT:
        return made if says_something or not into.nullable else None, says_something
    if isinstance(of, dict):
        return {name: each for name, each in of.items() if name not in made} | made, says_something
    if strictly:
        raise WrongType
    return None, says_something


def fits(value: Any, kind: Kind) -> bool:
    """Whether a JSON value is of this kind: integers of up to 64 bits, finite floats, times (see `is_time`)."""
    if kind is int:
        return type(value) is int and fits_64_bits(value)
    if kind is float:
        return type(value) in (int, float) and _is_finite(value)
    if kind is datetime:
        return is_time(value)
    return value is not None and value is not ABSENT and isinstance(value, kind)


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # an integer that no float holds
        return False


def _convert(how: Conversion, value: Any, source: Kind) -> Any:
    """The converted value of the kind `source`; raises _Unfit if it cannot be converted."""
    match how:
        case Scaled():
            if source is object and not fits(value, float):
                raise _Unfit
            whole = source is int or (source is object and isinstance(value, int) and isinstance(how.by, int))
            made = value * how.by if whole else float(value) * float(how.by)
            return _fitting(made, type(made))
        case Rounded():
            scaled = float(value) * how.times
            if not abs(scaled) < 2.0**63:
                raise _Unfit
            return round(scaled)
        case Parsed():
            pattern = WHOLE if how.kind is int else NUMBER
            if len(value) > MAX_NUMBER_CHARACTERS or not re.fullmatch(pattern, value):
                raise _Unfit
            return _fitting(how.kind(value), how.kind)
        case Written():
            return str(value)
        case Widened():
            return float(value)
        case Recoded():
            return dict(how.words).get(value, value)
        case _:
            assert_never(how)


def _fitting(value: Any, kind: Kind) -> Any:
    if not fits(value, kind):
        raise _Unfit
    return value
