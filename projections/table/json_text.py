"""The text of a JSON value in a row: one form, whichever engine read the event.

Spark writes 12345678.9 as `1.23456789E7`, and Python does not. So what Spark wrote is written again in Python, when a
patch is decoded. All integers are exact; a number with a point or an exponent is a double.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec
import orjson

JsonTexts = Mapping[str, tuple[str, ...]]
"""The state fields whose values are such texts; for a list of entries, the names of those fields of an entry."""

LONG_INTEGER: Final = re.compile(rb"[0-9]{19}")
"""What may be an integer of more than 64 bits, which orjson reads as a double."""
SPARK_NUMBER: Final = re.compile(r"-?[0-9]\.[0-9]+E-?[0-9]{1,3}")
"""A double in a form that Spark writes, and Python never."""


def loads(text: bytes) -> Any:
    """The value of a JSON text. Raises ValueError if it is none, or has too many levels."""
    if not LONG_INTEGER.search(text):
        return orjson.loads(text)
    try:
        return msgspec.json.decode(text)
    except RecursionError as error:
        raise ValueError("too many levels") from error


def first_document(text: str) -> Any:
    """The first JSON document in a text, as Spark reads it; None if there is none.

    Unlike this, orjson refuses what follows it, and halves of surrogate pairs.
    """
    try:
        return loads(text.encode())
    except ValueError:
        pass
    try:
        document, _ = json.JSONDecoder(parse_constant=_refuse).raw_decode(text.lstrip())
        return loads(json.dumps(document, ensure_ascii=False).encode(errors="replace"))
    except (ValueError, RecursionError):
        return None


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def dumps(value: Any) -> str:
    """The text of a value in JSON types. Raises ValueError if it has too many levels, which are hundreds."""
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError:  # rare: integers of more than 64 bits, or more than 254 levels
        pass
    try:
        return orjson.dumps(_with_long_integers(value)).decode()
    except orjson.JSONEncodeError:
        return _deep(value)
    except RecursionError as error:
        raise ValueError("too many levels") from error


def canonical_text(text: str) -> str:
    """The text of a JSON value as rows have it. A value that is a text is as it is, and so is what is no JSON.

    A text that looks like a list, an object, or a number as Spark writes it is taken for one, since a JSON column does
    not tell the text "[1]" from the list.
    """
    if text[:1] in ("{", "["):
        try:
            return dumps(loads(text.encode()))
        except ValueError:
            return text
    return dumps(float(text)) if SPARK_NUMBER.fullmatch(text) else text


def as_text(value: Any) -> str:
    """A value that is no text, in a field that is declared as text: as the live query's parser writes it.

    Its key may be made of that, and the key decides which partition of `patches` has the row. So Python follows Spark
    here: a double has an exponent below 10^-3 and from 10^7 on. Raises ValueError if it has too many levels.
    """
    match value:
        case str():
            return value
        case float():
            return _java_text(value)
        case dict() | list():
            try:
                return dumps(_with_java_doubles(value))
            except RecursionError as error:
                raise ValueError("too many levels") from error
        case _:
            return dumps(value)


def make_canonical(fields: dict[str, Any], texts: JsonTexts) -> None:
    """Write the JSON texts among the values of a patch or a row in the form of rows, in place."""
    for name, of_entries in texts.items():
        value = fields.get(name)
        if isinstance(value, str):
            fields[name] = canonical_text(value)
        elif isinstance(value, list):
            for entry in value:
                for each in of_entries:
                    if isinstance(entry.get(each), str):
                        entry[each] = canonical_text(entry[each])


def _deep(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except RecursionError as error:
        raise ValueError("too many levels") from error


def _java_text(number: float) -> str:
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    two_digits = f"{number:.1e}"  # Java writes two at least: 4.9E-324
    exact = two_digits if float(two_digits) == number else f"{Decimal(repr(number)).normalize():e}"
    digits, _, exponent = exact.partition("e")
    return f"{digits}E{int(exponent)}"


def _with_java_doubles(value: Any) -> Any:
    match value:
        case dict():
            return {name: _with_java_doubles(each) for name, each in value.items()}
        case list():
            return [_with_java_doubles(each) for each in value]
        case float():
            return orjson.Fragment(_java_text(value))
        case _:
            return value


def _with_long_integers(value: Any) -> Any:
    match value:
        case dict():
            return {name: _with_long_integers(each) for name, each in value.items()}
        case list():
            return [_with_long_integers(each) for each in value]
        case int() if not isinstance(value, bool):
            return orjson.Fragment(str(value))
        case _:
            return value
