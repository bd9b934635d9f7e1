"""All routes of the console; none of them is in the OpenAPI document, because they are for people."""

from __future__ import annotations

import secrets

from fastapi import APIRouter, Depends, Request

from api.console.looks import SharedLook
from api.console.now import now_routes
from api.console.pages import Pages
from api.console.requests import page_route
from api.console.signing_in import signing_in_routes
from api.errors import OneWorkerOnly
from api.guard.console_paths import CONSOLE
from api.routes.under import RoutesUnder
from api.service import Service


def console_routes(service: Service) -> APIRouter:
    """The routes of one service."""
    pages = Pages(service, secrets.token_urlsafe(32))
    looks = SharedLook(lambda: service.overseer)

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
    return router
