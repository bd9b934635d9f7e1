"""The columns of a captured table: what a field's annotation says about the values of its column."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Final
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from headwater.eventlog.capturing.errors import SourceDeclarationError
from headwater.eventlog.declaring import shown
from headwater.eventlog.personal.mark import has_mark


class Kind(Enum):
    """What a column holds. In the JSON of a row, numbers and booleans are themselves, and JSON is embedded.

    Everything else is text: DECIMAL in digits, TIMESTAMP, DATE, TIME and INTERVAL in ISO 8601, BYTES in base64. ARRAY
    is a list of such values.
    """

    TEXT = "text"
    INTEGER = "integer"
    FLOAT = "float"
    BOOLEAN = "boolean"
    DECIMAL = "decimal"
    TIMESTAMP = "timestamp"
    DATE = "date"
    TIME = "time"
    INTERVAL = "interval"
    UUID = "uuid"
    BYTES = "bytes"
    ENUM = "enum"
    JSON = "json"
    ARRAY = "array"


@dataclass(frozen=True, slots=True)
class Hashed:
    """The column's text is replaced by its hash, before it leaves the database's network: `Annotated[str, Hashed()]`.

    Equal texts have equal hashes: SHA-256 with the salt in `HEADWATER_<SOURCE>_SALT`, in hexadecimal digits.
    """


@dataclass(frozen=True, slots=True)
class Truncated:
    """Only the first `characters` of the column's text are captured: `Annotated[str, Truncated(10)]`."""

    characters: int


