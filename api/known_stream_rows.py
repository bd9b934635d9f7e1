"""The rows of stream views about a person: no event names them, so they are found by the index of sealed values, and by
the columns of their keys."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, Literal, NamedTuple

from headwater.api.errors import BadParameter, Overloaded
from headwater.api.guard.caller import ANYONE, Caller
from headwater.api.known_keys import KeysOfPersons
from headwater.api.known_places import place_cursor, place_of
from headwater.api.ports import Finder, Page, Row
from headwater.api.reading import read_live
from headwater.api.requests.cursor import STALE
from headwater.api.requests.filters import SEALED_COPY, AnyOf, Filter
from headwater.api.requests.query import Order, Query
from headwater.api.service import Service
from headwater.api.waiting.awaited import After
from headwater.projections.errors import GenerationMissing, StoreUnavailable
from headwater.projections.view import View

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
    """Finds rows of stream views that show values of a person, or whose key names the person.

    unsearched: the views that may have such rows which are not found, with the reason: they have no table, which has
    the index, or no field of their records has the name of their key.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._finder: Finder | None = service.readers.get(FINDS)  # type: ignore[assignment]
        views = {name: view for name, view in sorted(service.views.items()) if view.has_own_query}
        self._keys = {name: KeysOfPersons.of(view, service.commands) for name, view in views.items()}
        about = {name: view for name, view in views.items() if view.personal or self._keys[name]}
        found = {name for name, view in about.items() if self._finder is not None and view.store(FINDS) is not None}
        self._views = {name: view for name, view in about.items() if name in found}
        self._sealed = [name for name, view in about.items() if view.personal]
        self.unsearched: dict[str, Literal["no_index", "unknown_key"]] = {
            **{name: "unknown_key" for name in views.keys() - about.keys() if self._keys[name].is_unknown},
            **{name: "no_index" for name in about.keys() - found},
        }

    def keyed(self, view: View, person: str) -> Callable[[Row], bool]:
        """Says of a row of a view whether its key names a person."""
        wanted = self._keys[view.name].of_person(person)
        return lambda row: any(row.get(column) in values for column, values in wanted.items())

    def begin(self, caller: Caller, person: str, key_ids: Collection[str]) -> str | None:
        """The cursor of the first page; None if there is nothing to search."""
        first = next((each for each in self._readable(caller) if key_ids or self._keys[each.name]), None)
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
            about = (*_showing(view, key_ids), *self._keyed(view, person))
            if not about:
                continue
            query = Query((AnyOf(about),), (Order(view.key_name),), limit=limit, beyond=beyond)
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
        """By view with sealed columns, how many rows show such a value, whoever may read them; None if nobody can count
        them now."""
        found: dict[str, int | None] = dict.fromkeys(self._sealed)
        for name, view in ((name, self._views[name]) for name in self._sealed if name in self._views):
            query = Query((AnyOf(_showing(view, key_ids)),), (Order(view.key_name),), limit=1, count=True)
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

    def _keyed(self, view: View, person: str) -> Iterator[Filter]:
        wanted = self._keys[view.name].of_person(person)
        return (Filter(column, "in", tuple(sorted(values))) for column, values in wanted.items())


def _showing(view: View, key_ids: Collection[str]) -> tuple[Filter, ...]:
    ids = tuple(sorted(key_ids))
    return tuple(Filter(each, SEALED_COPY, ids) for each in sorted(view.personal)) if ids else ()
