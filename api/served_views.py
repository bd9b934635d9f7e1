"""The views that queries can name: those that are declared, and those that are pinned with `replay rebuild --as`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from headwater.api.errors import BadParameter, Forbidden, KeyOnly, MadeEarlier, NoSearch
from headwater.api.guard.caller import Caller
from headwater.api.guard.scopes import PERSONAL, STREAMS, Kind
from headwater.api.limits import MAX_PAGE_BYTES
from headwater.api.reading import (
    Finder,
    KeyReaders,
    Live,
    Made,
    NotRanked,
    Page,
    Readers,
    Row,
    Searcher,
    ViewReader,
    in_key_portions,
)
from headwater.api.reads.valkey import ranking_for
from headwater.api.requests.parameters import Parameters
from headwater.api.requests.query import Query, continued, every_column, read_query, write_cursor
from headwater.api.service import Service
from headwater.api.waiting.awaited import After
from headwater.projections.errors import GenerationMissing, UnknownView
from headwater.projections.stores.declared import Cache, Elasticsearch
from headwater.projections.stores.valkey.rankings import ranked_of
from headwater.projections.view import View


@dataclass(frozen=True)
class Found:
    """A page of rows. rows: with looked-up columns. cursor: where the next page begins; None after the last one."""

    query: Query
    page: Page
    live: Live
    rows: Sequence[Row]
    cursor: str | None


class ServedView:
    """Reads one view for callers, from those of its stores that can answer.

    made: how it was pinned; None if it is declared.
    """

    def __init__(self, service: Service, view: View, made: Made | None = None) -> None:
        self.view, self.made, self._service = view, made, service
        self._has_events = (view.name if made is None else made.source) == STREAMS
        self.by_key = KeyReaders(service.readers, view)
        finders = [service.readers[store.name] for store in view.stores if store.answers and store.finds]
        self.finder: Finder | None = finders[0] if finders else None  # type: ignore[assignment]
        self.rankings = [ranked.name for ranked in ranked_of(view)]
        ranked = [service.readers[Cache.name]] if self.rankings else []
        self._by_rank = Readers[Finder](view.name, [*ranked, *finders[:1]])  # type: ignore[list-item]
        searchers = [service.readers[store.name] for store in view.stores if store.searches]
        self.searcher: Searcher | None = searchers[0] if searchers else None  # type: ignore[assignment]

    async def row(
        self, caller: Caller, key: str, fields: Sequence[str] = (), after: After | None = None
    ) -> tuple[Row | None, Live]:
        """The row of one key; None if there is none for this caller. fields: empty: all columns."""
        rows, live = await self.rows(caller, [key], fields or every_column(self.view), after)
        return rows.get(key), live

    async def rows(
        self, caller: Caller, keys: Sequence[str], fields: Sequence[str], after: After | None
    ) -> tuple[Mapping[str, Row], Live]:
        """The rows of these keys, without keys that have none for this caller.

        Raises BadParameter if they are too large for one answer, and what reading raises.
        """
        distinct = list(dict.fromkeys(keys))
        if self._has_events:
            distinct = [key for key in distinct if self._service.own_streams.has_event(caller, key)]

        async def ask(reader: ViewReader) -> tuple[tuple[Mapping[str, Row], int], Live]:
            await self._service.waiter.wait(self.view, reader, after)  # reading by key needs no refresh

            async def read(live: Live) -> tuple[Mapping[str, Row], int]:
                return await in_key_portions(distinct, lambda some: reader.get_many(live, some), MAX_PAGE_BYTES)

            return await self._service.read(reader, self.view, read, caller)

        (row_by_key, done), live = await self.by_key.ask(ask)
        rows = await self._service.lookups.show(self.view, list(row_by_key.values()), fields, caller, after)
        if done < len(distinct) or len(rows) < len(row_by_key):
            problem = f"names rows that have more than {MAX_PAGE_BYTES} bytes together: send several requests"
            raise BadParameter("key", problem)
        return dict(zip(row_by_key, rows, strict=True)), live

    async def find(self, caller: Caller, parameters: Parameters) -> Found:
        """One page of rows for these parameters, from a ranking that fits, or else from the store that sorts rows.

        Raises BadParameter, KeyOnly and what reading raises.
        """
        store = self.view.stores[0].name
        if self.finder is None and not self.rankings:
            raise KeyOnly(self.view.name, store)
        query, after = self._query(caller, parameters, searching=False)

        async def read(query: Query) -> tuple[Page, Live]:
            async def ask(reader: Finder) -> tuple[Page, Live]:
                await self._wait(reader, after)
                return await self._service.read(reader, self.view, lambda live: reader.find(live, query), caller)

            if ranking_for(self.view, query) is not None:
                try:
                    return await self._by_rank.ask(ask)
                except NotRanked as error:
                    raise GenerationMissing(self.view.name) from error
            if self.finder is None:
                raise KeyOnly(self.view.name, store, self.rankings)
            return await ask(self.finder)

        return await self._found(caller, query, read, after)

    async def search(self, caller: Caller, parameters: Parameters) -> Found:
        """One page of what a search finds; raises BadParameter, NoSearch and what reading raises."""
        if self.searcher is None:
            raise NoSearch(self.view.name)
        searcher = self.searcher
        query, after = self._query(caller, parameters, searching=True)

        async def read(query: Query) -> tuple[Page, Live]:
            await self._wait(searcher, after)
            return await self._service.read(searcher, self.view, lambda live: searcher.search(live, query), caller)

        return await self._found(caller, query, read, after)

    async def _found(
        self,
        caller: Caller,
        query: Query,
        read: Callable[[Query], Awaitable[tuple[Page, Live]]],
        after: After | None,
    ) -> Found:
        """A page with its looked-up columns: with fewer rows, if these make it too large."""
        limit = query.limit
        while True:
            page, live = await read(replace(query, limit=limit))
            rows = await self._service.lookups.show(self.view, page.rows, query.fields, caller, after)
            if len(rows) == len(page.rows):
                cursor = None if page.last is None else write_cursor(self.view, query, page.last)
                return Found(query, page, live, rows, cursor)
            limit = len(rows)

    def _query(self, caller: Caller, parameters: Parameters, *, searching: bool) -> tuple[Query, After | None]:
        """The query with what rows must fulfil for the caller, so that its cursor is of no use to another one."""
        clear: Sequence[str] = ()
        if caller.reads_personal and (reader := self.searcher if searching else self.finder) is not None:
            clear = next(store for store in self.view.stores if store.name == reader.name).clear
        query = read_query(self.view, parameters, searching=searching, clear=clear)
        index = next((store for store in self.view.stores if isinstance(store, Elasticsearch)), None)
        if query.text and not caller.reads_personal and index is not None and index.clear:
            query = replace(query, unsearched=frozenset(index.clear))
            if query.unsearched.issuperset(index.text):  # without fields, Elasticsearch searches all of them
                raise Forbidden(PERSONAL)
        if readable := caller.readable(self.view):
            query = replace(query, filters=(*query.filters, *readable))
        if self._has_events:
            query = replace(query, filters=(*query.filters, *self._service.own_streams.events_of(caller)))
        plain = dict(parameters)
        if "cursor" in plain:
            query = continued(self.view, query, plain["cursor"])
        return query, After.read(plain, self._service.limits)

    async def _wait(self, reader: ViewReader, after: After | None) -> None:
        """Wait for `after`, and make the awaited changes visible to searches."""
        await self._service.waiter.wait(self.view, reader, after)
        if after is not None and self.searcher is not None and reader is self.searcher:
            await self._service.read(reader, self.view, self.searcher.refresh)


class ServedViews:
    """The registry of all views: for the HTTP API, the console, and what is known about a person."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.declared = {name: ServedView(service, view) for name, view in service.views.items()}
        self._made: dict[tuple[str, str, int], ServedView] = {}
        """Each is made once, because it remembers which of its stores are unavailable."""

    def scope_of(self, name: str) -> tuple[Kind, str]:
        """What a caller needs for a view: for the view of all events, what it needs for all events."""
        return self._service.own_streams.all_events if name == STREAMS else ("views", name)

    def may_read(self, caller: Caller, name: str, made: Made | None) -> bool:
        """Whether a caller may read a view; one that was made of the view of all events has all events too."""
        of_events = made is not None and made.source == STREAMS
        return caller.scopes.allow(*self.scope_of(name)) and (
            not of_events or caller.scopes.allow(*self._service.own_streams.all_events)
        )

    async def view(self, name: str, caller: Caller) -> ServedView:
        """The view with this name, for a caller with the scope for it.

        Raises UnknownView, MadeEarlier, or Forbidden if the view has all events and the caller may not read these.
        """
        if name in self.declared:
            return self.declared[name]
        pinned = await self._service.generations.made()
        if name not in pinned:  # it may have been made a moment ago
            pinned = await self._service.generations.made(fresh=True)
        if name not in pinned:
            known = (
                served for served in (*self.declared, *pinned) if self.may_read(caller, served, pinned.get(served))
            )
            raise UnknownView(name, tuple(known))
        if pinned[name].source == STREAMS:
            caller.must(*self._service.own_streams.all_events)
        return self._served(pinned[name])

    async def all(self) -> list[ServedView]:
        """The declared views, and those made with `--as` whose columns are known, by name."""
        pinned = (await self._service.generations.made()).values()
        served = [self._served(generation) for generation in pinned if self._is_current(generation)]
        return sorted((*self.declared.values(), *served), key=lambda served: served.view.name)

    async def outdated(self) -> list[Made]:
        """The views made with `--as` whose columns are not known any more, because their view has another version."""
        return [
            generation
            for generation in (await self._service.generations.made()).values()
            if not self._is_current(generation)
        ]

    def _is_current(self, made: Made) -> bool:
        source = self._service.views.get(made.source)
        return source is not None and source.version == made.version

    def _served(self, made: Made) -> ServedView:
        """It has the columns of the declared view; raises UnknownView, or MadeEarlier if they are no longer known."""
        source = self._service.views.get(made.source)
        if source is None:
            raise UnknownView(made.source, tuple(self.declared))
        if source.version != made.version:
            raise MadeEarlier(made.name, made.source, made.version, source.version)
        key = (made.name, made.source, made.version)
        if key not in self._made:
            view = source.named(made.name).without_expiry()  # it never changes
            self._made[key] = ServedView(self._service, view, made)
        served = self._made[key]
        served.made = made
        return served
