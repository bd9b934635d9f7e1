"""Times in messages: which texts are times, and which times no store can hold."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

from pydantic import BaseModel

TIME: Final = (
    r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}[T ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?"
    r"(Z|[+-](0[0-9]|1[0-7]):[0-5][0-9])?"
)
"""Pattern of texts that are times; Java and Python read them the same way. Without an offset they are in UTC."""
OFFSET_LIMIT: Final = timedelta(hours=18)
"""Offsets from UTC are less than this."""
_TIME: Final = re.compile(TIME)
_NUMBER: Final = re.compile(r"\s*[+-]?[0-9.]+\s*")
_WRITE_IT: Final = "write it like 2026-01-31T12:00:00Z, or with an offset such as +02:00"
_TIMES: Final = frozenset({"datetime", "function-plain"})
"""Types in pydantic's core schemas of values that are a time, or may be one."""


def is_time(value: Any) -> bool:
    """Whether a JSON value is a time in RFC 3339 that every store has: in the years 1 to 9999 in UTC."""
    time = _as_written(value)
    return time is not None and is_in_years(time)


def is_outside(value: Any) -> bool:
    """Whether a JSON value is a time in RFC 3339 that is not in the years 1 to 9999 in UTC, because of its offset."""
    time = _as_written(value)
    return time is not None and not is_in_years(time)


def is_in_years(time: datetime) -> bool:
    """Whether a time is in the years 1 to 9999 in UTC. Spark has times outside, but Python and some stores do not."""
    if MINYEAR < time.year < MAXYEAR or time.tzinfo is None:
        return True
    try:
        time.astimezone(UTC)
    except OverflowError:
        return False
    return True


def unfit_times(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[dict[str, Any]]:
    """Details of times in a message that no view could read, in pydantic's form."""
    for at, time in _times(value, place):
        problem = _problem(time)
        if problem is not None:
            yield {"type": "time_out_of_range", "loc": at, "msg": problem}


def unclear_times(message: BaseModel, written: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Details of times that were not written with a date and an offset from UTC, in pydantic's form.

    written: the JSON object that the message was read from. Pydantic also takes times without an offset, and numbers
    in texts as seconds or milliseconds. A field of pydantic's `NaiveDatetime` has no offset.
    """
    local = _may_be_local(type(message))
    for place, time in _times(message):
        text = _written_at(written, place)
        if isinstance(text, str) and _NUMBER.fullmatch(text):
            yield {"type": "time_unclear", "loc": place, "msg": f"it is a number: {_WRITE_IT}"}
        elif time.tzinfo is None and not local:
            yield {"type": "time_unclear", "loc": place, "msg": f"it has no offset from UTC: {_WRITE_IT}"}


@lru_cache(maxsize=10_000)
def may_hold_times(kind: type[BaseModel]) -> bool:
    """Whether messages of this class may hold times, at any depth; most do not, so that nothing is searched in them."""
    return mentions(kind.__pydantic_core_schema__, lambda schema: schema.get("type") in _TIMES)


@lru_cache(maxsize=10_000)
def _may_be_local(kind: type[BaseModel]) -> bool:
    return mentions(kind.__pydantic_core_schema__, lambda schema: schema.get("tz_constraint") == "naive")


def _times(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], datetime]]:
    """All times in a message, with their places in its JSON."""
    match value:
        case datetime():
            yield place, value
        case BaseModel():
            for name, item in vars(value).items():
                yield from _times(item, (*place, name))
        case Mapping():
            for name, item in value.items():
                yield from _times(item, (*place, str(name)))
        case list() | tuple() | set() | frozenset():
            for index, item in enumerate(value):
                yield from _times(item, (*place, index))
        case _ if dataclasses.is_dataclass(value):
            for field in dataclasses.fields(value):
                yield from _times(getattr(value, field.name), (*place, field.name))


def _written_at(written: object, place: tuple[str | int, ...]) -> object:
    """The value at a place of a JSON document; None if it is elsewhere there, such as an item of a set."""
    for part in place:
        if isinstance(written, Mapping):
            written = written.get(str(part))
        elif isinstance(written, list) and isinstance(part, int) and part < len(written):
            written = written[part]
        else:
            return None
    return written


def _as_written(value: Any) -> datetime | None:
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        return None
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        return None


def _problem(time: datetime) -> str | None:
    offset = time.utcoffset()
    if offset is not None and abs(offset) >= OFFSET_LIMIT:
        return "its offset is 18 hours or more: send it in UTC, such as 2026-01-31T12:00:00Z"
    if not is_in_years(time):
        return "in UTC it is not in the years 1 to 9999, and no store holds it: send a time that is in these years"
    return None


def mentions(schema: object, found: Callable[[Mapping[str, Any]], bool]) -> bool:
    """Whether a part of a core schema is `found`."""
    match schema:
        case Mapping():
            return found(schema) or any(mentions(item, found) for item in schema.values())
        case list() | tuple():
            return any(mentions(item, found) for item in schema)
        case _:
            return False
