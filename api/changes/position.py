"""The position of a follower: a generation of the view, and offsets of `patches`."""

from __future__ import annotations

from collections.abc import Mapping

from eventlog.envelope import Position


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
    if not generation.isdigit() or found.keys() != set(range(partitions)):
        return None
    return int(generation), found
