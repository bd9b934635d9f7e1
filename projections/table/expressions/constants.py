"""Values that do not depend on the event."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Final
from uuid import UUID

from headwater.commands.declaring.aggregate import Event
from headwater.eventlog.declaring import shown
from headwater.eventlog.integers import fits_64_bits
from headwater.projections.table.declared import storage_word
from headwater.projections.table.expressions.generated_text import literal
from headwater.projections.table.expressions.source import Expression
from headwater.projections.table.types import SPARK_TYPES, ColumnType, spark_value_type

CONSTANTS: Final[Mapping[type, ColumnType]] = {
    bool: ColumnType.BOOLEAN,
    int: ColumnType.INTEGER,
    float: ColumnType.FLOAT,
    str: ColumnType.TEXT,
    date: ColumnType.DATE,
    UUID: ColumnType.UUID,
}


@storage_word("Value")
@dataclass(frozen=True, slots=True)
class Value:
    """A constant."""

    value: Constant

    def kind(self, event: type[Event] | None) -> ColumnType:
        if isinstance(self.value, Decimal):
            return _constant_decimal(self.value)
        kind = CONSTANTS.get(self.value.__class__)
        if kind is None:
            raise ValueError(
                f"{shown(self.value)} is no constant: use a text, an integer, a float, True, False, a Decimal, a date "
                "or a UUID"
            )
        if (isinstance(self.value, int) and not fits_64_bits(self.value)) or (
            isinstance(self.value, float) and not math.isfinite(self.value)
        ):
            raise ValueError(f"no store holds the constant {shown(self.value)}: use a finite number of at most 64 bits")
        return kind

    def fields(self) -> frozenset[str]:
        return frozenset()

    def spark(self, event: type[Event] | None, parsed: Mapping[str, ColumnType]) -> str:
        if isinstance(self.value, bool):
            return str(self.value).lower()
        if isinstance(self.value, str | date | UUID):
            return literal(str(self.value))
        if isinstance(self.value, Decimal):
            return f"cast('{self.value:f}' as {spark_value_type(self.kind(event))})"
        return f"cast({self.value!r} as {SPARK_TYPES[self.kind(event)]})"

    def python(self, event: type[Event] | None) -> str:
        match self.value:
            case float() | Decimal():
                return f"{type(self.value).__name__}({str(self.value)!r})"
            case date() | UUID():
                return repr(str(self.value))
            case _:
                return repr(self.value)


Constant = str | int | float | bool | Decimal | date | UUID


def _constant_decimal(value: Decimal) -> ColumnType:
    parts = value.as_tuple()
    if not isinstance(parts.exponent, int):
        raise ValueError(f"no store holds the constant {shown(value)}: use a finite number")
    places = max(-parts.exponent, 0)
    return ColumnType.decimal(max(len(parts.digits) + max(parts.exponent, 0), places, 1), places)


@storage_word("Null")
@dataclass(frozen=True, slots=True)
class Null:
    """A null of the type that `like` has for `event`."""

    like: Expression
    event: type[Event]

    def kind(self, event: type[Event] | None) -> ColumnType:
        return self.like.kind(self.event)

    def fields(self) -> frozenset[str]:
        return frozenset()

    def spark(self, event: type[Event] | None, parsed: Mapping[str, ColumnType]) -> str:
        return f"cast(null as {spark_value_type(self.kind(event))})"

    def python(self, event: type[Event] | None) -> str:
        return "None"