Mask = Hashed | Truncated
KINDS: Final[Mapping[Any, Kind]] = {
    str: Kind.TEXT,
    int: Kind.INTEGER,
    float: Kind.FLOAT,
    bool: Kind.BOOLEAN,
    Decimal: Kind.DECIMAL,
    datetime: Kind.TIMESTAMP,
    date: Kind.DATE,
    time: Kind.TIME,
    timedelta: Kind.INTERVAL,
    UUID: Kind.UUID,
    bytes: Kind.BYTES,
    dict: Kind.JSON,
    Any: Kind.JSON,
}
KEY_KINDS: Final = frozenset(
    {Kind.TEXT, Kind.INTEGER, Kind.BOOLEAN, Kind.DECIMAL, Kind.TIMESTAMP, Kind.DATE, Kind.TIME, Kind.UUID, Kind.ENUM}
)
"""Kinds whose values are equal exactly if their texts are; numbers with a fraction are declared as Decimal."""
WORDS: Final[Mapping[Kind, str]] = {
    Kind.TEXT: "str",
    Kind.INTEGER: "int",
    Kind.FLOAT: "float",
    Kind.BOOLEAN: "bool",
    Kind.DECIMAL: "Decimal",
    Kind.TIMESTAMP: "datetime",
    Kind.DATE: "date",
    Kind.TIME: "time",
    Kind.INTERVAL: "timedelta",
    Kind.UUID: "UUID",
    Kind.BYTES: "bytes",
    Kind.ENUM: "an Enum",
    Kind.JSON: "dict",
    Kind.ARRAY: "list[…]",
}
WRITABLE: Final = (
    "str, int, float, bool, Decimal, datetime, date, time, timedelta, UUID, bytes, dict, list[…] or an Enum"
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a captured table.

    name: in the database, and in rows.
    nullable: whether the class accepts NULL.
    default: the value for records that lack the column, because they are older than it.
    required: there is no such value.
    item: of the values in an ARRAY.
    choices: the values of an ENUM.
    digits: of a DECIMAL, altogether and of these behind the point, if its class says how many it has.
    """

    name: str
    kind: Kind
    nullable: bool
    required: bool
    default: Any = None
    item: Kind | None = None
    choices: tuple[str, ...] = ()
    mask: Mask | None = None
    digits: tuple[int, int] | None = None


def column_of(owner: str, name: str, info: FieldInfo) -> Column:
    """The column that a pydantic field declares; raises SourceDeclarationError with what to write instead.

    owner: what has the column, such as `table "public.customers"`.
    """
    column = info.alias or name
    where = f'column "{column}" of {owner}'
    if has_mark(info):
        raise SourceDeclarationError(
            f"{where} is Personal, which only fields of commands, events and states can be: a captured row is "
            "stored as its database has it; remove the mark, or capture a text as Hashed()"
        )
    annotation, nullable = _without_none(info.annotation)
    kind, item, choices = _kind(annotation, where)
    mask = _mask(info.metadata, where)
    if mask is not None and kind is not Kind.TEXT:
        raise SourceDeclarationError(f"{where} is not text: Hashed and Truncated are for columns of type str")
    if info.default_factory is not None:
        raise SourceDeclarationError(f"{where} has a default_factory: write the value itself as its default")
    absent = info.default is PydanticUndefined
    default = None if absent else _default(info.default, nullable, where)
    digits = None
    if kind in (Kind.DECIMAL, Kind.DATE):
        typed: Any = Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
        adapter = TypeAdapter[Any](typed)
        digits = _digits(adapter.core_schema)
        try:
            if default is not None:
                adapter.validate_python(default)
        except ValidationError as error:
            raise SourceDeclarationError(
                f"{where} has the default {shown(default)}, which is none of its type: {error.errors()[0]['msg']}"
            ) from error
    return Column(
        name=column,
        kind=kind,
        nullable=nullable,
        required=absent and not nullable,
        default=default,
        item=item,
        choices=choices,
        mask=mask,
        digits=digits,
    )


def _digits(schema: Mapping[str, Any]) -> tuple[int, int] | None:
    """`max_digits` and `decimal_places` of a decimal; None unless it has both."""
    while schema["type"] != "decimal" and "schema" in schema:
        schema = schema["schema"]
    total, places = schema.get("max_digits"), schema.get("decimal_places")
    return None if total is None or places is None else (total, places)


def _default(value: Any, nullable: bool, where: str) -> Any:
    """The JSON value of a field's default, which stands in for a column that older records lack."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, Decimal) or type(value) is date:  # not a time, which is a date in Python
        value = str(value)
    if value is None and not nullable:
        raise SourceDeclarationError(f'{where} has the default None, but its type excludes it: add "| None"')
    if not isinstance(value, str | int | float | bool | None):
        raise SourceDeclarationError(
            f"{where} has a default that is not text, a number, a day, a boolean or None: declare it so"
        )
    return value


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return annotation, annotation is Any
    members = typing.get_args(annotation)
    others = [member for member in members if member is not type(None)]
    return (others[0] if len(others) == 1 else annotation), len(others) < len(members)


def _kind(annotation: Any, where: str) -> tuple[Kind, Kind | None, tuple[str, ...]]:
    if isinstance(annotation, typing.ForwardRef | str):
        raise SourceDeclarationError(
            f"{where} has a type that is not known there: import or define it before the class"
        )
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _kind(typing.get_args(annotation)[0], where)
    if origin in (list, tuple, Sequence):
        inner, _ = _without_none(typing.get_args(annotation)[0])
        kind, _, _ = _kind(inner, where)
        return Kind.ARRAY, kind, ()
    if origin is dict or (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return Kind.JSON, None, ()
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        choices = [argument.value for argument in annotation]
        if not all(isinstance(choice, str) for choice in choices):
            raise SourceDeclarationError(
                f"{where} is an Enum with values that are not text, as the enums of databases are"
            )
        return Kind.ENUM, None, tuple(choices)
    try:
        return KINDS[annotation], None, ()
    except (KeyError, TypeError):
        raise SourceDeclarationError(
            f"{where} has the type {annotation!r}: write {WRITABLE}, or one of them with | None"
        ) from None


def _mask(metadata: Sequence[Any], where: str) -> Mask | None:
    for mark in metadata:
        if mark in (Hashed, Truncated):
            raise SourceDeclarationError(f"{where}: write {mark.__name__}(…) with parentheses")
    masks = [mark for mark in metadata if isinstance(mark, Hashed | Truncated)]
    if len(masks) > 1:
        raise SourceDeclarationError(f"{where} is both hashed and truncated: choose one")
    for mask in masks:
        if isinstance(mask, Truncated) and mask.characters < 1:
            raise SourceDeclarationError(f"{where}: Truncated({mask.characters}) keeps nothing; leave the column out")
    return masks[0] if masks else None


_NUMBER: Final = "(?:(-?[0-9]+){})?"
_DAYS: Final = "".join(map(_NUMBER.format, "YMD"))
_HOURS: Final = "".join(map(_NUMBER.format, "HM"))
_SIGNED: Final = re.compile(rf"P{_DAYS}(?:T{_HOURS}(?:(-?[0-9]+(?:\.[0-9]+)?)S)?)?")
YEAR_DAYS, MONTH_DAYS = 365, 30
"""As pydantic counts them in an interval without signs."""


def _added_up(value: Any) -> Any:
    """The sum of the parts if one of them is negative: pydantic knows no such intervals."""
    signed = _SIGNED.fullmatch(value) if isinstance(value, str) and "-" in value else None
    if signed is None:
        return value
    years, months, days, hours, minutes = (int(group or 0) for group in signed.groups()[:5])
    try:
        return timedelta(
            days=years * YEAR_DAYS + months * MONTH_DAYS + days,
            hours=hours,
            minutes=minutes,
            seconds=float(signed[6] or 0),
        )
    except OverflowError as error:
        raise ValueError(f'"{value}" is longer than a timedelta can be') from error


SIGNED_PARTS: Final = BeforeValidator(_added_up)
"""Metadata of a field with the type timedelta."""
