"""What a fold reads of one event: fields, constants and simple arithmetic, native in Spark and plain in Python."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, Protocol
from uuid import UUID

from commands.declaring.aggregate import Event
from commands.declaring.field_kinds import Digits, field_kinds
from eventlog.declaring import meant, shown
from eventlog.envelope import Envelope, Position
from eventlog.integers import fits_64_bits
from eventlog.topics import EVENTS
from projections.table.decimals import EXACT, MAX_DIGITS, sortable_text, spark_sortable
from projections.table.declared import storage_word
from projections.table.mistaken import Mistaken, in_views
from projections.table.types import (
    INTEGER_DIGITS,
    SPARK_TYPES,
    ColumnType,
    common_type,
    field_types,
    in_milliseconds,
    is_exact,
    spark_exact,
    spark_value_type,
)


@dataclass(frozen=True, slots=True)
class Source:
    """One event for an expression: its envelope, its position in its topic, and the record's text.

    item, index: if it is one item of a list in the event. lists: whose items are read (`projections/table/items.py`).
    """

    envelope: Envelope
    position: Position
    timestamp_ms: int
    record: str
    topic: str = EVENTS
    item: Mapping[str, Any] | None = None
    index: int = 0
    lists: Mapping[str, Sequence[Any]] | None = None


class Expression(Protocol):
    """A value that is computed from one event."""

    def kind(self, event: type[Event] | None) -> ColumnType:
        """Its type for this event class (None: any event). Raises ValueError naming what the event lacks."""

    def fields(self) -> frozenset[str]:
        """The fields of `data` that it reads."""

    def spark(self, event: type[Event] | None, parsed: Mapping[str, ColumnType]) -> str:
        """Its Spark SQL; `parsed` has the types as which the fields of `data` were parsed."""

    def evaluate(self, source: Source) -> Any:
        """Its value in Python, in JSON types, or a Decimal with the places of its type; Spark's value must equal it."""

    def python(self, event: type[Event] | None) -> str:
        """Python source of its value, over the names of `projections/folding/compiled.py`; it equals `evaluate`."""


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
        if parsed[self.name] is not own:
            column = f"try_cast({column} as {SPARK_TYPES[own]})"
        if is_exact(own):
            return spark_exact(column, own)
        return in_milliseconds(column) if own is ColumnType.TIME else column

    def evaluate(self, source: Source) -> Any:
        return source.envelope.data.get(self.name)

    def python(self, event: type[Event] | None) -> str:
        return typed(f"data.{attribute(self.name)}", self.kind(event))


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

    def evaluate(self, source: Source) -> Any:
        return str(self.value) if isinstance(self.value, date | UUID) else self.value

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

    def evaluate(self, source: Source) -> Any:
        return None

    def python(self, event: type[Event] | None) -> str:
        return "None"


@storage_word("Arithmetic")
@dataclass(frozen=True, slots=True)
class Arithmetic:
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

    def fields(self) -> frozenset[str]:
        return self.left.fields() | self.right.fields()

    def spark(self, event: type[Event] | None, parsed: Mapping[str, ColumnType]) -> str:
        function = {"+": "try_add", "-": "try_subtract", "*": "try_multiply"}[self.operator]
        own = self.kind(event)
        if own.is_decimal:  # Spark rounds if the result of its own types would need more digits, which `kind` refuses
            kinds = ("decimal({}, {})".format(*_digits(side, event)) for side in (self.left, self.right))
        else:
            kinds = (SPARK_TYPES[own] for _ in range(2))
        sides = zip((self.left, self.right), kinds, strict=True)
        return f"{function}({', '.join(f'cast({side.spark(event, parsed)} as {kind})' for side, kind in sides)})"

    def evaluate(self, source: Source) -> Any:
        left, right = self.left.evaluate(source), self.right.evaluate(source)
        if left is None or right is None:
            return None
        return computed(self.operator, left, right)

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


_EXACTLY: Final[Mapping[str, Callable[[Any, Any], Decimal]]] = {
    "+": EXACT.add,
    "-": EXACT.subtract,
    "*": EXACT.multiply,
}


