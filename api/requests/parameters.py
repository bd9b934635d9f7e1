"""Query parameters: checks their names, and reads each value by its type."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from fastapi import Request
from starlette.convertors import PathConvertor, StringConvertor, register_url_convertor

from headwater.api.errors import BadParameter
from headwater.eventlog import times
from headwater.eventlog.integers import HIGHEST, LOWEST
from headwater.eventlog.times import shortened
from headwater.projections.table.types import ColumnType, exact_value

NEWLINE: Final = "\n"
STANDS_FOR_NEWLINE: Final = "\udc0a"
"""Half a surrogate pair, which no decoded path contains."""
MAX_DECIMAL_DIGITS: Final = 60
DECIMAL_PATTERN: Final = rf"^-?[0-9]{{1,{MAX_DECIMAL_DIGITS}}}(\.[0-9]{{1,{MAX_DECIMAL_DIGITS}}})?$"
_DECIMAL: Final = re.compile(DECIMAL_PATTERN)
Parameters = Sequence[tuple[str, str]]


def without_newlines(path: str) -> str:
    """The path whose route is found."""
    return path.replace(NEWLINE, STANDS_FOR_NEWLINE)


def with_newlines(path: str) -> str:
    """The path as it was sent, and a part of it."""
    return path.replace(STANDS_FOR_NEWLINE, NEWLINE)


class KeyConvertor(PathConvertor):
    """The rest of a path as it was sent: `{key:key}`."""

    def convert(self, value: str) -> str:
        """The text that was sent."""
        return with_newlines(value)


class NameConvertor(StringConvertor):
    """A part of a path as it was sent, without a slash: `{view:name}`."""

    def convert(self, value: str) -> str:
        """The text that was sent."""
        return with_newlines(value)


register_url_convertor("key", KeyConvertor())
register_url_convertor("name", NameConvertor())


def check_names(parameters: Parameters, known: Sequence[str], repeatable: Sequence[str] = ()) -> dict[str, str]:
    """The parameters by name; raises BadParameter for an unknown one, or for one given twice."""
    by_name: dict[str, str] = {}
    for name, value in parameters:
        if name not in known:
            raise BadParameter(name, "is not a parameter here", tuple(known))
        if name in by_name and name not in repeatable:
            raise BadParameter(name, "is given more than once: give it once")
        check_text(name, value)
        by_name[name] = value
    return by_name


def check_text(name: str, text: str) -> None:
    """Refuse text that no store can hold; raises BadParameter."""
    if "\0" in text:
        raise BadParameter(name, "contains the character U+0000, which no row has: remove it")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise BadParameter(name, "contains half a surrogate pair, which no row has: send valid UTF-8")


def read_integer(name: str, text: str, lowest: int, highest: int) -> int:
    """An integer parameter within limits; raises BadParameter."""
    digits = text.removeprefix("-")
    value = int(text) if digits.isascii() and digits.isdigit() and len(digits) <= 19 else None
    if value is None or not lowest <= value <= highest:
        raise BadParameter(name, f'is "{shortened(text)}": send a whole number from {lowest} to {highest}')
    return value


def read_float(name: str, text: str) -> float:
    """A finite number; raises BadParameter."""
    try:
        value = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadParameter(name, f'is "{shortened(text)}": send a finite number')
    return value


def read_boolean(name: str, text: str) -> bool:
    """`true` or `false`; raises BadParameter."""
    if text not in ("true", "false"):
        raise BadParameter(name, f'is "{shortened(text)}": send true or false')
    return text == "true"


def read_time(name: str, text: str) -> datetime:
    """An RFC 3339 time with its offset from UTC; raises BadParameter."""
    try:
        # a "+" that was not percent-encoded arrives as a space
        return times.read_time(text.replace(" ", "+"))
    except ValueError as error:
        raise BadParameter(name, f"is invalid: {error}") from error


def read_decimal(name: str, text: str) -> Decimal:
    """A number that is read as it is written, whatever its digits; raises BadParameter."""
    if not _DECIMAL.fullmatch(text):
        example = f"at most {MAX_DECIMAL_DIGITS} digits before and behind the point, such as 12.50"
        raise BadParameter(name, f'is "{shortened(text)}": send a number without an exponent, {example}')
    return Decimal(text)


def read_date(name: str, text: str) -> date:
    """A date in ISO 8601; raises BadParameter."""
    day = exact_value(text, ColumnType.DATE)
    if not isinstance(day, str):
        raise BadParameter(name, f'is "{shortened(text)}": send a date such as 2026-01-31')
    return date.fromisoformat(day)


def read_uuid(name: str, text: str) -> UUID:
    """A UUID with its hyphens; raises BadParameter."""
    uuid = exact_value(text, ColumnType.UUID)
    if not isinstance(uuid, str):
        raise BadParameter(name, f'is "{shortened(text)}": send a UUID with its hyphens')
    return UUID(uuid)


def read_value(name: str, kind: ColumnType, text: str) -> Any:
    """The value of a filter on a column of this type; raises BadParameter."""
    check_text(name, text)
    match kind:
        case ColumnType.INTEGER:
            return read_integer(name, text, LOWEST, HIGHEST)
        case ColumnType.FLOAT:
            return read_float(name, text)
        case ColumnType.BOOLEAN:
            return read_boolean(name, text)
        case ColumnType.TIME:
            return read_time(name, text)
        case ColumnType.DATE:
            return read_date(name, text)
        case ColumnType.UUID:
            return read_uuid(name, text)
        case _ if kind.is_decimal:
            return read_decimal(name, text)
        case _:
            return text


def check_no_query(request: Request) -> None:
    """Refuse query parameters if a path has none, so that a mistake is not silently ignored."""
    for name in request.query_params:
        raise BadParameter(name, "is not a parameter here: this path has no query parameters")
