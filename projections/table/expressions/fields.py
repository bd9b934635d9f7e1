"""Fields of the data of an event."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.field_kinds import Digits, field_kinds
from headwater.eventlog.capturing.columns import Kind
from headwater.projections.table.decimals import MAX_DIGITS
from headwater.projections.table.declared import storage_word
from headwater.projections.table.expressions.generated_text import attribute, identifier, typed
from headwater.projections.table.expressions.source import Expression, UnknownField
from headwater.projections.table.rows import CapturedRow
from headwater.projections.table.types import (
    SPARK_TYPES,
    ColumnType,
    field_types,
    in_milliseconds,
    is_exact,
    spark_exact,
    spark_time,
)


@storage_word("Field")
@dataclass(frozen=True, slots=True)
class Field:
    """A field of the event's data."""

    name: str

    def kind(self, event: type[Event] | None) -> ColumnType:
        if event is None:
            raise ValueError(f'field "{self.name}" needs an event class: not every event has it')
        known = field_types(event)
        if self.name not in known:
            raise UnknownField(event.type, self.name, sorted(known))
        return known[self.name]

    def fields(self) -> frozenset[str]:
        return frozenset({self.name})

    def spark(self, event: type[Event] | None, parsed: Mapping[str, ColumnType]) -> str:
        column, own = f"data.{identifier(self.name)}", self.kind(event)
        if own is ColumnType.TIME and parsed[self.name] is ColumnType.TEXT:
            column = spark_time(column)
        elif parsed[self.name] is not own:
            column = f"try_cast({column} as {SPARK_TYPES[own]})"
        if is_exact(own):
            return spark_exact(column, own)
        return in_milliseconds(column) if own is ColumnType.TIME else column

    def python(self, event: type[Event] | None) -> str:
        return typed(f"data.{attribute(self.name)}", self.kind(event))


@storage_word("Point")
@dataclass(frozen=True, slots=True)
class Point:
    """A place on Earth, from two fields in degrees; null if either is null."""

    latitude: Field
    longitude: Field

    def kind(self, event: type[Event] | None) -> ColumnType:
        if {self.latitude.kind(event), self.longitude.kind(event)} != {ColumnType.FLOAT}:
            raise ValueError("point() needs two float fields, in degrees")
        return ColumnType.POINT

    def fields(self) -> frozenset[str]:
        return self.latitude.fields() | self.longitude.fields()

    def spark(self, event: type[Event] | None, parsed: Mapping[str, ColumnType]) -> str:
        latitude, longitude = self.latitude.spark(event, parsed), self.longitude.spark(event, parsed)
        place = f"named_struct('lat', {latitude}, 'lon', {longitude})"
        return f"if({latitude} is null or {longitude} is null, null, {place})"

    def python(self, event: type[Event] | None) -> str:
        return f"place({self.latitude.python(event)}, {self.longitude.python(event)})"


def without_digits(reads: Iterable[Expression], event: type[Event] | None) -> str:
    """The end of an error that says how to declare a decimal, if one of these is a field without its digits."""
    for each in reads:
        name = each.name if isinstance(each, Field) else ""
        if event is not None and _is_decimal(event, name) and not each.kind(event).is_decimal:
            return (
                f'; "{name}" is a Decimal without the digits that a column needs: write {name}: Annotated[Decimal, '
                f"Field(max_digits=12, decimal_places=2)], with at most {MAX_DIGITS} digits"
            )
    return ""


def _is_decimal(event: type[Event], name: str) -> bool:
    """Whether a field is declared as a Decimal, with digits or without."""
    if issubclass(event, CapturedRow):
        column = event.table.columns.get(name)
        return column is not None and column.kind is Kind.DECIMAL
    kinds = field_kinds(event)
    form = kinds[name].form if name in kinds else None
    return form is Decimal or isinstance(form, Digits)
