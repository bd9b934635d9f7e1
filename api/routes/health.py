"""`GET /health/live` and `/health/ready`: whether the process runs, and whether its servers answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response

from headwater.api.errors import ApiError
from headwater.api.openapi import schemas
from headwater.api.openapi.components import RETRY_AFTER
from headwater.api.openapi.documents import Health
from headwater.api.problems import shown
from headwater.api.requests.parameters import check_no_query
from headwater.api.service import Service
from headwater.api.views_at_start import READY, ViewsAtStart
from headwater.commands.errors import CommandError
from headwater.eventlog.errors import EventLogError
from headwater.eventlog.topics import EVENTS
from headwater.projections.errors import GenerationMissing, ProjectionError

TIMEOUT_S = 3.0


def health_routes(service: Service) -> APIRouter:
    """The routes for supervisors and load balancers."""
    router, views = APIRouter(prefix="/health", tags=["health"]), ViewsAtStart(service)

    async def live(request: Request) -> Response:
        """Whether the process answers."""
        check_no_query(request)
        return Response(orjson.dumps({"status": "live"}), media_type="application/json")

    async def ready(request: Request) -> Response:
        """Whether the process can serve requests: the state of the log, the receipts, the registry and the views.

        `handlers` names commands and events whose code does not return; only their number, if the API knows its
        callers, because this path needs none. Their partitions wait, and all others are served, so the process is ready
        nevertheless.
        """
        check_no_query(request)
        log, registry, handlers = await asyncio.gather(
            _check(_log(service)), _check(_registry(service)), _handlers(service)
        )
        receipts = READY if service.gateway.ready else "earlier receipts are still being read"
        parts = {"log": log, "receipts": receipts, "registry": registry}
        if log == registry == READY:
            parts["views"] = await _check(views.state())
        fine = all(state == READY for state in parts.values())
        document: Health = {
            "status": READY if fine else "not ready",
            "environment": service.environment,
            "instance": service.instance,
            "parts": {**parts, "handlers": handlers},
        }
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


async def _log(service: Service) -> None:
    await service.events.ends((EVENTS,))


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
    if slow and not service.guard.is_open:
        return f"{len(slow)} partitions wait for code that does not return: the logs of the handlers name it"
    return "; ".join(slow) or state


async def _check(answer: Awaitable[str | None]) -> str:
    """`ready`, or what is not; answer: the same, None if it is ready, or an error."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await answer or READY
    except TimeoutError:
        return f"no answer within {TIMEOUT_S:g} s"
    except (ApiError, CommandError, EventLogError, ProjectionError) as error:
        return shown(error)
