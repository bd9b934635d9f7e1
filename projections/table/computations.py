"""Values that are computed from others, and conditions: native in Spark and plain in Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Final
from uuid import UUID

from headwater.commands.declaring.aggregate import Event
from headwater.eventlog.declaring import shown
from headwater.projections.table.decimals import MAX_DIGITS, spark_sortable
from headwater.projections.table.declared import storage_word
from headwater.projections.table.expressions import (
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

COMPARED: Final = (
    ColumnType.TEXT,
    ColumnType.INTEGER,
    ColumnType.FLOAT,
    ColumnType.BOOLEAN,
    ColumnType.DATE,
    ColumnType.UUID,
)
_FUNCTIONS: Final = {
    "=": "equal", "<>": "differing", "<": "below", "<=": "at_most", ">": "above", ">=": "at_least",
}  # fmt: skip


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
            kinds_text = " and ".join(sorted(kind.value for kind in kinds))
            hint = without_digits((self.left, self.right), event)
            raise ValueError(f'"{self.operator}" needs numbers, not {kinds_text}{hint}')
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
            results = [f"cast({result} as {spark_value_type(own)})" for result in results]
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


@storage_word("Comparison")
@dataclass(frozen=True, slots=True)
class Comparison(Expression):
    """`left operator right` of two values of one type; false if either is null. Text compares by code point."""

    operator: str
    left: Expression
    right: Expression

    def kind(self, event: type[Event] | None) -> ColumnType:
        self._common(event)
        return ColumnType.BOOLEAN

    def spark(self, event: type[Event] | None, parsed: Mapping[str, ColumnType]) -> str:
        left, right = self.left.spark(event, parsed), self.right.spark(event, parsed)
        kind = self._common(event)
        if kind.is_decimal:
            left, right = (f"cast({side} as {spark_value_type(kind)})" for side in (left, right))
        return f"coalesce(({left}) {self.operator} ({right}), false)"

    def python(self, event: type[Event] | None) -> str:
        return f"{_FUNCTIONS[self.operator]}({self.left.python(event)}, {self.right.python(event)})"

    def _common(self, event: type[Event] | None) -> ColumnType:
        """The type of both sides; raises ValueError if they cannot be compared."""
        kinds = {self.left.kind(event), self.right.kind(event)}
        common = common_type(kinds)
        if common is None:
            raise ValueError(
                f"it compares {' with '.join(sorted(kind.value for kind in kinds))}: compare values of one type"
                f"{without_digits((self.left, self.right), event)}"
            )
        if common not in COMPARED and not common.is_decimal:
            hint = without_digits((self.left, self.right), event)
            raise ValueError(f"a {common.value} cannot be compared: use text, numbers, booleans, dates or UUIDs{hint}")
        return common


@storage_word("Together")
@dataclass(frozen=True, slots=True)
class Together(Expression):
    """Whether all conditions are true (`word` is "and"), or at least one ("or")."""

    word: str
    parts: tuple[Expression, ...]

    def kind(self, event: type[Event] | None) -> ColumnType:
        for part in self.parts:
            must_be_condition(part, event)
        return ColumnType.BOOLEAN

    def spark(self, event: type[Event] | None, parsed: Mapping[str, ColumnType]) -> str:
        return f" {self.word} ".join(f"coalesce({part.spark(event, parsed)}, false)" for part in self.parts).join("()")

    def python(self, event: type[Event] | None) -> str:
        return f" {self.word} ".join(f"bool({part.python(event)})" for part in self.parts).join("()")


@storage_word("Negation")
@dataclass(frozen=True, slots=True)
class Negation(Expression):
    """Whether a condition is false; a condition on null is false."""

    of: Expression

    def kind(self, event: type[Event] | None) -> ColumnType:
        must_be_condition(self.of, event)
        return ColumnType.BOOLEAN

    def spark(self, event: type[Event] | None, parsed: Mapping[str, ColumnType]) -> str:
        return f"(not coalesce({self.of.spark(event, parsed)}, false))"

    def python(self, event: type[Event] | None) -> str:
        return f"(not {self.of.python(event)})"


@storage_word("Known")
@dataclass(frozen=True, slots=True)
class Known(Expression):
    """1 if the value is not null, else 0."""

    of: Expression

    def kind(self, event: type[Event] | None) -> ColumnType:
        self.of.kind(event)
        return ColumnType.INTEGER

    def spark(self, event: type[Event] | None, parsed: Mapping[str, ColumnType]) -> str:
        return f"if({self.of.spark(event, parsed)} is null, 0L, 1L)"

    def python(self, event: type[Event] | None) -> str:
        return f"int({self.of.python(event)} is not None)"


@in_views('equals("status", value("sold"))')
def equals(left: Readable, right: Readable) -> Comparison:
    """Whether two values are equal; compare with a text as `value("…")`, because a plain text names a field."""
    return Comparison("=", expression(left), expression(right))


@in_views('differs("status", value("sold"))')
def differs(left: Readable, right: Readable) -> Comparison:
    """Whether two values are not null and differ."""
    return Comparison("<>", expression(left), expression(right))


@in_views('below("price", 100)')
def below(left: Readable, right: Readable) -> Comparison:
    """Whether `left < right`."""
    return Comparison("<", expression(left), expression(right))


@in_views('at_most("price", 100)')
def at_most(left: Readable, right: Readable) -> Comparison:
    """Whether `left <= right`."""
    return Comparison("<=", expression(left), expression(right))


@in_views('above("price", 100)')
def above(left: Readable, right: Readable) -> Comparison:
    """Whether `left > right`."""
    return Comparison(">", expression(left), expression(right))


@in_views('at_least("price", 100)')
def at_least(left: Readable, right: Readable) -> Comparison:
    """Whether `left >= right`."""
    return Comparison(">=", expression(left), expression(right))


@in_views('all_of("is_paid", above("price", 100))')
def all_of(*conditions: Readable) -> Together:
    """Whether every condition is true."""
    return Together("and", _some(conditions))


@in_views('any_of("is_paid", above("price", 100))')
def any_of(*conditions: Readable) -> Together:
    """Whether at least one condition is true."""
    return Together("or", _some(conditions))


@in_views('negated("is_paid")')
def negated(condition: Readable) -> Negation:
    """Whether the condition is false."""
    return Negation(expression(condition))


def _some(conditions: Sequence[Readable]) -> tuple[Expression, ...]:
    if not conditions:
        raise ValueError("has no condition")
    return tuple(map(expression, conditions))


def must_be_condition(part: Expression, event: type[Event] | None) -> None:
    """Raise ValueError if `part` is not a boolean of this event."""
    kind = part.kind(event)
    if kind is not ColumnType.BOOLEAN:
        raise ValueError(f"a condition must be a boolean, not {kind.value}: compare it, with equals() for example")
