"""A patch: what one event changes in one row, and its source."""

from __future__ import annotations

from typing import NamedTuple

from projections.table.monoids import State


class Place(NamedTuple):
    """The source of a patch in its source partition: the event's offset, and the patch's number in the event."""

    offset: int
    number: int


class Patch(NamedTuple):
    """What one event changes in one row."""

    key: str
    source: str
    place: Place
    fields: State
