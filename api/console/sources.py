"""`/console/sources`: captured databases, as far as the log has them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from fastapi import APIRouter, Request, Response

from headwater.api.console.now import age_s
from headwater.api.console.pages import Pages
from headwater.api.guard import needs
from headwater.api.requests.parameters import check_no_query
from headwater.api.service import Service
from headwater.eventlog.capturing.capture_progress import Commit
from headwater.eventlog.capturing.control_topics import Snapshot
from headwater.eventlog.capturing.declaring import Source
from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.times import now_ms


@dataclass(frozen=True)
class ShownSource:
    """A captured database. at: when the last transaction was committed that the log has; age_s: since then."""

    source: Source
    commit: Commit | None
    at: datetime | None
    age_s: float | None
    snapshot: Snapshot | None
    problem: str


def source_routes(router: APIRouter, pages: Pages, service: Service) -> None:
    """Add the page."""

    async def show(request: Request) -> Response:
        check_no_query(request)
        found = [await _shown(service, source) for source in service.captured.sources.values()]
        return pages.answer(request, "sources.html", section="sources", sources=found)

    router.add_api_route("/console/sources", show, methods=["GET"], dependencies=needs.operating())


async def _shown(service: Service, source: Source) -> ShownSource:
    try:
        commit = await service.captured.last_commit(source.name)
        snapshot = await service.captured.snapshot(source.name)
    except LogUnavailable as error:
        return ShownSource(source, None, None, None, None, str(error))
    at = None if commit is None else datetime.fromtimestamp(commit.time_ms / 1000, UTC)
    age = None if commit is None else age_s(now_ms(), commit.time_ms)
    return ShownSource(source, commit, at, age, snapshot, "")
