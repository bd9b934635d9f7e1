"""Bodies as canonical JSON, and checks for values that no store can hold."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from headwater.eventlog.integers import fits_64_bits

ESCAPED_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
"""U+0000 in a JSON text, which only an escape can write; an escaped backslash may come before `u0000`."""
NUL = {"type": "nul_character", "loc": (), "msg": "the character U+0000 cannot be stored: remove it"}


def canonical(data: object) -> tuple[bytes, list[dict[str, Any]]]:
    """JSON text with sorted keys, and the problems of its integers."""
    try:
        # nearly always: integers of up to 53 bits, which cost nothing to check
        return orjson.dumps(data, option=orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER), []
    except TypeError:
        return orjson.dumps(data, option=orjson.OPT_SORT_KEYS), list(too_large(data))


def too_large(data: object, place: tuple[str | int, ...] = ()) -> Iterator[dict[str, Any]]:
    """Details of integers that no store can hold, in pydantic's form."""
    match data:
        case int() if not fits_64_bits(data):
            yield {"type": "int_too_large", "loc": place, "msg": f"{data} needs more than 64 bits: send it as text"}
        case Mapping():
            for name, value in data.items():
                yield from too_large(value, (*place, name))
        case list() | tuple():
            for index, value in enumerate(data):
                yield from too_large(value, (*place, index))
