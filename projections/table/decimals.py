"""Decimals: exact numbers with a fixed number of digits behind the point, in Python, in Spark SQL, and as text.

Rows and patches have a decimal as its text with all its places, such as "12.50" of a DECIMAL(10, 2): JSON has no exact
numbers. Expressions have it as a `Decimal`, or as Spark's `decimal(10,2)`. Nothing rounds: a value with more digits is
none of this type.
"""

from __future__ import annotations

import re
from decimal import Context, Decimal, DecimalException, DivisionByZero, Inexact, InvalidOperation, Overflow
from functools import lru_cache
from typing import Any, Final

MAX_DIGITS: Final = 38
"""Of a decimal: Spark and Arrow have no more."""
EXACT: Final = Context(prec=120, Emax=9_999, Emin=-9_999, traps=[Inexact, InvalidOperation, Overflow, DivisionByZero])
"""The context of all arithmetic; Python's own rounds to 28 digits. A sum of 10^80 events would fit."""
SCIENTIFIC: Final = r"-?[0-9](\.[0-9]{1,90})?[eE][+-]?[0-4]?[0-9]"
"""A number with an exponent as Python and Java write it: one digit before the point."""
_MOST_EXPONENT: Final = 49
_WRITTEN: Final = re.compile(rf"-?[0-9]+(\.[0-9]+)?|{SCIENTIFIC}")


@lru_cache(maxsize=256)
def _form(digits: int, places: int) -> tuple[Context, Decimal]:
    context = Context(prec=digits, Emax=9_999, Emin=-9_999, traps=[Inexact, InvalidOperation, Overflow])
    return context, Decimal((0, (1,), -places))


def exact_decimal(value: Any, digits: int, places: int) -> Decimal | None:
    """The decimal that a text or number in JSON stands for; None if it is none, or has too many digits or places.

    A number with a point is a double in JSON, and is read as the shortest digits that give it.
    """
    match value:
        case bool():
            return None
        case Decimal() | int():
            decimal = Decimal(value)
        case float():
            decimal = Decimal(repr(value))
        case str() if _WRITTEN.fullmatch(value):
            decimal = Decimal(value)
        case _:
            return None
    if not decimal.is_finite():
        return None
    context, quantum = _form(digits, places)
    try:
        made = context.quantize(decimal, quantum)
    except DecimalException:
        return None
    return made if made else abs(made)  # zero has no sign


def decimal_text(value: Decimal | int, places: int) -> str:
    """The text of a decimal in rows: all its places, and no exponent. It may have more digits than its type."""
    decimal = EXACT.quantize(Decimal(value), _form(MAX_DIGITS, places)[1])
    return f"{decimal if decimal else abs(decimal):f}"  # zero has no sign


def fits_digits(text: str, digits: int) -> bool:
    """Whether the text of a decimal has at most so many digits."""
    return len(text) <= digits or len(text.lstrip("-").replace(".", "").lstrip("0")) <= digits


def added(one: str | int | None, other: str | int | None, places: int) -> str:
    """The sum of two decimals in the form of rows; None counts as 0."""
    return decimal_text(EXACT.add(Decimal(one or 0), Decimal(other or 0)), places)


def extreme(one: str, other: str, *, highest: bool) -> str:
    """The higher, or lower, of two decimals in the form of rows."""
    return (max if highest else min)(one, other, key=Decimal)


def sortable_text(value: Decimal, digits: int, places: int) -> str:
    """A text that sorts, by bytes, as decimals of a type do by value; its inverse is `from_sortable`."""
    unscaled = int(EXACT.scaleb(value, places))
    return f"1{unscaled:0{digits}d}" if unscaled >= 0 else f"0{10**digits - 1 + unscaled:0{digits}d}"


def from_sortable(text: str, places: int) -> Decimal:
    """The value of a `sortable_text`."""
    unscaled = int(text[1:])
    if text[0] == "0":
        unscaled -= 10 ** len(text[1:]) - 1
    return EXACT.scaleb(Decimal(unscaled), -places)


def spark_decimal(text: str, digits: int, places: int) -> str:
    """Spark SQL of `exact_decimal` of a text; null if it is none."""
    written = rf"(?=-?[0-9])-?0*[0-9]{{0,{digits - places}}}(\.(?=[0-9])[0-9]{{0,{places}}}0*)?"
    # the same number without its exponent: its digits between enough zeros, with a point
    shown = f"translate(substring_index(upper({text}), 'E', 1), '-.', '')"
    point = f"try_cast(substring_index(upper({text}), 'E', -1) as int) + {_MOST_EXPONENT + 2}"
    filled = f"concat(repeat('0', {_MOST_EXPONENT + 1}), rpad({shown}, 150, '0'))"
    sign = f"if(startswith({text}, '-'), '-', '')"
    moved = f"concat({sign}, left({filled}, {point}), '.', substring({filled}, {point} + 1))"
    plain = f"if({text} rlike {_whole(SCIENTIFIC)}, {moved}, {text})"
    short = f"regexp_extract({plain}, {_whole(written)}, 0)"
    return f"try_cast({short} as decimal({digits},{places}))"


def spark_text(value: str, digits: int, places: int) -> str:
    """Spark SQL of the text of a number in rows. Not a cast, which writes 0E-10 unless Spark is ANSI."""
    decimal_sql = f"cast({value} as decimal({digits},{places}))"
    return (
        f"replace(format_number({decimal_sql}, {places}), ',', '')" if places > 6 else f"cast({decimal_sql} as string)"
    )


def spark_sortable(value: str, digits: int, places: int) -> str:
    """Spark SQL of `sortable_text`."""
    written = f"lpad(replace(replace({spark_text(value, digits, places)}, '-', ''), '.', ''), {digits + 1}, '0')"
    unsigned = f"right({written}, {digits})"
    return f"if({value} < 0, concat('0', translate({unsigned}, '0123456789', '9876543210')), concat('1', {unsigned}))"


def _whole(pattern: str) -> str:
    """A pattern that matches whole texts, as a literal of Spark SQL."""
    escaped = f"\\A(?:{pattern})\\z".replace("\\", "\\\\")
    return f"'{escaped}'"
