"""The position of a follower: a generation of the view, offsets of `patches`, and erasures of persons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from headwater.eventlog.envelope import Position

MAX_DIGITS: Final = 19
"""Of the number of a generation, and of erasures."""


class FollowerPosition(NamedTuple):
    """Where a follower is. offsets: of `patches`, by partition. erasures: how many there were, if its view has personal
    values that it reads; else None."""

    generation: int
    offsets: Mapping[int, int]
    erasures: int | None = None

    def __str__(self) -> str:
        """`<generation>;<partition>:<offset>,…`, and `;<erasures>` behind it."""
        places = ",".join(str(Position(partition, offset)) for partition, offset in sorted(self.offsets.items()))
        return f"{self.generation};{places}" + ("" if self.erasures is None else f";{self.erasures}")

    @classmethod
    def read(cls, text: str, partitions: int) -> FollowerPosition | None:
        """A follower's position; None if it is not valid in this deployment."""
        generation, _, rest = text.partition(";")
        places, has_erasures, erasures = rest.partition(";")
        try:
            found = {each.partition: each.offset for each in map(Position.parse, places.split(","))}
        except ValueError:
            return None
        numbers = (generation, erasures) if has_erasures else (generation,)
        if not all(map(_is_number, numbers)) or found.keys() != set(range(partitions)):
            return None
        return cls(int(generation), found, int(erasures) if has_erasures else None)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS
