"""A patch: what one event changes in one row, and its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from projections.table.monoids import State


class Place(NamedTuple):
    """The source of a patch in its source partition: the event's offset, and the patch's number in the event."""

    offset: int
    number: int


BATCHES: Final = "batch"
"""The source of the patches of a stream view: their place is the number of the batch that made them."""


class Patch(NamedTuple):
    """What one event changes in one row; of a stream view, the whole row that a batch computed."""

    key: str
    source: str
    place: Place
    fields: State


def places_to_json(places: Mapping[str, Place]) -> dict[str, list[int]]:
    """Places by source in JSON: `{"<source>": [offset, number]}`, as ledgers and guards have them."""
    return {source: list(place) for source, place in places.items()}


def places_from_json(found: Mapping[str, Sequence[int]] | None) -> dict[str, Place]:
    """Places by source, read from JSON; none if there is no document."""
    return {source: Place(*place) for source, place in (found or {}).items()}
