"""All routes of the console; none of them is in the OpenAPI document, because they are for people."""

from __future__ import annotations

from fastapi import APIRouter

from headwater.api.console.audit import audit_routes
from headwater.api.console.letters import letter_routes
from headwater.api.console.now import SharedLook, now_routes
from headwater.api.console.pages import Pages
from headwater.api.console.processes import process_routes
from headwater.api.console.requests import page_route
from headwater.api.console.rows import row_routes
from headwater.api.console.signing_in import signing_in_routes
from headwater.api.console.sources import source_routes
from headwater.api.console.streams import stream_routes
from headwater.api.console.view_lists import ShownViews, view_routes
from headwater.api.guard.needs import CONSOLE
from headwater.api.routes.under import RoutesUnder
from headwater.api.service import Service


def console_routes(service: Service) -> APIRouter:
    """The routes of one service."""
    pages = Pages(service)
    looks, views = SharedLook(lambda: service.overseer), ShownViews(service)

    router = RoutesUnder(CONSOLE, route_class=page_route(pages), include_in_schema=False)
    signing_in_routes(router, pages, service.guard)
    now_routes(router, pages, looks)
    stream_routes(router, pages, service)
    view_routes(router, pages, service, views)
    row_routes(router, pages, service, views)
    process_routes(router, pages, service)
    source_routes(router, pages, service)
    letter_routes(router, pages, service)
    audit_routes(router, pages, service)
    return router
