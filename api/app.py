"""The FastAPI application, built from a service."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline

from headwater.api import problems
from headwater.api.console.routes import console_routes
from headwater.api.guard.needs import unguarded
from headwater.api.middleware import (
    AllowedOrigins,
    CheckedHosts,
    CheckedTargets,
    Failures,
    Heads,
    KnownCallers,
    Measured,
)
from headwater.api.openapi import documentation
from headwater.api.routes.bulk import bulk_routes
from headwater.api.routes.commands import command_paths, command_routes
from headwater.api.routes.health import health_routes
from headwater.api.routes.log import log_routes
from headwater.api.routes.observations import observation_paths, observation_routes
from headwater.api.routes.persons import person_routes
from headwater.api.routes.receipts import receipt_routes
from headwater.api.routes.streams import stream_paths, stream_routes
from headwater.api.routes.views import view_paths, view_routes
from headwater.api.served_views import ServedViews
from headwater.api.service import Service

logger = logging.getLogger(__name__)

DESCRIPTION = """\
Send commands, which append events to the log, and read views of these events.

The answer to a command has a `position`. Send it as `after=` when you read a view or stream: the answer then includes
the changes of this command. Every error is an RFC 9457 problem document (`application/problem+json`) with a stable
`type`.
"""


def create_app(service: Service) -> FastAPI:
    """The application; its resources open when it starts and close when it ends.

    Raises RuntimeError if a route does not say what its callers need.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with service.opened(True):
            yield

    app = FastAPIOffline(
        redoc_url=None,  # it loads an image from another site
        static_url=documentation.ASSETS,
        swagger_ui_parameters=documentation.PAGE,
        title="Headwater",
        version="0.1.0",
        summary="One log, every view.",
        description=DESCRIPTION,
        lifespan=lifespan,
        redirect_slashes=False,
    )
    views = ServedViews(service)
    # tried in this order; as routes of the app, because FastAPI matches those of a router that is included twice
    for routes in (
        health_routes(service),
        command_routes(service),
        bulk_routes(service),
        view_routes(service, views),
        observation_routes(service),
        receipt_routes(service),
        log_routes(service),
        stream_routes(service),
        person_routes(service, views),
        console_routes(service, views),
    ):
        app.router.routes += routes.routes
    problems.install(app)
    declared = command_paths(service) | observation_paths(service) | view_paths(views) | stream_paths(service)
    documentation.install(app, service, declared)
    if open_paths := list(unguarded(app.routes)):
        raise RuntimeError(
            f"routes without a need of their callers (see headwater.api.guard.needs): {', '.join(open_paths)}"
        )
    _add_edge(app, service)
    restricted = sorted(view.name for view in service.views.values() if view.readable_by)
    if service.guard.is_open and restricted:
        logger.warning(
            "everybody reads all rows of %s, although they declare readable_by, because the API does not know its "
            "callers: set HEADWATER_API_KEYS or HEADWATER_API_ISSUER",
            ", ".join(restricted),
        )
    return app


def _add_edge(app: FastAPI, service: Service) -> None:
    """What a request passes before its route; what is added last is passed first."""
    app.add_middleware(CheckedTargets)
    app.add_middleware(KnownCallers, guard=service.guard)
    app.add_middleware(Failures)
    if service.origins:
        app.add_middleware(AllowedOrigins, origins=service.origins)
    if not service.hosts.is_any:
        app.add_middleware(CheckedHosts, hosts=service.hosts)
    declared = {
        "command_type": service.commands.commands,
        "observation": service.observations.types,
        "view": service.views,
    }
    app.add_middleware(Measured, declared=declared)
    app.add_middleware(Heads)
