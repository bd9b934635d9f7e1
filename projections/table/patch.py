"""A patch: what one event changes in one row, and where it comes from."""

from __future__ import annotations

from typing import NamedTuple

from projections.table.monoids import State


class Place(NamedTuple):
    """Where a patch comes from in its source partition: the event's offset, and the patch's number within the event."""

    offset: int
    number: int


class Patch(NamedTuple):
    """What one event changes in one row."""

    key: str
    source: int
    place: Place
    fields: State
