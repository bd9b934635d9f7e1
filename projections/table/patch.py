"""A patch: what one event changes in one row, and its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from headwater.projections.table.monoids import State


class Place(NamedTuple):
    """The source of a patch in its source partition: the event's offset, and the patch's number in the event."""

    offset: int
    number: int


BULK: Final = "bulk"
"""The source of patches of rows that bulk did not write, in ledgers that say that all events of bulk are applied."""
BATCHES: Final = "batch"
"""The source of the patches of a stream view: their place is the number of the batch that made them."""
WHOLE: Final = 2**31 - 2
"""In place of a patch's number: it is a whole row, one of all that a real-time query made of the record. They have one
place, and are applied again if the record is read again."""


class Patch(NamedTuple):
    """What one event changes in one row; of a stream view, the whole row that a batch or a record gave."""

    key: str
    source: str
    place: Place
    fields: State

    @property
    def is_whole(self) -> bool:
        """Whether it is a whole row, which other patches with the same place do not replace."""
        return self.source == BATCHES or self.place.number == WHOLE


def places_to_json(places: Mapping[str, Place]) -> dict[str, list[int]]:
    """Places by source in JSON: `{"<source>": [offset, number]}`, as ledgers and guards have them."""
    return {source: list(place) for source, place in places.items()}


def places_from_json(found: Mapping[str, Sequence[int]] | None) -> dict[str, Place]:
    """Places by source, read from JSON; none if there is no document."""
    return {source: Place(*place) for source, place in (found or {}).items()}
