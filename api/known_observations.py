"""The observations of a person: their topic is searched page by page, because it has no index by persons."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from headwater.api.errors import BadParameter, Overloaded
from headwater.api.guard.caller import Caller
from headwater.api.known_places import place_cursor, place_of
from headwater.api.ports import FIRST_PLACE, ObservationsFound
from headwater.api.requests.cursor import STALE
from headwater.api.service import Service
from headwater.eventlog.envelope import Position
from headwater.eventlog.errors import LogUnavailable

COUNTED_AT_ONCE: Final = 10_000
COUNTED_PAGES: Final = 4
"""How much of the topic is searched to count; if it is larger, nobody counts."""
_KIND: Final = "observations"


class KnownObservations:
    """Searches the observations of a deployment."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def left_out(self, caller: Caller) -> Sequence[str]:
        """The types with personal fields, if the caller may not read observations, which are of no tenant."""
        return () if self._may_read(caller) else sorted(self._service.observations.personal)

    def begin(self, caller: Caller, person: str, key_ids: Collection[str]) -> str | None:
        """The cursor of the first page; None if there is nothing to search."""
        if not key_ids or not self._service.observations.personal or not self._may_read(caller):
            return None
        return self.cursor(person, FIRST_PLACE)

    def cursor(self, person: str, place: Position) -> str:
        """The cursor of the page from a place on."""
        return place_cursor(_KIND, person, place.partition, place.offset)

    def place_in(self, caller: Caller, person: str, cursor: str | None) -> Position | None:
        """The place in a cursor of this person; None if it is no cursor of observations. Raises BadParameter."""
        match place_of(_KIND, person, cursor):
            case None:
                return None
            case [int(partition), int(offset)] if min(partition, offset) >= 0 and self._may_read(caller):
                return Position(partition, offset)
        raise BadParameter("cursor", STALE)

    async def page(self, key_ids: Collection[str], limit: int, place: Position) -> ObservationsFound:
        """A page from a place on; raises LogUnavailable or Overloaded."""
        async with self._service.work.scans.place():
            return await self._service.observed.page(key_ids, limit, place)

    async def count(self, key_ids: Collection[str]) -> int | None:
        """How many there are; None if none can be personal, or the topic is too large to count, or cannot be read."""
        count, place = 0, FIRST_PLACE
        if not self._service.observations.personal:
            return None
        if not key_ids:
            return 0
        try:
            for _ in range(COUNTED_PAGES):
                found = await self.page(key_ids, COUNTED_AT_ONCE, place)
                count += len(found.records)
                if found.place is None:
                    return count
                place = found.place
        except (LogUnavailable, Overloaded):
            return None
        return None

    def _may_read(self, caller: Caller) -> bool:
        return caller.scopes.allow(*self._service.own_streams.all_events)
