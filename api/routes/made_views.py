"""`GET /views/{view}` and its sub-paths, for views made with `replay rebuild --as`, which come and go at run time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fastapi import APIRouter, Request, Response

from headwater.api.errors import NeverChanges
from headwater.api.guard import needs
from headwater.api.guard.caller import Caller, caller_of
from headwater.api.guard.scopes import STREAMS
from headwater.api.made_views import made_view
from headwater.api.openapi import schemas
from headwater.api.openapi.components import Schema, documented
from headwater.api.reading import Made
from headwater.api.requests.leaving import ReadingRoute
from headwater.api.requests.parameters import check_names
from headwater.api.routes.changes import PARAMETERS as FOLLOWING
from headwater.api.routes.views import MAX_KEYS, ViewRoutes, may_read
from headwater.api.service import Service
from headwater.projections.errors import UnknownView

DESCRIPTION: Final = """\
A view of selected events, made with `replay rebuild VIEW --as NAME`. It has the parameters and columns of the view that
it was made from. `GET /views` lists these views, each with its selection of events.
"""
PROBLEMS: Final = documented(400, 404, 409, 422, 500, 503)
ROWS: Final[Schema] = {"type": "array", "items": {"type": ["object", "null"]}}


def made_view_routes(service: Service) -> APIRouter:
    """The routes of all made views; add them after those of declared views."""
    guarded = needs.of_parameter("views", "view")
    router = APIRouter(tags=["views"], route_class=ReadingRoute, dependencies=guarded)
    made = _MadeViews(service)

    async def rows(request: Request, view: str) -> Response:
        return await (await made.routes(view, caller_of(request))).rows(request)

    async def rows_of_keys(request: Request, view: str) -> Response:
        return await (await made.routes(view, caller_of(request))).rows_of_keys(request)

    async def search(request: Request, view: str) -> Response:
        return await (await made.routes(view, caller_of(request))).search(request)

    async def changes(request: Request, view: str) -> Response:
        check_names(request.query_params.multi_items(), FOLLOWING, repeatable=("key",))
        found = await made.known(view, caller_of(request))
        raise NeverChanges(found.name, found.source)

    async def row(request: Request, view: str, key: str) -> Response:
        return await (await made.routes(view, caller_of(request))).row(request, key)

    keys = schemas.keys_parameter(MAX_KEYS)
    page = {"rows": ROWS, "next": {"type": ["string", "null"]}, "links": {"type": "object"}}
    router.add_api_route("/views/{view:name}/changes", changes, methods=["GET"], include_in_schema=False)
    for path, endpoint, name, answer, parameters in (
        ("/views/{view:name}", rows, "find_in_made_view", page, []),
        ("/views/{view:name}/rows", rows_of_keys, "get_some_of_made_view", {"rows": ROWS}, [keys]),
        ("/views/{view:name}/search", search, "search_made_view", {}, []),
        ("/views/{view:name}/{key:key}", row, "get_of_made_view", {}, []),
    ):
        router.add_api_route(
            path,
            endpoint,
            methods=["GET"],
            operation_id=name,
            summary="A view of selected events.",
            description=DESCRIPTION,
            response_class=Response,
            responses={200: _answer(answer), **PROBLEMS},
            openapi_extra={"parameters": parameters} if parameters else None,
        )
    return router


def _answer(properties: Mapping[str, Any]) -> Schema:
    schema = {"type": "object", "properties": dict(properties), "required": list(properties)}
    return {
        "description": "The answer of the view that it was made from.",
        "content": {"application/json": {"schema": schema}},
    }


class _MadeViews:
    """The endpoints of made views, each made at its first request."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._routes: dict[tuple[str, str], ViewRoutes] = {}

    async def known(self, name: str, caller: Caller) -> Made:
        """The made view with this name; raises UnknownView, or Forbidden if it has all events."""
        made = await self._service.generations.made()
        if name not in made:  # it may have been made a moment ago
            made = await self._service.generations.made(fresh=True)
        if name not in made:
            every = (*self._service.views, *made)
            known = [each for each in every if may_read(self._service, caller, each, made.get(each))]
            raise UnknownView(name, tuple(known))
        if made[name].source == STREAMS:
            caller.must(*self._service.own_streams.all_events)
        return made[name]

    async def routes(self, name: str, caller: Caller) -> ViewRoutes:
        """The endpoints of the made view; raises UnknownView or MadeEarlier."""
        made = await self.known(name, caller)
        view = (made.name, made.source)
        if view not in self._routes or self._service.views[made.source].version != made.version:
            self._routes[view] = ViewRoutes(self._service, made_view(self._service, made))
        return self._routes[view]
