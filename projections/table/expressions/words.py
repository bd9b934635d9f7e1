"""The words by which views read events: `minus("price", "previous_price")`."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from uuid import UUID

from headwater.eventlog.declaring import shown
from headwater.projections.table.expressions.computations import Arithmetic, When
from headwater.projections.table.expressions.constants import Constant, Value
from headwater.projections.table.expressions.fields import Field, Point
from headwater.projections.table.expressions.from_envelope import FromEnvelope
from headwater.projections.table.expressions.source import Expression
from headwater.projections.table.mistaken import Mistaken, in_views

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
