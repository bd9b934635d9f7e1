"""The messages of failed tests: how the actual messages differ from the expected ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

import orjson

from headwater.commands.declaring.aggregate import Message


def difference(title: str, expected: Sequence[Message], actual: Sequence[Message]) -> str:
    """The fields of all messages line by line: those expected and missing with -, those unexpected with +."""
    lines = difflib.ndiff([*_lines(expected)], [*_lines(actual)])
    shown = [f"  {line}" for line in lines if not line.startswith("?")]
    return "\n".join([f"{title} (-: expected, +: actual)", *shown])


def listed(messages: Sequence[Message]) -> str:
    """The messages with their fields, one field per line."""
    return "\n".join(f"    {line}" for line in _lines(messages))


def _lines(messages: Iterable[Message]) -> Iterable[str]:
    for message in messages:
        yield message.type
        data = orjson.loads(message.__pydantic_serializer__.to_json(message))
        for name, value in data.items():
            yield f"    {name}: {orjson.dumps(value).decode()}"
