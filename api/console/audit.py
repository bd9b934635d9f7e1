"""`/console/audit`: what operators did."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from fastapi import APIRouter, Request, Response

from headwater.api.console.pages import Pages
from headwater.api.guard import needs
from headwater.api.requests.parameters import check_names, read_integer
from headwater.api.service import Service

DEFAULT_DAYS: Final = 7
MAX_SHOWN: Final = 500


def audit_routes(router: APIRouter, pages: Pages, service: Service) -> None:
    """Add the page."""

    async def show(request: Request) -> Response:
        plain = check_names(request.query_params.multi_items(), ("days",))
        days = read_integer("days", plain.get("days", str(DEFAULT_DAYS)), 1, 3650)
        found = await service.overseer.trail(datetime.now(UTC) - timedelta(days=days))
        return pages.answer(
            request,
            "audit.html",
            section="audit",
            records=list(reversed(found[-MAX_SHOWN:])),
            hidden=max(0, len(found) - MAX_SHOWN),
            days=days,
        )

    router.add_api_route("/console/audit", show, methods=["GET"], dependencies=needs.operating())
