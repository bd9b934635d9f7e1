"""Newlines in paths: the patterns of routes ignore one at the end, and the rest of a path ends at one.

So in a path with newlines, something else stands for them while its route is found.
"""

from __future__ import annotations

from typing import Final

from starlette.convertors import PathConvertor, StringConvertor, register_url_convertor

NEWLINE: Final = "\n"
STANDS_FOR_NEWLINE: Final = "\udc0a"
"""Half a surrogate pair, which no decoded path contains."""


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
