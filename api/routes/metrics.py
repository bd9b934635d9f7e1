"""`GET /metrics`: what this process measures, for Prometheus."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from headwater.api.errors import SeveralWorkers
from headwater.api.guard import needs
from headwater.api.openapi.problem_documents import documented
from headwater.api.requests.parameters import check_no_query
from headwater.api.service import Service
from headwater.eventlog.programs.metrics import REGISTRY

DESCRIPTION: Final = """\
The metrics of the API in the text format of Prometheus.

If several processes serve this address, each has metrics of its own, on the ports from `HEADWATER_METRICS_PORT` on.
"""


def metrics_routes(service: Service) -> APIRouter:
    """The route of metrics."""
    router = APIRouter(tags=["health"])

    async def read_metrics(request: Request) -> Response:
        """What this process measures."""
        check_no_query(request)
        if service.workers > 1:
            raise SeveralWorkers(service.workers)
        return Response(generate_latest(REGISTRY), media_type=CONTENT_TYPE_LATEST)

    text = {"text/plain": {"schema": {"type": "string"}}}
    router.add_api_route(
        "/metrics",
        read_metrics,
        methods=["GET"],
        dependencies=needs.operating(),
        operation_id="read_metrics",
        summary="What the API measures.",
        description=DESCRIPTION,
        response_class=Response,
        responses={200: {"description": "The metrics.", "content": text}, **documented(409, 422, 500)},
    )
    return router
