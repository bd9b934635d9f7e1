"""One event, what every expression can do, and those that read the event as it is: fields, the envelope, constants."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, Protocol
from uuid import UUID

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.field_kinds import Digits, field_kinds
from headwater.eventlog.capturing.columns import Kind
from headwater.eventlog.declaring import meant, shown
from headwater.eventlog.envelope import Envelope, Position
from headwater.eventlog.integers import fits_64_bits
from headwater.eventlog.topics import EVENTS
from headwater.projections.table.decimals import MAX_DIGITS
from headwater.projections.table.declared import storage_word
from headwater.projections.table.rows import CapturedRow
from headwater.projections.table.types import (
    SPARK_TYPES,
    ColumnType,
    field_types,
    in_milliseconds,
    is_exact,
    spark_exact,
    spark_time,
    spark_value_type,
)

ENVELOPE_TYPES: Final[Mapping[str, ColumnType]] = {
    "id": ColumnType.TEXT,
    "type": ColumnType.TEXT,
    "stream": ColumnType.TEXT,
    "sequence": ColumnType.INTEGER,
    "time": ColumnType.TIME,
    "partition": ColumnType.INTEGER,
    "offset": ColumnType.INTEGER,
    "record": ColumnType.JSON,
}
CONSTANTS: Final[Mapping[type, ColumnType]] = {
    bool: ColumnType.BOOLEAN,
    int: ColumnType.INTEGER,
    float: ColumnType.FLOAT,
    str: ColumnType.TEXT,
    date: ColumnType.DATE,
    UUID: ColumnType.UUID,
}


@dataclass(frozen=True, slots=True)
class Source:
    """One event or change of a row: its envelope, its position in its topic, and the record's text."""

    envelope: Envelope
    position: Position
    timestamp_ms: int
    record: str
    topic: str = EVENTS


class Expression(Protocol):
    """A value that is computed from one event."""

    def kind(self, event: type[Event] | None) -> ColumnType:
        """Its type for this event class (None: any event). Raises ValueError naming what the event lacks."""

    def fields(self) -> frozenset[str]:
        """The fields of `data` that it reads: those of the expressions in it, unless it says otherwise."""
        return frozenset[str]().union(*(part.fields() for part in parts_in(self)))

    def spark(self, event: type[Event] | None, parsed: Mapping[str, ColumnType]) -> str:
        """Its Spark SQL; `parsed` has the types as which the fields of `data` were parsed."""

    def python(self, event: type[Event] | None) -> str:
        """Python source of its value, over the names of `projections/reading/compiled.py`.

        The value is in JSON types, or a Decimal with the places of its type; Spark's value must equal it.
        """


def parts_in(expression: Expression) -> list[Expression]:
    """The expressions that a dataclass has in its fields, also in tuples and mappings."""
    slots = [getattr(expression, name) for name in getattr(expression, "__dataclass_fields__", ())]
    return [part for slot in slots for part in _parts_in(slot)]


def _parts_in(slot: Any) -> list[Expression]:
    match slot:
        case tuple():
            return [part for item in slot for part in _parts_in(item)]
        case Mapping():
            return list(slot.values())
        case _:
            return [slot] if hasattr(slot, "python") else []


class UnknownField(ValueError):
    """An event has no field of this name. problem: without what else a text may mean."""

    def __init__(self, event_type: str, name: object, known: Sequence[str]) -> None:
        if isinstance(name, str):
            self.problem = f'event "{event_type}" has no field {meant(name, known)}'
            constant = f'; a text that is no field is written value("{name}")'
        else:
            self.problem = f"a field is named by a text, not by {shown(name)}; it has {', '.join(known)}"
            constant = ""
        super().__init__(self.problem + constant)


def attribute(name: str) -> str:
    """The name in compiled source of a field with this name in JSON."""
    return "f_" + "".join(c if c.isascii() and c.isalnum() else "_" if c == "_" else f"_{ord(c):x}_" for c in name)


