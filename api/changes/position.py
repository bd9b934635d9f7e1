"""The position of a follower: a generation of the view, and offsets of `patches`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from eventlog.envelope import Position

MAX_DIGITS: Final = 19
"""Of the number of a generation."""


def write_position(generation: int, following: Mapping[int, int]) -> str:
    """The position of a follower: `<generation>;<partition>:<offset>,…` of `patches`."""
    places = ",".join(str(Position(partition, offset)) for partition, offset in sorted(following.items()))
    return f"{generation};{places}"


def read_position(text: str, partitions: int) -> tuple[int, dict[int, int]] | None:
    """Generation and offsets of a follower's position; None if it is not valid in this deployment."""
    generation, _, places = text.partition(";")
    try:
        found = {each.partition: each.offset for each in map(Position.parse, places.split(","))}
    except ValueError:
        return None
    is_number = generation.isascii() and generation.isdigit() and len(generation) <= MAX_DIGITS
    if not is_number or found.keys() != set(range(partitions)):
        return None
    return int(generation), found
