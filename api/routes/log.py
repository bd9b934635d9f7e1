"""The log: `GET /streams/$all`, the events of all streams, and `GET /positions/{source}`, how far it has a database."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Final
from urllib.parse import urlencode

import orjson
from fastapi import APIRouter, Request, Response

from headwater.api.errors import BadParameter
from headwater.api.guard import needs
from headwater.api.guard.caller import caller_of
from headwater.api.openapi import schemas
from headwater.api.openapi.components import POSITIONS, documented
from headwater.api.openapi.documents import AllStreams, CapturedPosition
from headwater.api.reads.scans import EventFilter
from headwater.api.requests.parameters import check_names, read_integer, read_time
from headwater.api.requests.query import MAX_ROWS
from headwater.api.routing import ReadingRoute, router_of
from headwater.api.service import Service
from headwater.api.waiting.captured import DatabasePosition
from headwater.eventlog.capturing.declaring import Captured
from headwater.eventlog.envelope import Position
from headwater.eventlog.source_positions import positions_text, topic_and_partition
from headwater.projections.table.types import format_time

PATH: Final = "/streams/$all"
PARAMETERS: Final = ("type", "since", "until", "from", "limit")
MAX_TYPES: Final = 100
DESCRIPTION: Final = """\
Committed events, exactly as they were recorded, without heartbeats and erased events. The events of one partition are
in order; across partitions the order is approximately by time.

A page covers a limited part of the log. So a page may be empty and still have a `next` link. A page without `next` has
reached the end of the log: continue later from its `position`.
"""
POSITION_DESCRIPTION: Final = """\
The log has every change that was committed in the database up to `position`. Views may not have applied all of them:
send it as `after=`.

To read your own write, run `SELECT pg_current_wal_lsn()` after the commit, and send its answer as
`after=shop@0/1A2B3C8`.
"""


def log_routes(service: Service) -> APIRouter:
    """The routes of the whole log, and of captured databases."""
    router = router_of(route_class=ReadingRoute)

    async def read_all(request: Request) -> Response:
        parameters = request.query_params.multi_items()
        plain = check_names(parameters, PARAMETERS, repeatable=("type",))
        types = frozenset(value for name, value in parameters if name == "type")
        if len(types) > MAX_TYPES:
            raise BadParameter("type", f"has more than {MAX_TYPES} values: send several requests")
        event_filter = EventFilter(
            types=frozenset(type_ for name in types for type_ in service.commands.types_of(name)),
            since=read_time("since", plain["since"]) if "since" in plain else None,
            until=read_time("until", plain["until"]) if "until" in plain else None,
            exists=partial(service.own_streams.exists_for, caller_of(request)),
        )
        starts = read_positions("from", plain["from"], service.waiter.partitions) if "from" in plain else {}
        limit = read_integer("limit", plain.get("limit", "100"), 1, MAX_ROWS)
        async with service.work.scans.place():
            page = await service.audit.page(starts, event_filter, limit)
        records = await service.personal.of_records([record for _, record in page.events], caller_of(request))
        shown = zip((at for at, _ in page.events), records, strict=True)
        position = write_positions(page.next_offsets)
        kept = [parameter for parameter in parameters if parameter[0] != "from"]
        document: AllStreams = {
            "events": [{"position": str(at), "event": orjson.Fragment(record)} for at, record in shown],
            "unreadable": [str(at) for at in page.unreadable],
            "position": position,
            "links": {} if page.ended else {"next": f"{PATH}?{urlencode([*kept, ('from', position)], safe=':,')}"},
        }
        return Response(orjson.dumps(document), media_type="application/json")

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
            "snapshot": None
            if snapshot is None or not snapshot.is_running
            else {"kind": snapshot.kind, "state": snapshot.state, "table": snapshot.table, "rows": snapshot.rows},
        }
        return Response(orjson.dumps(document), media_type="application/json")

    time = {"type": "string", "format": "date-time"}
    router.add_api_route(
        PATH,
        read_all,
        methods=["GET"],
        tags=["streams"],
        dependencies=needs.named(*service.own_streams.all_events),
        operation_id="read all streams",
        summary="The events of all streams.",
        description=DESCRIPTION,
        response_class=Response,
        responses={200: schemas.answer("One page of events.", "AllStreams"), **documented(422, 500, 503)},
        openapi_extra={
            "parameters": [
                schemas.query(
                    "type",
                    {"type": "array", "items": {"type": "string"}},
                    "only events of these types, also under earlier ones",
                ),
                schemas.query("since", time, "only events at this time or later"),
                schemas.query("until", time, "only events before this time"),
                schemas.query("from", POSITIONS, "where to start in each partition: the `position` of an earlier page"),
                schemas.query(
                    "limit",
                    {"type": "integer", "minimum": 1, "maximum": MAX_ROWS},
                    "events on a page; fewer, with a `next` link, if they are large",
                ),
            ]
        },
    )
    router.add_api_route(
        "/positions/{source:name}",
        read_position,
        methods=["GET"],
        tags=["views"],
        dependencies=needs.operating(),
        operation_id="read_position",
        summary="How far a database has been captured.",
        description=POSITION_DESCRIPTION,
        response_class=Response,
        responses={200: schemas.answer("Its position.", "CapturedPosition"), **documented(404, 422, 500, 503)},
    )
    return router


def read_positions(name: str, token: str, partitions: int) -> dict[int, int]:
    """The offset of each partition in `0:12,1:99`; raises BadParameter."""
    try:
        positions = [Position.parse(part) for part in token.split(",")[: partitions + 1]]
    except ValueError as error:
        raise BadParameter(name, f"is invalid: {error}") from error
    offsets = {position.partition: position.offset for position in positions}
    if len(offsets) < len(positions):
        raise BadParameter(name, "names a partition more than once")
    for position in positions:
        if position.partition >= partitions or position.offset >= 2**63:
            raise BadParameter(name, f"names {position}, which is out of range: there are {partitions} partitions")
    return offsets


def write_positions(offsets: Mapping[int, int]) -> str:
    """`0:12,1:99`."""
    return ",".join(str(Position(partition, offset)) for partition, offset in sorted(offsets.items()))


def _last(table: type[Captured], ends: Mapping[str, int]) -> str | None:
    """The positions of the last records in the topic of a table; None if there are none."""
    of_table = {
        source: end - 1 for source, end in ends.items() if end and topic_and_partition(source)[0] == table.topic()
    }
    return positions_text(of_table) or None
