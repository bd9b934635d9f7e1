"""All routes of the console; none of them is in the OpenAPI document, because they are for people."""

from __future__ import annotations

import secrets

from fastapi import APIRouter, Depends, Request

from headwater.api.console.acting import acting_routes
from headwater.api.console.actions import Actions
from headwater.api.console.audit import audit_routes
from headwater.api.console.letters import letter_routes
from headwater.api.console.looks import SharedLook
from headwater.api.console.now import now_routes
from headwater.api.console.pages import Pages
from headwater.api.console.processes import process_routes
from headwater.api.console.requests import page_route
from headwater.api.console.rows import row_routes
from headwater.api.console.signing_in import signing_in_routes
from headwater.api.console.sources import source_routes
from headwater.api.console.streams import stream_routes
from headwater.api.console.view_lists import ShownViews, view_routes
from headwater.api.errors import OneWorkerOnly
from headwater.api.guard.console_paths import CONSOLE
from headwater.api.routes.under import RoutesUnder
from headwater.api.service import Service


def console_routes(service: Service, actions: Actions) -> APIRouter:
    """The routes of one service; actions: those that people start."""
    pages = Pages(service, secrets.token_urlsafe(32))
    looks, views = SharedLook(lambda: service.overseer), ShownViews(service)

    async def check_workers(_: Request) -> None:
        if service.workers > 1:
            raise OneWorkerOnly(service.workers)

    router = RoutesUnder(
        CONSOLE,
        route_class=page_route(pages),
        include_in_schema=False,
        dependencies=[Depends(check_workers)],
    )
    signing_in_routes(router, pages, service.guard)
    now_routes(router, pages, looks)
    stream_routes(router, pages, service)
    view_routes(router, pages, service, views)
    row_routes(router, pages, service, views)
    acting_routes(router, pages, service, views, actions)
    process_routes(router, pages, service)
    source_routes(router, pages, service)
    letter_routes(router, pages, service, actions)
    audit_routes(router, pages, service, actions)
    return router
