"""Ids of aggregates and keys of instances as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final
from urllib.parse import quote, unquote

from headwater.eventlog.declaring import must_be_text, must_be_texts, shown

SEPARATOR: Final = "/"
"""Of the parts of an id."""


def id_text(value: Any) -> str:
    """The text of an id field's value, in the names of streams and in keys; that of an Enum is the text of its value.

    Views have the value as their key, too: they read it from JSON, which has no names of members.
    """
    if type(value) is str:  # nearly always
        return value
    return str(value.value if isinstance(value, Enum) else value)


@dataclass(frozen=True, slots=True)
class Identity:
    """How the fields of a message make an id.

    names: of the fields. The value of a single one is the id. Those of several are its parts, in this order, each
    percent-encoded except for A-Z, a-z, 0-9 and `-._~`: so no two tuples of values have the same id.
    """

    names: tuple[str, ...]

    @classmethod
    def of_names(cls, what: str, names: object, example: str) -> Identity:
        """The identity that is declared as `names`, a text or a tuple; raises ValueError if it is neither.

        what: the argument with the names. example: what to write for one name.
        """
        if not isinstance(names, tuple | list):
            must_be_text(what, names, f"{what}={example}")
            return cls((str(names),))
        if isinstance(names, list):
            raise ValueError(f"{what} is {shown(names)}, which is no tuple: write {what}={shown(tuple(names))}")
        if len(names) < 2:
            only = f'"{names[0]}"' if names and isinstance(names[0], str) and names[0] else example
            number = "one name" if names else "no name"
            raise ValueError(f"{what} is a tuple with {number}: write {what}={only}")
        must_be_texts(what, names, f'{what}=("tenant", {example})')
        return cls(names)

    @property
    def has_parts(self) -> bool:
        """Whether an id has several parts."""
        return len(self.names) > 1

    def of(self, message: object) -> str:
        """The id of a message."""
        if len(self.names) == 1:
            return id_text(getattr(message, self.names[0]))
        return SEPARATOR.join([encoded(getattr(message, name)) for name in self.names])

    def of_data(self, data: Mapping[str, Any]) -> str:
        """The id of a message as JSON."""
        if len(self.names) == 1:
            return id_text(data[self.names[0]])
        return SEPARATOR.join([encoded(data[name]) for name in self.names])

    def empty_in(self, message: object) -> str | None:
        """The first field that has no value, so that there is no id."""
        for name in self.names:  # a generator takes three times as long
            value = getattr(message, name)
            if value is None or value == "":
                return name
        return None

    def parts(self, text: str) -> Sequence[str] | None:
        """The texts of the fields in an id; None if no message has this id."""
        if len(self.names) == 1:
            return (text,) if text else None
        texts = text.split(SEPARATOR)
        parts = tuple([unquote(part) for part in texts])
        if len(parts) != len(self.names) or "" in parts or [encoded(part) for part in parts] != texts:
            return None
        return parts


def encoded(value: Any) -> str:
    """A part of an id, as it is in there."""
    return quote(id_text(value), safe="")
