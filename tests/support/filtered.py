"""What filters mean, in plain Python: what every store must find."""

from __future__ import annotations

import operator
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from headwater.api.reading import Row
from headwater.api.requests.filters import AnyOf, Condition

COMPARED: Final = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}


def fulfils(row: Row, condition: Condition) -> bool:
    """Whether a row is one of those that the condition asks for."""
    if isinstance(condition, AnyOf):
        return any(fulfils(row, filter_) for filter_ in condition.filters)
    value, wanted = row[condition.column], condition.values
    if condition.operator == "is_null":
        return bool((value is None) == wanted[0])
    if value is None:
        return False
    match wanted[:1]:
        case (datetime(),):
            value = datetime.fromisoformat(value)
        case (date(),):
            value = date.fromisoformat(value)
        case (Decimal() | UUID(),):
            value = type(wanted[0])(value)
    return _compared(value, condition.operator, wanted)


def _compared(value: Any, name: str, wanted: tuple[Any, ...]) -> bool:
    match name:
        case "in":
            return value in wanted
        case "not_in":
            return value not in wanted
        case "prefix":
            return any(value.startswith(each) for each in wanted)
        case "sealed_with":
            return any(f'"sealed:1:{each}:' in value for each in wanted)
        case "sealed_copy":
            return any(f'"sealed:1:{each}:' in f'"{value}' for each in wanted)
        case "ieq":
            return any(len(value) == len(each) and _same(value, each) for each in wanted)
        case "iprefix":
            return any(len(value) >= len(each) and _same(value, each) for each in wanted)
        case _:
            return bool(COMPARED[name](value, wanted[0]))


def _same(value: str, wanted: str) -> bool:
    """Whether each character of `wanted` is that of `value`, but for its case."""
    return all(_folded(ours) == _folded(theirs) for ours, theirs in zip(value, wanted, strict=False))


def _folded(character: str) -> str:
    """Unicode's simple case folding."""
    return next((made for made in (character.casefold(), character.lower()) if len(made) == 1), character)
