"""`GET /health/live` and `/health/ready`: whether the process runs, and whether its servers answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import orjson
from fastapi import APIRouter, Response

from api import schemas
from api.components import RETRY_AFTER
from api.documents import Health
from api.errors import ApiError
from api.service import Service
from commands.errors import CommandError
from eventlog.errors import EventLogError
from eventlog.topics import EVENTS
from projections.errors import GenerationMissing, ProjectionError

TIMEOUT_S = 3.0


def health_routes(service: Service) -> APIRouter:
    """The routes for supervisors and load balancers."""
    router = APIRouter(prefix="/health", tags=["health"])

    async def live() -> Response:
        """Whether the process answers."""
        return Response(orjson.dumps({"status": "live"}), media_type="application/json")

    async def ready() -> Response:
        """Whether the process can serve requests: the state of the log, the receipts and the registry.

        `handlers` names commands and events whose code does not return. Their partitions wait, and all others are
        served, so the process is ready nevertheless.
        """
        log, registry, handlers = await asyncio.gather(
            _check(service.events.ends((EVENTS,))), _check(_registry(service)), _handlers(service)
        )
        receipts = "ready" if service.gateway.ready else "earlier receipts are still being read"
        parts = {"log": log, "receipts": receipts, "registry": registry}
        fine = all(state == "ready" for state in parts.values())
        document: Health = {"status": "ready" if fine else "not ready", "parts": {**parts, "handlers": handlers}}
        body = orjson.dumps(document)
        headers = {} if fine else {"Retry-After": "2"}
        return Response(body, 200 if fine else 503, headers, "application/json")

    responses: dict[int | str, Any] = {
        200: schemas.answer("Ready.", "Health"),
        503: schemas.answer("Not ready.", "Health", RETRY_AFTER),
    }
    router.add_api_route(
        "/live",
        live,
        methods=["GET"],
        response_class=Response,
        responses={200: schemas.answer("The process answers.", "Health")},
    )
    router.add_api_route("/ready", ready, methods=["GET"], response_class=Response, responses=responses)
    return router


async def _registry(service: Service) -> None:
    for view in list(service.views.values())[:1]:
        try:
            await service.generations.live(view, fresh=True)
        except GenerationMissing:  # the registry answers; queries of the view report that it is not built
            return


async def _handlers(service: Service) -> str:
    slow: list[str] = []

    async def read() -> None:
        slow.extend(await service.events.slow_code())

    state = await _check(read())
    return "; ".join(slow) or state


async def _check(answer: Awaitable[object]) -> str:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await answer
    except TimeoutError:
        return f"no answer within {TIMEOUT_S:g} s"
    except (ApiError, CommandError, EventLogError, ProjectionError) as error:
        return str(error)
    return "ready"
