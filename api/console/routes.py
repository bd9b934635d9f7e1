"""All routes of the console; none of them is in the OpenAPI document, because they are for people."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute

from headwater.api import problems
from headwater.api.console.audit import audit_routes
from headwater.api.console.letters import letter_routes
from headwater.api.console.now import SharedLook, now_routes, source_routes
from headwater.api.console.pages import Pages
from headwater.api.console.processes import process_routes
from headwater.api.console.rows import row_routes
from headwater.api.console.signing_in import signing_in_routes
from headwater.api.console.streams import stream_routes
from headwater.api.console.view_lists import ShownViews, view_routes
from headwater.api.guard.needs import CONSOLE
from headwater.api.meanings import meaning_of
from headwater.api.requests.leaving import while_connected
from headwater.api.routes.under import RoutesUnder
from headwater.api.service import Service


def console_routes(service: Service) -> APIRouter:
    """The routes of one service."""
    pages = Pages(service)
    views = ShownViews(service)
    router = RoutesUnder(CONSOLE, route_class=page_route(pages), include_in_schema=False)
    signing_in_routes(router, pages, service.guard)
    now_routes(router, pages, SharedLook(lambda: service.overseer))
    stream_routes(router, pages, service)
    view_routes(router, pages, service, views)
    row_routes(router, pages, service, views)
    process_routes(router, pages, service)
    source_routes(router, pages, service)
    letter_routes(router, pages, service)
    audit_routes(router, pages, service)
    return router


def page_route(pages: Pages) -> type[APIRoute]:
    """A kind of route whose errors are pages, for clients that show pages; others get problem documents."""

    class PageRoute(APIRoute):
        """Such a route; the work of one that only reads ends when its client leaves."""

        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handler = super().get_route_handler()
            reads = "GET" in (self.methods or ())

            async def handle(request: Request) -> Response:
                try:
                    return await (while_connected(request, handler(request)) if reads else handler(request))
                except problems.KNOWN as error:
                    if "text/html" not in request.headers.get("accept", ""):
                        raise
                    meaning = meaning_of(error)
                    facts = {"title": meaning.title, "detail": problems.shown(error)}
                    return pages.answer(request, "error.html", meaning.status, **facts)

            return handle

    return PageRoute
