"""`GET /positions/{source}`: how far a captured database has been captured."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import orjson
from fastapi import APIRouter, Request, Response

from headwater.api.guard import needs
from headwater.api.openapi import schemas
from headwater.api.openapi.documents import CapturedPosition, SnapshotDocument
from headwater.api.openapi.problem_documents import documented
from headwater.api.requests.leaving import ReadingRoute
from headwater.api.requests.parameters import check_names
from headwater.api.service import Service
from headwater.api.waiting.captured import DatabasePosition
from headwater.eventlog.capturing.control_topics import Snapshot
from headwater.eventlog.capturing.declaring import Captured
from headwater.eventlog.source_positions import positions_text, topic_and_partition
from headwater.projections.table.types import format_time

DESCRIPTION: Final = """\
The log has every change that was committed in the database up to `position`. Views may not have applied all of them:
send it as `after=`.

To read your own write, run `SELECT pg_current_wal_lsn()` after the commit, and send its answer as
`after=shop@0/1A2B3C8`.
"""


def position_routes(service: Service) -> APIRouter:
    """The route of captured databases."""
    router = APIRouter(tags=["views"], route_class=ReadingRoute)

    async def read_position(request: Request, source: str) -> Response:
        """How far a captured database has been captured."""
        check_names(request.query_params.multi_items(), ())
        declared = service.captured.source(source)
        snapshot = await service.captured.snapshot(source)
        commit = await service.captured.last_commit(source)
        # read afterwards, so that they include everything up to the commit
        ends = await service.captured.stored_ends([table.topic() for table in declared.tables])
        document: CapturedPosition = {
            "source": source,
            "position": None if commit is None else str(DatabasePosition(source, commit.lsn)),
            "time": None if commit is None else format_time(datetime.fromtimestamp(commit.time_ms / 1000, UTC)),
            "tables": {table.table: _last(table, ends) for table in declared.tables},
            "snapshot": _snapshot(snapshot),
        }
        return Response(orjson.dumps(document), media_type="application/json")

    router.add_api_route(
        "/positions/{source:name}",
        read_position,
        methods=["GET"],
        dependencies=needs.operating(),
        operation_id="read_position",
        summary="How far a database has been captured.",
        description=DESCRIPTION,
        response_class=Response,
        responses={200: schemas.answer("Its position.", "CapturedPosition"), **documented(404, 422, 500, 503)},
    )
    return router


def _last(table: type[Captured], ends: Mapping[str, int]) -> str | None:
    """The positions of the last records in the topic of a table; None if there are none."""
    of_table = {
        source: end - 1 for source, end in ends.items() if end and topic_and_partition(source)[0] == table.topic()
    }
    return positions_text(of_table) or None


def _snapshot(found: Snapshot | None) -> SnapshotDocument | None:
    """A snapshot that is running."""
    if found is None or not found.is_running:
        return None
    return {"kind": found.kind, "state": found.state, "table": found.table, "rows": found.rows}