def typed(text: str, kind: ColumnType) -> str:
    """Python source that reads `text`, a decoded field of this type, in the form of rows."""
    if kind.is_decimal:
        return f"decimal_{kind.digits}_{kind.places}({text})"
    functions = {
        ColumnType.TIME: "time_text",
        ColumnType.JSON: "json_text",
        ColumnType.DATE: "date_text",
        ColumnType.UUID: "uuid_text",
    }
    return f"{functions[kind]}({text})" if kind in functions else text


def identifier(name: str) -> str:
    """`name` quoted for Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def from_json(text: str, schema: str) -> str:
    """Spark SQL that parses a JSON text; null if it is none. schema: in Spark's syntax.

    By default Spark also reads texts that are no JSON, such as those in single quotes.
    """
    strictly = "map('allowSingleQuotes', 'false', 'allowNonNumericNumbers', 'false')"
    return f"from_json({text}, {literal(schema)}, {strictly})"


def literal(text: str) -> str:
    """`text` as a Spark SQL string literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
    escaped = escaped.replace("\0", "\\u0000")
    return f"'{escaped}'"


@storage_word("FromEnvelope")
@dataclass(frozen=True, slots=True)
class FromEnvelope(Expression):
    """A value that every event has, whatever its type: one of `ENVELOPE_TYPES`; `record` is the whole document.

    In Spark these are columns of the parsed log with the same names, next to `data`.
    """

    name: str

    def kind(self, event: type[Event] | None) -> ColumnType:
        if self.name not in ENVELOPE_TYPES:
            raise ValueError(f'an envelope has no "{self.name}"; it has {", ".join(ENVELOPE_TYPES)}')
        return ENVELOPE_TYPES[self.name]

    def spark(self, event: type[Event] | None, parsed: Mapping[str, ColumnType]) -> str:
        return identifier(self.name)

    def python(self, event: type[Event] | None) -> str:
        match self.name:
            case "time":
                return "format_milliseconds(timestamp_ms)"
            case "partition" | "offset":
                return self.name
            case "record":
                return "value.decode()"
            case "stream":
                return "head.subject"
            case _:
                return f"head.{self.name}"


def format_milliseconds(timestamp_ms: int) -> str:
    """RFC 3339 in UTC with milliseconds; events of one second share all but these."""
    seconds, rest = divmod(timestamp_ms, 1000)
    return f"{_to_the_second(seconds)}.{rest:03d}Z"


@lru_cache(maxsize=1024)
def _to_the_second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19]


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
class Point(Expression):
    """A place on Earth, from two fields in degrees; null if either is null."""

    latitude: Field
    longitude: Field

    def kind(self, event: type[Event] | None) -> ColumnType:
        if {self.latitude.kind(event), self.longitude.kind(event)} != {ColumnType.FLOAT}:
            raise ValueError("point() needs two float fields, in degrees")
        return ColumnType.POINT

    def spark(self, event: type[Event] | None, parsed: Mapping[str, ColumnType]) -> str:
        latitude, longitude = self.latitude.spark(event, parsed), self.longitude.spark(event, parsed)
        place = f"named_struct('lat', {latitude}, 'lon', {longitude})"
        return f"if({latitude} is null or {longitude} is null, null, {place})"

    def python(self, event: type[Event] | None) -> str:
        return f"place({self.latitude.python(event)}, {self.longitude.python(event)})"


def without_digits(reads: Iterable[Expression], event: type[Event] | None) -> str:
    """The end of an error that says how to declare a decimal, if one of these is a field without its digits."""
    for field in reads:
        name = field.name if isinstance(field, Field) else ""
        if event is not None and _is_decimal(event, name) and not field.kind(event).is_decimal:
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


@storage_word("Value")
@dataclass(frozen=True, slots=True)
class Value(Expression):
    """A constant."""

    value: Constant

    def kind(self, event: type[Event] | None) -> ColumnType:
        if isinstance(self.value, Decimal):
            _, digits, exponent = self.value.as_tuple()
            if not isinstance(exponent, int):
                raise ValueError(f"no store holds the constant {shown(self.value)}: use a finite number")
            places = max(-exponent, 0)
            return ColumnType.decimal(max(len(digits) + max(exponent, 0), places, 1), places)
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
