"""`GET /views`, a view's rows by key and by filters, and its search: typed routes for every registered view."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import orjson
from fastapi import APIRouter, Request, Response

from headwater.api.errors import BadParameter, Forbidden, KeyOnly, NoSearch, RowMissing
from headwater.api.guard import needs
from headwater.api.guard.caller import Caller, caller_of
from headwater.api.guard.scopes import PERSONAL, STREAMS, Kind
from headwater.api.links import link
from headwater.api.made_views import described, is_served, made_view
from headwater.api.openapi import schemas
from headwater.api.openapi.components import CHANGE, documented
from headwater.api.openapi.documents import ExpiryDocument, ViewDocument, Views
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
    read_live,
)
from headwater.api.reads.valkey import ranking_for
from headwater.api.requests.leaving import ReadingRoute
from headwater.api.requests.parameters import Parameters, check_names, check_no_query, check_text
from headwater.api.requests.query import Query, continued, every_column, read_fields, read_query, write_cursor
from headwater.api.routes import changes
from headwater.api.routes.under import RoutesUnder
from headwater.api.service import Service
from headwater.api.waiting.awaited import After
from headwater.projections.errors import GenerationMissing
from headwater.projections.stores.declared import Cache, Elasticsearch
from headwater.projections.stores.valkey.rankings import ranked_of
from headwater.projections.table.lookups import looked_up_types
from headwater.projections.view import View

Answer = TypeVar("Answer")

MAX_KEYS: Final = 100


KEYS_DESCRIPTION: Final = """\
The rows in the order of the keys, null for a key without a row. Use this path for keys that cannot be part of a path:
`rows`, `search` and `changes` are paths of a view themselves, and clients remove `.` and `..` from a path.
"""


def view_routes(service: Service) -> APIRouter:
    """The routes of every registered view."""
    router = APIRouter(tags=["views"], route_class=ReadingRoute)

    async def list_views(request: Request) -> Response:
        """List all views: their columns with types, their stores, and the generation that answers."""
        check_no_query(request)
        made = await service.generations.made()
        served = [made_view(service, each) for each in made.values() if is_served(service, each)]
        views = sorted((*service.views.values(), *served), key=lambda view: view.name)
        shown = [view for view in views if may_read(service, caller_of(request), view.name, made.get(view.name))]
        document: Views = {"views": [await _describe(service, view, made.get(view.name)) for view in shown]}
        return Response(orjson.dumps(document), media_type="application/json")

    router.add_api_route(
        "/views",
        list_views,
        methods=["GET"],
        dependencies=needs.some("views"),
        response_class=Response,
        responses={200: schemas.answer("Every view.", "Views"), **documented(422, 500, 503)},
    )
    for view in service.views.values():
        guarded = needs.named(*scope_of(service, view.name))
        of_view = RoutesUnder(f"/views/{view.name}", route_class=ReadingRoute, dependencies=guarded)
        _add_routes(of_view, ViewRoutes(service, view))
        router.include_router(of_view)
    return router


def scope_of(service: Service, view: str) -> tuple[Kind, str]:
    """What a caller needs for a declared view: for the view of all events, what it needs for all events."""
    return service.own_streams.all_events if view == STREAMS else ("views", view)


def may_read(service: Service, caller: Caller, view: str, made: Made | None) -> bool:
    """Whether a caller may read a view; one that was made of the view of all events has all events too."""
    of_events = made is not None and made.source == STREAMS
    return caller.scopes.allow(*scope_of(service, view)) and (
        not of_events or caller.scopes.allow(*service.own_streams.all_events)
    )


@dataclass(frozen=True)
class Found:
    """A page of rows. rows: with looked-up columns."""

    view: View
    query: Query
    page: Page
    live: Live
    rows: Sequence[Row]

    @property
    def total(self) -> int | None:
        """The number of rows on all pages, if it was requested."""
        return self.page.total

    @property
    def cursor(self) -> str | None:
        """Where the next page begins; None after the last one."""
        return None if self.page.last is None else write_cursor(self.view, self.query, self.page.last)


class ViewRoutes:
    """The endpoints of one view."""

    def __init__(self, service: Service, view: View) -> None:
        self.service, self.view = service, view
        self.by_key = KeyReaders(service.readers, view)
        finders = [service.readers[store.name] for store in view.stores if store.answers and store.finds]
        self.finder: Finder | None = finders[0] if finders else None  # type: ignore[assignment]
        self.rankings = [each.name for each in ranked_of(view)]
        ranked = [service.readers[Cache.name]] if self.rankings else []
        self.by_rank = Readers[Finder](view.name, [*ranked, *finders[:1]])  # type: ignore[list-item]
        searchers = [service.readers[store.name] for store in view.stores if store.searches]
        self.searcher: Searcher | None = searchers[0] if searchers else None  # type: ignore[assignment]

    async def row(self, request: Request, key: str) -> Response:
        """The row of one key."""
        caller = caller_of(request)
        plain = check_names(request.query_params.multi_items(), ("after", "wait_ms", "fields"))
        check_text(self.view.key_name, key)
        fields, after = read_fields(self.view, plain), After.read(plain, self.service.limits)

        async def ask(reader: ViewReader) -> tuple[Row | None, Live]:
            await self.service.waiter.wait(self.view, reader, after)  # reading by key needs no refresh
            return await self._read(caller, lambda live: reader.get(live, key))

        row, live = await self.by_key.ask(ask)
        if row is None:
            raise RowMissing(self.view.name, key)
        (shown,) = await self.service.lookups.show(self.view, [row], fields, caller, after)
        return _answer(live, shown)

    async def read_row(self, caller: Caller, key: str) -> tuple[Row | None, Live]:
        """The row of one key, without waiting for anything; None if there is none for this caller."""

        async def ask(reader: ViewReader) -> tuple[Row | None, Live]:
            return await self._read(caller, lambda live: reader.get(live, key))

        row, live = await self.by_key.ask(ask)
        if row is None:
            return None, live
        (shown,) = await self.service.lookups.show(self.view, [row], every_column(self.view), caller)
        return shown, live

    async def rows_of_keys(self, request: Request) -> Response:
        """Several rows by key, in the order of the keys; null for a key without a row."""
        caller, parameters = caller_of(request), request.query_params.multi_items()
        plain = check_names(parameters, ("key", "after", "wait_ms", "fields"), repeatable=("key",))
        keys = [value for name, value in parameters if name == "key"]
        if not 1 <= len(keys) <= MAX_KEYS:
            raise BadParameter("key", f"is given {len(keys)} times: give it 1 to {MAX_KEYS} times")
        fields, after = read_fields(self.view, plain), After.read(plain, self.service.limits)

        async def ask(reader: ViewReader) -> tuple[Mapping[str, Row], Live]:
            await self.service.waiter.wait(self.view, reader, after)
            return await self._read(caller, lambda live: reader.get_many(live, list(dict.fromkeys(keys))))

        found, live = await self.by_key.ask(ask)
        rows = await self.service.lookups.show(self.view, list(found.values()), fields, caller, after)
        shown = dict(zip(found, rows, strict=True))
        return _answer(live, {"rows": [shown.get(key) for key in keys]})

    async def rows(self, request: Request) -> Response:
        """One page of rows."""
        found = await self.find(caller_of(request), request.query_params.multi_items())
        counted = {"total": found.total} if found.query.count else {}
        return _answer(found.live, {"rows": found.rows, **counted, **self._next(request, found.query, found.page)})

    async def find(self, caller: Caller, parameters: Parameters) -> Found:
        """One page of rows for the parameters of a request; raises BadParameter, KeyOnly and what reading raises."""
        if self.finder is None and not self.rankings:
            raise KeyOnly(self.view.name, self.view.stores[0].name)
        query, after = self._query(caller, parameters, searching=False)
        page, live = await self._find(caller, query, after)
        rows = await self.service.lookups.show(self.view, page.rows, query.fields, caller, after)
        return Found(self.view, query, page, live, rows)

    async def search(self, request: Request) -> Response:
        """The rows that match a text, a place and filters; with their total, and counts by column."""
        found = await self.find_by_text(caller_of(request), request.query_params.multi_items())
        facets = {
            column: [{"value": value, "count": count} for value, count in counts]
            for column, counts in (found.page.facets or {}).items()
        }
        matches = {"matches": found.page.matches} if found.query.includes_matches else {}
        document = {"rows": found.rows, **matches, "total": found.total, "facets": facets}
        return _answer(found.live, document | self._next(request, found.query, found.page))

    async def find_by_text(self, caller: Caller, parameters: Parameters) -> Found:
        """One page of what a search finds; raises BadParameter, NoSearch and what reading raises."""
        if self.searcher is None:
            raise NoSearch(self.view.name)
        searcher = self.searcher
        query, after = self._query(caller, parameters, searching=True)
        await self._wait(searcher, after)
        page, live = await self._read(caller, lambda live: searcher.search(live, query))
        rows = await self.service.lookups.show(self.view, page.rows, query.fields, caller, after)
        return Found(self.view, query, page, live, rows)

    async def _find(self, caller: Caller, query: Query, after: After | None) -> tuple[Page, Live]:
        """One page from a ranking that fits, or else from the store that sorts rows."""

        async def ask(reader: Finder) -> tuple[Page, Live]:
            await self._wait(reader, after)
            return await self._read(caller, lambda live: reader.find(live, query))

        if ranking_for(self.view, query) is not None:
            try:
                return await self.by_rank.ask(ask)
            except NotRanked as error:
                raise GenerationMissing(self.view.name) from error
        if self.finder is None:
            raise KeyOnly(self.view.name, self.view.stores[0].name, self.rankings)
        return await ask(self.finder)

    def _query(self, caller: Caller, parameters: Parameters, *, searching: bool) -> tuple[Query, After | None]:
        """The query with what rows must fulfil for the caller, so that its cursor is of no use to another one."""
        query = read_query(self.view, parameters, searching=searching, clear=self._clear(caller, searching))
        if query.text and not caller.reads_personal and (index := self._index) is not None and index.clear:
            query = replace(query, unsearched=frozenset(index.clear))
            if query.unsearched.issuperset(index.text):  # without fields, Elasticsearch searches all of them
                raise Forbidden(PERSONAL)
        if readable := caller.readable(self.view):
            query = replace(query, filters=(*query.filters, *readable))
        plain = dict(parameters)
        if "cursor" in plain:
            query = continued(self.view, query, plain["cursor"])
        return query, After.read(plain, self.service.limits)

    def _clear(self, caller: Caller, searching: bool) -> Sequence[str]:
        """The personal columns that a caller may filter by, because the store that finds rows has them in clear."""
        reader = self.searcher if searching else self.finder
        declared = None if reader is None else self.view.store(reader.name)
        return declared.clear if declared is not None and caller.reads_personal else ()

    @property
    def _index(self) -> Elasticsearch | None:
        """What is searched for words."""
        return next((store for store in self.view.stores if isinstance(store, Elasticsearch)), None)

    async def _wait(self, reader: ViewReader, after: After | None) -> None:
        """Wait for `after`, and make the awaited changes visible to searches."""
        await self.service.waiter.wait(self.view, reader, after)
        if after is not None and self.searcher is not None and reader is self.searcher:
            await self._read(None, self.searcher.refresh)

    async def _read(self, caller: Caller | None, ask: Callable[[Live], Awaitable[Answer]]) -> tuple[Answer, Live]:
        async with self.service.work.reads.place():
            return await read_live(self.service.generations, self.view, ask, caller)

    def _next(self, request: Request, query: Query, page: Page) -> dict[str, Any]:
        if page.last is None:
            return {"next": None, "links": {}}
        cursor = write_cursor(self.view, query, page.last)
        skipped = ("cursor", "after", "wait_ms")
        kept = [each for each in request.query_params.multi_items() if each[0] not in skipped]
        return {"next": cursor, "links": {"next": f"{request.url.path}?{urlencode([*kept, ('cursor', cursor)])}"}}


async def _describe(service: Service, view: View, made: Made | None) -> ViewDocument:
    try:
        generation = (await service.generations.live(view)).generation
    except GenerationMissing:
        generation = None
    return {
        "name": view.name,
        "doc": view.doc,
        "key": view.key_name,
        "columns": {name: kind.value for name, kind in view.types.items()},
        "lookups": {
            name: {
                "type": kind.value,
                "view": view.looked_up[name].view,
                "column": view.looked_up[name].columns[name],
                "on": view.looked_up[name].on,
            }
            for name, kind in looked_up_types(view, service.views).items()
        },
        "stores": [store.name for store in view.stores],
        "version": view.version,
        "expires": _expires(view),
        "generation": generation,
        "made": None if made is None else described(made),
        "links": {"rows": link("views", view.name)},
    }


def _expires(view: View) -> ExpiryDocument | None:
    expiry = view.expiry
    return None if expiry is None else {"column": expiry.column, "after_s": expiry.after.total_seconds()}


def _answer(live: Live, document: Any) -> Response:
    headers = {"Headwater-Generation": str(live.generation)}
    return Response(orjson.dumps(document), media_type="application/json", headers=headers)


def _add_routes(router: APIRouter, routes: ViewRoutes) -> None:
    """The route by key comes last, because its path matches every key, also with slashes."""
    view, path = routes.view, f"/views/{routes.view.name}"
    finds = routes.finder is not None or bool(routes.rankings)
    add = partial(router.add_api_route, methods=["GET"], response_class=Response)
    add(
        path,
        routes.rows,
        operation_id=f"find {view.name}",
        summary=view.doc or view.name,
        include_in_schema=finds,
        responses={
            200: schemas.row_answer("One page of rows.", f"{view.name}.page"),
            **documented(400, 409, 422, 500, 503),
        },
        openapi_extra={"parameters": schemas.query_parameters(view)},
    )
    add(
        f"{path}/search",
        routes.search,
        operation_id=f"search {view.name}",
        include_in_schema=routes.searcher is not None,
        responses={200: schemas.row_answer("One page.", f"{view.name}.found"), **documented(409, 422, 500, 503)},
        openapi_extra={"parameters": schemas.query_parameters(view, searching=True)},
    )
    add(
        f"{path}/rows",
        routes.rows_of_keys,
        operation_id=f"get some {view.name}",
        summary="Several rows by key.",
        description=KEYS_DESCRIPTION,
        responses={200: schemas.row_answer("The rows.", f"{view.name}.rows"), **documented(409, 422, 500, 503)},
        openapi_extra={"parameters": [schemas.keys_parameter(MAX_KEYS), *schemas.row_parameters(view)]},
    )
    add(
        f"{path}/changes",
        changes.following(routes.service, view),
        operation_id=f"follow {view.name}",
        summary="Follow the changes of rows.",
        description=changes.DESCRIPTION,
        responses={
            200: {"description": "Events.", "content": {changes.MEDIA_TYPE: {"schema": CHANGE}}},
            **documented(409, 422, 500, 503),
        },
        openapi_extra={"parameters": schemas.following_parameters(changes.MAX_KEYS, changes.MAX_FOLLOWING_MS)},
    )
    add(
        f"{path}/{{key:key}}",
        routes.row,
        operation_id=f"get {view.name}",
        responses={200: schemas.row_answer("The row.", f"{view.name}.row"), **documented(404, 409, 422, 500, 503)},
        openapi_extra={"parameters": schemas.row_parameters(view)},
    )
