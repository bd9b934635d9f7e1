"""The rows of stream views that show values of a person: no event names them, so an index of the table finds them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from api.errors import BadParameter, Overloaded
from api.guard.caller import ANYONE, Caller
from api.known_places import place_cursor, place_of
from api.ports import Finder, Page, Row
from api.reading import read_live
from api.requests.cursor import STALE
from api.requests.filters import SEALED_COPY, AnyOf, Filter
from api.requests.query import Order, Query
from api.service import Service
from api.waiting.awaited import After
from projections.errors import GenerationMissing, StoreUnavailable
from projections.view import View

_KIND: Final = "rows"
FINDS: Final = "postgres"
"""The store with the index by persons."""


class StreamRows(NamedTuple):
    """A page of rows, as they are stored: of one view, because others have a page of their own; None if none has any.

    unbuilt: views that have no rows yet. next: the cursor of the next page of rows, if any.
    """

    view: View | None
    rows: Sequence[Row]
    unbuilt: Sequence[str]
    next: str | None


class KnownStreamRows:
    """Finds rows of stream views. unsearched: the views with personal columns and no table, which has the index."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._finder: Finder | None = service.readers.get(FINDS)  # type: ignore[assignment]
        views = {name: view for name, view in sorted(service.views.items()) if view.has_own_query and view.personal}
        self._views = {
            name: view for name, view in views.items() if self._finder is not None and view.store(FINDS) is not None
        }
        self.unsearched = frozenset(views).difference(self._views)

    def begin(self, caller: Caller, person: str, key_ids: Collection[str]) -> str | None:
        """The cursor of the first page; None if there is nothing to search."""
        first = next(self._readable(caller), None) if key_ids else None
        return None if first is None else place_cursor(_KIND, person, first.name, None)

    def place_in(self, caller: Caller, person: str, cursor: str | None) -> tuple[str, str | None] | None:
        """The view and the last key in a cursor of rows; None if it is another cursor. Raises BadParameter."""
        match place_of(_KIND, person, cursor):
            case None:
                return None
            case [str(name), (str() | None) as key] if any(each.name == name for each in self._readable(caller)):
                return name, key
        raise BadParameter("cursor", STALE)

    async def page(
        self,
        caller: Caller,
        person: str,
        key_ids: Collection[str],
        limit: int,
        place: tuple[str, str | None],
        after: After | None,
    ) -> StreamRows:
        """At most `limit` rows from a place on, in the order of views and keys. Raises what reading raises."""
        start, key = place
        unbuilt = list[str]()
        views = [each for each in self._readable(caller) if each.name >= start]
        for number, view in enumerate(views):
            beyond = None if key is None else (key,)
            key = None
            query = Query(_showing(view, key_ids), (Order(view.key_name),), limit=limit, beyond=beyond)
            try:
                page = await self._find(view, query, caller, after)
            except GenerationMissing:
                unbuilt.append(view.name)
                continue
            if page.rows:
                following = (view.name, page.last[0]) if page.last is not None else None
                if following is None and number + 1 < len(views):
                    following = (views[number + 1].name, None)
                cursor = None if following is None else place_cursor(_KIND, person, *following)
                return StreamRows(view, page.rows, unbuilt, cursor)
        return StreamRows(None, (), unbuilt, None)

    async def count(self, key_ids: Collection[str]) -> Mapping[str, int | None]:
        """By view, how many rows there are, whoever may read them; None if nobody can count them now."""
        found: dict[str, int | None] = dict.fromkeys(sorted((*self._views, *self.unsearched)))
        for name, view in self._views.items():
            query = Query(_showing(view, key_ids), (Order(view.key_name),), limit=1, count=True)
            with suppress(GenerationMissing, StoreUnavailable, Overloaded):
                found[name] = (await self._find(view, query, ANYONE, None)).total if key_ids else 0
        return found

    async def _find(self, view: View, query: Query, caller: Caller, after: After | None) -> Page:
        finder = self._finder
        assert finder is not None  # noqa: S101 - or there is no view to search
        await self._service.waiter.wait(view, finder, after)
        async with self._service.work.reads.place():
            page, _ = await read_live(self._service.generations, view, lambda live: finder.find(live, query), caller)
        return page

    def _readable(self, caller: Caller) -> Iterator[View]:
        return (view for name, view in self._views.items() if caller.scopes.allow("views", name))


def _showing(view: View, key_ids: Collection[str]) -> tuple[AnyOf]:
    ids = tuple(sorted(key_ids))
    return (AnyOf(tuple(Filter(each, SEALED_COPY, ids) for each in sorted(view.personal))),)
