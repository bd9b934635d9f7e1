"""Values that are computed from others, and the words by which views read events, as in `minus("price", "cost")`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from headwater.commands.declaring.aggregate import Event
from headwater.eventlog.declaring import shown
from headwater.eventlog.integers import fits_64_bits
from headwater.projections.table.decimals import EXACT, MAX_DIGITS, spark_sortable
from headwater.projections.table.declared import storage_word
from headwater.projections.table.expressions.source import (
    Constant,
    Expression,
    Field,
    FromEnvelope,
    Point,
    Value,
    without_digits,
)
from headwater.projections.table.mistaken import Mistaken, in_views
from headwater.projections.table.types import INTEGER_DIGITS, SPARK_TYPES, ColumnType, common_type, spark_value_type

_EXACTLY: Final[Mapping[str, Callable[[Any, Any], Decimal]]] = {
    "+": EXACT.add,
    "-": EXACT.subtract,
    "*": EXACT.multiply,
}


@storage_word("Arithmetic")
@dataclass(frozen=True, slots=True)
class Arithmetic(Expression):
    """`left operator right`, on integers and decimals (exact) or floats; operator is one of + - *.

    Null if either is null, or if an integer does not fit in 64 bits, because an event must not stop the live query. A
    decimal has as many digits as every result needs.
    """

    operator: str
    left: Expression
    right: Expression

    def kind(self, event: type[Event] | None) -> ColumnType:
        kinds = {self.left.kind(event), self.right.kind(event)}
        if any(kind.is_decimal for kind in kinds) and all(
            kind.is_decimal or kind is ColumnType.INTEGER for kind in kinds
        ):
            return self._decimal(*(_digits(side, event) for side in (self.left, self.right)))
        if not kinds <= {ColumnType.INTEGER, ColumnType.FLOAT}:
            found = " and ".join(sorted(kind.value for kind in kinds))
            hint = without_digits((self.left, self.right), event)
            raise ValueError(f'"{self.operator}" needs numbers, not {found}{hint}')
        return ColumnType.FLOAT if ColumnType.FLOAT in kinds else ColumnType.INTEGER

    def spark(self, event: type[Event] | None, parsed: Mapping[str, ColumnType]) -> str:
        function = {"+": "try_add", "-": "try_subtract", "*": "try_multiply"}[self.operator]
        own = self.kind(event)
        if own.is_decimal:  # Spark rounds if the result of its own types would need more digits, which `kind` refuses
            kinds = ("decimal({}, {})".format(*_digits(side, event)) for side in (self.left, self.right))
        else:
            kinds = (SPARK_TYPES[own] for _ in range(2))
        sides = zip((self.left, self.right), kinds, strict=True)
        return f"{function}({', '.join(f'cast({side.spark(event, parsed)} as {kind})' for side, kind in sides)})"

    def python(self, event: type[Event] | None) -> str:
        name = {"+": "plus", "-": "minus", "*": "times"}[self.operator]
        return f"{name}({self.left.python(event)}, {self.right.python(event)})"

    def _decimal(self, left: tuple[int, int], right: tuple[int, int]) -> ColumnType:
        """The type of every result, from digits and places of both sides."""
        if self.operator == "*":
            digits, places = left[0] + right[0] + 1, left[1] + right[1]
        else:
            places = max(left[1], right[1])
            digits = max(left[0] - left[1], right[0] - right[1]) + places + 1
        if digits > MAX_DIGITS:
            raise ValueError(
                f'"{self.operator}" may give {digits} digits, but a decimal has at most {MAX_DIGITS}: declare the '
                "fields with fewer (max_digits)"
            )
        return ColumnType.decimal(digits, places)


def _digits(side: Expression, event: type[Event] | None) -> tuple[int, int]:
    """The digits and places of a decimal or an integer."""
    kind = side.kind(event)
    if kind.is_decimal:
        return kind.digits, kind.places
    is_constant = isinstance(side, Value) and isinstance(side.value, int)
    return (len(str(abs(side.value))) if is_constant else INTEGER_DIGITS), 0  # type: ignore[attr-defined]


def computed(operator: str, left: Any, right: Any) -> Any:
    """The result of Arithmetic on two values that are not null."""
    if isinstance(left, Decimal) or isinstance(right, Decimal):
        return _EXACTLY[operator](left, right)
    match operator:
        case "+":
            result = left + right
        case "-":
            result = left - right
        case _:
            result = left * right
    return result if isinstance(result, float) or fits_64_bits(result) else None


@storage_word("When")
@dataclass(frozen=True, slots=True)
class When(Expression):
    """`then` if the boolean `condition` is true, else `otherwise`."""

    condition: Expression
    then: Expression
    otherwise: Expression

    def kind(self, event: type[Event] | None) -> ColumnType:
        if self.condition.kind(event) is not ColumnType.BOOLEAN:
            raise ValueError("the condition of when() must be a boolean field")
        kind = common_type({self.then.kind(event), self.otherwise.kind(event)})
        if kind is None:
            raise ValueError("both results of when() must have one type")
        return kind

    def spark(self, event: type[Event] | None, parsed: Mapping[str, ColumnType]) -> str:
        condition, *results = (part.spark(event, parsed) for part in (self.condition, self.then, self.otherwise))
        own = self.kind(event)
        if own.is_decimal:
            results = [f"cast({each} as {spark_value_type(own)})" for each in results]
        return "if({}, {}, {})".format(condition, *results)

    def python(self, event: type[Event] | None) -> str:
        condition, then, otherwise = (part.python(event) for part in (self.condition, self.then, self.otherwise))
        return f"({then} if {condition} else {otherwise})"


@storage_word("Sortable")
@dataclass(frozen=True, slots=True)
class Sortable(Expression):
    """A decimal as a text that sorts, by bytes, as the decimals do; `kind` is the type of all that are compared."""

    of: Expression
    among: ColumnType

    def kind(self, event: type[Event] | None) -> ColumnType:
        self.of.kind(event)
        return ColumnType.TEXT

    def spark(self, event: type[Event] | None, parsed: Mapping[str, ColumnType]) -> str:
        return spark_sortable(self.of.spark(event, parsed), self.among.digits, self.among.places)

    def python(self, event: type[Event] | None) -> str:
        return f"sortable({self.of.python(event)}, {self.among.digits}, {self.among.places})"


Readable = Expression | Constant


@in_views('field("price")')
def field(name: str) -> Field:
    """A field of the event, for computations; without a computation, its name is enough."""
    return Field(name)


@in_views('value("sold")')
def value(constant: Constant) -> Value:
    """A constant; only a text needs `value`, because a plain text names a field."""
    return Value(constant)


@in_views('envelope("time")')
def envelope(name: str) -> FromEnvelope:
    """A part of the envelope: id, type, stream, sequence, time, partition, offset or record."""
    return FromEnvelope(name)


@in_views('point("latitude", "longitude")')
def point(latitude: str, longitude: str) -> Point:
    """A place on Earth from two fields in degrees."""
    return Point(Field(latitude), Field(longitude))


@in_views('minus("price", "previous_price")')
def minus(left: Readable, right: Readable) -> Arithmetic:
    """`left - right`."""
    return Arithmetic("-", expression(left), expression(right))


@in_views('negative("price")')
def negative(amount: Readable) -> Arithmetic:
    """`-amount`."""
    return Arithmetic("-", Value(0), expression(amount))


@in_views('when("is_paid", "price", 0)')
def when(condition: Readable, then: Readable, otherwise: Readable) -> When:
    """`then` if the boolean field `condition` is true, else `otherwise`."""
    return When(expression(condition), expression(then), expression(otherwise))


def expression(readable: Readable) -> Expression:
    """A text names a field, a number or boolean is a constant, an expression is itself."""
    if isinstance(readable, str):
        return Field(readable) if readable else Mistaken('an empty text names no field: write its name, or value("")')
    if isinstance(readable, bool | int | float | Decimal | UUID | date):
        return Value(readable)
    if isinstance(readable, type) or not hasattr(readable, "python"):
        return Mistaken(
            f"{shown(readable)} cannot be read of an event: write the name of a field, a number, or an expression such "
            'as value("…")'
        )
    return readable
