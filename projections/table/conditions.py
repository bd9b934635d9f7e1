"""Conditions on one event, for `where`, `when` and filters: native in Spark and plain in Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headwater.commands.declaring.aggregate import Event
from headwater.projections.table.declared import storage_word
from headwater.projections.table.expressions import Expression, Readable, expression, without_digits
from headwater.projections.table.mistaken import in_views
from headwater.projections.table.types import ColumnType, common_type, spark_value_type

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