@storage_word("When")
@dataclass(frozen=True, slots=True)
class When:
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

    def fields(self) -> frozenset[str]:
        return self.condition.fields() | self.then.fields() | self.otherwise.fields()

    def spark(self, event: type[Event] | None, parsed: Mapping[str, ColumnType]) -> str:
        condition, *results = (part.spark(event, parsed) for part in (self.condition, self.then, self.otherwise))
        own = self.kind(event)
        if own.is_decimal:
            results = [f"cast({each} as {spark_value_type(own)})" for each in results]
        return "if({}, {}, {})".format(condition, *results)

    def evaluate(self, source: Source) -> Any:
        return (self.then if self.condition.evaluate(source) else self.otherwise).evaluate(source)

    def python(self, event: type[Event] | None) -> str:
        condition, then, otherwise = (part.python(event) for part in (self.condition, self.then, self.otherwise))
        return f"({then} if {condition} else {otherwise})"


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

    def evaluate(self, source: Source) -> Any:
        latitude, longitude = self.latitude.evaluate(source), self.longitude.evaluate(source)
        return None if latitude is None or longitude is None else {"lat": latitude, "lon": longitude}

    def python(self, event: type[Event] | None) -> str:
        return f"place({self.latitude.python(event)}, {self.longitude.python(event)})"


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


@storage_word("FromEnvelope")
@dataclass(frozen=True, slots=True)
class FromEnvelope:
    """A value that every event has, whatever its type: one of `ENVELOPE_TYPES`; `record` is the whole document.

    In Spark these are columns of the parsed log with the same names, next to `data`.
    """

    name: str

    def kind(self, event: type[Event] | None) -> ColumnType:
        if self.name not in ENVELOPE_TYPES:
            raise ValueError(f'an envelope has no "{self.name}"; it has {", ".join(ENVELOPE_TYPES)}')
        return ENVELOPE_TYPES[self.name]

    def fields(self) -> frozenset[str]:
        return frozenset()

    def spark(self, event: type[Event] | None, parsed: Mapping[str, ColumnType]) -> str:
        return identifier(self.name)

    def evaluate(self, source: Source) -> Any:
        match self.name:
            case "time":
                return format_milliseconds(source.timestamp_ms)
            case "partition" | "offset":
                return getattr(source.position, self.name)
            case "record":
                return source.record
            case _:
                return getattr(source.envelope, self.name)

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


@storage_word("Sortable")
@dataclass(frozen=True, slots=True)
class Sortable:
    """A decimal as a text that sorts, by bytes, as the decimals do; `kind` is the type of all that are compared."""

    of: Expression
    among: ColumnType

    def kind(self, event: type[Event] | None) -> ColumnType:
        self.of.kind(event)
        return ColumnType.TEXT

    def fields(self) -> frozenset[str]:
        return self.of.fields()

    def spark(self, event: type[Event] | None, parsed: Mapping[str, ColumnType]) -> str:
        return spark_sortable(self.of.spark(event, parsed), self.among.digits, self.among.places)

    def evaluate(self, source: Source) -> Any:
        value = self.of.evaluate(source)
        return None if value is None else sortable_text(Decimal(value), self.among.digits, self.among.places)

    def python(self, event: type[Event] | None) -> str:
        return f"sortable({self.of.python(event)}, {self.among.digits}, {self.among.places})"


def without_digits(reads: Iterable[Expression], event: type[Event] | None) -> str:
    """The end of an error that says how to declare a decimal, if one of these is a field without its digits."""
    kinds = {} if event is None else field_kinds(event)
    for each in reads:
        name = each.name if isinstance(each, Field) else ""
        form = kinds[name].form if name in kinds else None
        if form is Decimal or (isinstance(form, Digits) and each.kind(event) is ColumnType.JSON):
            return (
                f'; "{name}" is a Decimal without the digits that a column needs: write {name}: Annotated[Decimal, '
                f"Field(max_digits=12, decimal_places=2)], with at most {MAX_DIGITS} digits"
            )
    return ""


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
    if isinstance(readable, type) or not hasattr(readable, "evaluate"):
        return Mistaken(
            f"{shown(readable)} cannot be read of an event: write the name of a field, a number, or an expression such "
            'as value("…")'
        )
    return readable


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


def literal(text: str) -> str:
    """`text` as a Spark SQL string literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
    escaped = escaped.replace("\0", "\\u0000")
    return f"'{escaped}'"


def format_milliseconds(timestamp_ms: int) -> str:
    """RFC 3339 in UTC with milliseconds; events of one second share all but these."""
    seconds, rest = divmod(timestamp_ms, 1000)
    return f"{_to_the_second(seconds)}.{rest:03d}Z"


@lru_cache(maxsize=1024)
def _to_the_second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19]
