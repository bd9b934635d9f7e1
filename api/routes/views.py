"""`GET /views`, a view's rows by key and by filters, and its search: one route for each, whatever the view."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlencode

import orjson
from fastapi import APIRouter, Depends, Request, Response

from headwater.api.errors import BadParameter, NeverChanges, RowMissing
from headwater.api.guard import needs
from headwater.api.guard.caller import Caller, caller_of
from headwater.api.guard.scopes import OPERATE
from headwater.api.openapi import schemas
from headwater.api.openapi.components import CHANGE, Schema, documented
from headwater.api.openapi.documents import ViewDocument, Views, link
from headwater.api.reading import Live
from headwater.api.requests.parameters import check_names, check_no_query, check_text
from headwater.api.requests.query import read_fields
from headwater.api.routes import changes
from headwater.api.routing import ReadingRoute, router_of
from headwater.api.served_views import Found, ServedView, ServedViews
from headwater.api.service import Service
from headwater.api.waiting.awaited import After
from headwater.eventlog.source_positions import positions_text
from headwater.projections.errors import GenerationMissing
from headwater.projections.table.lookups import looked_up_types
from headwater.projections.table.types import format_time

MAX_KEYS: Final = 100
PATH: Final = "/views/{view:name}"
KEYS_DESCRIPTION: Final = """\
The rows in the order of the keys, null for a key without a row. Use this path for keys that cannot be part of a path:
`rows`, `search` and `changes` are paths of a view themselves, and clients remove `.` and `..` from a path.
"""
MADE_DESCRIPTION: Final = """\
A view of selected events, made with `replay rebuild VIEW --as NAME`. It has the parameters and columns of the view that
it was made from. `GET /views` lists these views, each with its selection of events.
"""
SEARCH_DESCRIPTION: Final = "The rows that match a text, a place and filters; with their total, and counts by column."
ROWS: Final[Schema] = {"type": "array", "items": {"type": ["object", "null"]}}
MADE_PAGE: Final[Schema] = {"rows": ROWS, "next": {"type": ["string", "null"]}, "links": {"type": "object"}}


def view_routes(service: Service, views: ServedViews) -> APIRouter:
    """The routes of all views. The OpenAPI document has paths of each declared one in addition: see `view_paths`."""
    router = router_of("views", ReadingRoute)

    async def list_views(request: Request) -> Response:
        """List all views: their columns with types, their stores, and the generation that answers."""
        check_no_query(request)
        caller = caller_of(request)
        shown = [served for served in await views.all() if views.may_read(caller, served.view.name, served.made)]
        document: Views = {"views": [await _describe(service, served) for served in shown]}
        return Response(orjson.dumps(document), media_type="application/json")

    async def rows(request: Request, view: str) -> Response:
        caller = caller_of(request)
        served = await views.view(view, caller)
        page = await served.find(caller, request.query_params.multi_items())
        counted = {"total": page.page.total} if page.query.count else {}
        return _answer(page.live, {"rows": page.rows, **counted, **_next(request, page)})

    async def rows_of_keys(request: Request, view: str) -> Response:
        caller, parameters = caller_of(request), request.query_params.multi_items()
        served = await views.view(view, caller)
        plain = check_names(parameters, ("key", "after", "wait_ms", "fields"), repeatable=("key",))
        keys = [value for name, value in parameters if name == "key"]
        if not 1 <= len(keys) <= MAX_KEYS:
            raise BadParameter("key", f"is given {len(keys)} times: give it 1 to {MAX_KEYS} times")
        fields, after = read_fields(served.view, plain), After.read(plain, service.limits)
        rows, live = await served.rows(caller, keys, fields, after)
        return _answer(live, {"rows": [rows.get(key) for key in keys]})

    async def search(request: Request, view: str) -> Response:
        caller = caller_of(request)
        served = await views.view(view, caller)
        page = await served.search(caller, request.query_params.multi_items())
        facets = {
            column: [{"value": value, "count": count} for value, count in counts]
            for column, counts in (page.page.facets or {}).items()
        }
        matches = {"matches": page.page.matches} if page.query.includes_matches else {}
        document = {"rows": page.rows, **matches, "total": page.page.total, "facets": facets}
        return _answer(page.live, document | _next(request, page))

    async def follow(request: Request, view: str) -> Response:
        return await follow_view(service, await views.view(view, caller_of(request)), request)

    async def row(request: Request, view: str, key: str) -> Response:
        caller = caller_of(request)
        served = await views.view(view, caller)
        plain = check_names(request.query_params.multi_items(), ("after", "wait_ms", "fields"))
        check_text(served.view.key_name, key)
        fields, after = read_fields(served.view, plain), After.read(plain, service.limits)
        row, live = await served.row(caller, key, fields, after)
        if row is None:
            raise RowMissing(view, key)
        return _answer(live, row)

    def check(caller: Caller, request: Request) -> None:
        caller.must(*views.scope_of(request.path_params["view"]))

    router.add_api_route(
        "/views",
        list_views,
        methods=["GET"],
        dependencies=needs.some("views"),
        response_class=Response,
        responses={200: schemas.answer("Every view.", "Views"), **documented(422, 500, 503)},
    )
    guarded = [Depends(needs.Need("views:{view}", check))]
    router.add_api_route(f"{PATH}/changes", follow, methods=["GET"], dependencies=guarded, include_in_schema=False)
    # the route by key comes last, because its path matches every key, also with slashes
    for path, endpoint, name, answer, parameters in (
        (PATH, rows, "find_in_made_view", MADE_PAGE, []),
        (f"{PATH}/rows", rows_of_keys, "get_some_of_made_view", {"rows": ROWS}, [schemas.keys_parameter(MAX_KEYS)]),
        (f"{PATH}/search", search, "search_made_view", {}, []),
        (f"{PATH}/{{key:key}}", row, "get_of_made_view", {}, []),
    ):
        schema: Schema = {"type": "object", "properties": answer, "required": list(answer)}
        content = {"application/json": {"schema": schema}}
        shown = {"description": "The answer of the view that it was made from.", "content": content}
        router.add_api_route(
            path,
            endpoint,
            methods=["GET"],
            dependencies=guarded,
            operation_id=name,
            summary="A view of selected events.",
            description=MADE_DESCRIPTION,
            response_class=Response,
            responses={200: shown, **documented(400, 404, 409, 422, 500, 503)},
            openapi_extra={"parameters": parameters} if parameters else None,
        )
    return router


async def follow_view(service: Service, served: ServedView, request: Request) -> Response:
    """The changes of a view; raises NeverChanges of one that was made with `--as`."""
    if served.made is not None:
        check_names(request.query_params.multi_items(), changes.PARAMETERS, repeatable=("key",))
        raise NeverChanges(served.made.name, served.made.source)
    return await changes.follow(service, served.view, request)


def _next(request: Request, found: Found) -> dict[str, Any]:
    if found.cursor is None:
        return {"next": None, "links": {}}
    skipped = ("cursor", "after", "wait_ms")
    kept = [item for item in request.query_params.multi_items() if item[0] not in skipped]
    query = urlencode([*kept, ("cursor", found.cursor)])
    return {"next": found.cursor, "links": {"next": f"{request.url.path}?{query}"}}


def _answer(live: Live, document: Any) -> Response:
    headers = {"Headwater-Generation": str(live.generation)}
    return Response(orjson.dumps(document), media_type="application/json", headers=headers)


async def _describe(service: Service, served: ServedView) -> ViewDocument:
    view, made, expiry = served.view, served.made, served.view.expiry
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
        "expires": None if expiry is None else {"column": expiry.column, "after_s": expiry.after.total_seconds()},
        "generation": generation,
        "made": None
        if made is None
        else {
            "view": made.source,
            "selection": made.selection,
            "position": positions_text(made.positions),
            "at": None if made.at is None else format_time(made.at),
            "current": sorted(view.looked_up),
        },
        "links": {"rows": link("views", view.name)},
    }


def view_paths(views: ServedViews) -> Schema:
    """The paths of declared views, for the OpenAPI document: each has columns, filters and a scope of its own."""
    return {path: item for served in views.declared.values() for path, item in _paths_of(served, views)}


def _paths_of(served: ServedView, views: ServedViews) -> Iterator[tuple[str, Schema]]:
    view, path = served.view, f"/views/{served.view.name}"
    kind, of = views.scope_of(view.name)
    scope = kind if kind == OPERATE else f"{kind}:{of}"

    def get(verb: str, summary: str, description: str, parameters: list[Schema], answer: Schema, *more: int) -> Schema:
        answers = {200: answer, **documented(*sorted((409, 422, 500, 503, *more)))}
        name = f"{verb} {view.name}"
        return {"get": schemas.operation("views", name, summary, description, scope, answers, parameters=parameters)}

    waiting = schemas.row_parameters(view)
    if served.finder is not None or served.rankings:
        page = schemas.row_answer("One page of rows.", f"{view.name}.page")
        yield path, get("find", view.doc or view.name, "One page of rows.", schemas.query_parameters(view), page, 400)
    if served.searcher is not None:
        page, about = (
            schemas.row_answer("One page.", f"{view.name}.found"),
            schemas.query_parameters(view, searching=True),
        )
        yield f"{path}/search", get("search", "Search", SEARCH_DESCRIPTION, about, page)
    rows, keys = schemas.row_answer("The rows.", f"{view.name}.rows"), schemas.keys_parameter(MAX_KEYS)
    yield f"{path}/rows", get("get some", "Several rows by key.", KEYS_DESCRIPTION, [keys, *waiting], rows)
    events: Schema = {"description": "Events.", "content": {changes.MEDIA_TYPE: {"schema": CHANGE}}}
    following = schemas.following_parameters(changes.MAX_KEYS, changes.MAX_FOLLOWING_MS)
    yield f"{path}/changes", get("follow", "Follow the changes of rows.", changes.DESCRIPTION, following, events)
    key = {"name": "key", "in": "path", "required": True, "schema": {"type": "string", "title": "Key"}}
    row = schemas.row_answer("The row.", f"{view.name}.row")
    yield f"{path}/{{key}}", get("get", "Row", "The row of one key.", [key, *waiting], row, 404)
