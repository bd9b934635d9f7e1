"""`GET /streams/{type}/{id}`: the events of one aggregate, and its state at a version or time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import orjson
from fastapi import APIRouter, Request, Response

from headwater.api.errors import BadParameter, StreamMissing, UnknownAggregate
from headwater.api.guard import needs
from headwater.api.guard.caller import Caller, caller_of
from headwater.api.guard.scopes import STREAMS
from headwater.api.limits import MAX_PAGE_BYTES, next_portion
from headwater.api.openapi import schemas
from headwater.api.openapi.components import ACCEPTED_HEADERS, TEXT, Schema, documented
from headwater.api.openapi.documents import stream_link
from headwater.api.reading import Finder, Page, Row
from headwater.api.requests.filters import Filter
from headwater.api.requests.parameters import check_names, check_text, read_integer, read_time
from headwater.api.requests.query import MAX_ROWS, Order, Query
from headwater.api.routing import ReadingRoute, router_of
from headwater.api.service import Service
from headwater.api.waiting.awaited import After
from headwater.commands.codec import fold
from headwater.commands.declaring.registry import AnyAggregate
from headwater.eventlog.envelope import Envelope, decode, format_time, stream_name
from headwater.projections.stores.declared import Postgres

FIRST_ROWS: Final = 20
"""Of the events that are read at once; more if they are small."""
HIGHEST_VERSION: Final = 2**53
PARAMETERS: Final = ("from", "limit", "version", "at", "after", "wait_ms")
DESCRIPTION: Final = (
    "The events of an aggregate, oldest first; with `version` or `at`, its state at that version or time."
)
PARTS: Final = "{names}, each percent-encoded; in a path, this text is percent-encoded like any other"


def stream_routes(service: Service) -> APIRouter:
    """The routes of streams, read from the view `streams`."""
    router = router_of("streams", ReadingRoute)
    streams = Streams(service)

    async def read_stream(request: Request, aggregate: str, aggregate_id: str) -> Response:
        plain = check_names(request.query_params.multi_items(), PARAMETERS)
        check_text("aggregate_id", aggregate_id)
        path = stream_link(stream_name(aggregate, aggregate_id))
        return await streams.answer(caller_of(request), plain, aggregate, aggregate_id, f"{path}?")

    async def find_stream(request: Request) -> Response:
        """The same of an aggregate whose id cannot be part of a path, such as `..`."""
        plain = check_names(request.query_params.multi_items(), ("stream", *PARAMETERS))
        aggregate, slash, aggregate_id = plain.get("stream", "").partition("/")
        if not slash:
            raise BadParameter("stream", "is missing or has no slash: send it like listing/L1")
        caller = caller_of(request)
        caller.must("streams", aggregate)
        kept = {name: value for name, value in plain.items() if name == "stream"}
        return await streams.answer(caller, plain, aggregate, aggregate_id, f"/streams?{urlencode(kept)}&")

    router.add_api_route(
        "/streams/{aggregate:name}/{aggregate_id:key}",
        read_stream,
        methods=["GET"],
        dependencies=needs.of_parameter("streams", "aggregate"),
        include_in_schema=False,
    )
    router.add_api_route(
        "/streams",
        find_stream,
        methods=["GET"],
        dependencies=needs.some("streams"),
        response_class=Response,
        responses=_answers("Stream"),
        openapi_extra={
            "parameters": [schemas.query("stream", TEXT, "such as `listing/L1`", required=True), *_described()]
        },
    )
    return router


def stream_paths(service: Service) -> Schema:
    """The path of the streams of each aggregate, for the OpenAPI document: each has its own events and state."""
    found: Schema = {}
    for name, aggregate in service.commands.aggregates.items():
        place: Schema = {"name": "aggregate_id", "in": "path", "required": True, "schema": TEXT}
        if aggregate.identity.has_parts:
            place["description"] = PARTS.format(names="/".join(aggregate.identity.names))
        found[f"/streams/{name}/{{aggregate_id}}"] = {
            "get": schemas.operation(
                "streams",
                f"read_stream {name}",
                f"The events of one {name}.",
                DESCRIPTION,
                f"streams:{name}",
                _answers(f"{name}.stream"),
                parameters=[place, *_described()],
            )
        }
    return found


def _answers(schema: str) -> dict[int | str, Any]:
    headers = {"ETag": ACCEPTED_HEADERS["ETag"]}
    return {
        200: schemas.answer("A page of events, or the state.", schema, headers),
        **documented(404, 422, 500, 503),
    }


def _described() -> list[Schema]:
    """The parameters of a stream."""
    number = {"type": "integer", "minimum": 1, "maximum": HIGHEST_VERSION}
    return [
        schemas.query("from", number, "the first version on the page"),
        schemas.query(
            "limit",
            {"type": "integer", "minimum": 1, "maximum": MAX_ROWS},
            "events on a page; fewer, with a `next` link, if they are large",
        ),
        schemas.query("version", number, "return the state after this event"),
        schemas.query("at", {"type": "string", "format": "date-time"}, "return the state at this time"),
        *schemas.waiting_parameters(),
    ]


class StreamRequest(NamedTuple):
    """The request: a page of events of a stream, or the state at a version or time."""

    start: int
    limit: int
    version: int | None
    at: datetime | None

    @classmethod
    def read(cls, plain: Mapping[str, str]) -> StreamRequest:
        """Read the parameters; raises BadParameter."""
        if "version" in plain and "at" in plain:
            raise BadParameter("version", "and at cannot be combined: send one")
        version = read_integer("version", plain["version"], 1, HIGHEST_VERSION) if "version" in plain else None
        at = read_time("at", plain["at"]) if "at" in plain else None
        if (version or at) and ("from" in plain or "limit" in plain):
            raise BadParameter("from" if "from" in plain else "limit", "applies to a page of events, not to a state")
        start = read_integer("from", plain.get("from", "1"), 1, HIGHEST_VERSION)
        return cls(start, read_integer("limit", plain.get("limit", "100"), 1, MAX_ROWS), version, at)


class Streams:
    """Reads the view `streams`, which every deployment has in PostgreSQL."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._view = service.views[STREAMS]
        self._reader: Finder = service.readers[Postgres.name]  # type: ignore[assignment]

    async def answer(
        self, caller: Caller, plain: Mapping[str, str], aggregate: str, aggregate_id: str, path: str
    ) -> Response:
        """The events of a page, or a state; plain: the parameters. path: of the stream, up to further parameters."""
        declared = self._service.commands.aggregates.get(aggregate)
        if declared is None:
            raise UnknownAggregate(aggregate, tuple(self._service.commands.aggregates))
        requested = StreamRequest.read(plain)
        stream = stream_name(aggregate, aggregate_id)
        if not self._service.own_streams.exists_for(caller, stream):
            raise StreamMissing(stream)  # before it is looked for, so that the time of the answer tells nothing
        await self.wait(plain)
        version = await self.version(stream)
        if version == 0:
            raise StreamMissing(stream)
        if requested.version is not None or requested.at is not None:
            return _json(version, await state_of(self._service, self, declared, stream, version, requested, caller))
        recorded, following = await _page(self, stream, requested)
        events = await self._service.personal.of_records(recorded, caller)
        links = {}
        if events and following <= version:
            links["next"] = f"{path}from={following}&limit={requested.limit}"
        fragments = [orjson.Fragment(event) for event in events]
        return _json(version, {"stream": stream, "version": version, "events": fragments, "links": links})

    async def wait(self, plain: Mapping[str, str]) -> None:
        """Wait for the positions of `after`."""
        await self._service.waiter.wait(self._view, self._reader, After.read(plain, self._service.limits))

    async def version(self, stream: str) -> int:
        """The version of the last event; 0 if there is none."""
        rows = (await self._find(stream, (), Order("sequence", descending=True), 1)).rows
        return int(rows[0]["sequence"]) if rows else 0

    async def portions(self, stream: str, start: int, limit: int) -> AsyncIterator[list[tuple[int, bytes]]]:
        """The versions and records from version `start` on, at most `limit`; only some are in memory at once."""
        async for rows in self.rows(stream, start, limit):
            yield [(row["sequence"], row["record"].encode()) for row in rows]

    async def rows(self, stream: str, start: int, limit: int) -> AsyncIterator[Sequence[Row]]:
        """The rows of the same events."""
        portion = FIRST_ROWS
        while limit > 0:
            wanted = min(limit, portion)
            page = await self._find(stream, (Filter("sequence", "gte", (start,)),), Order("sequence"), wanted)
            rows = page.rows
            yield rows
            size_bytes = sum(len(row["record"]) for row in rows)
            if page.last is None:
                return
            start, limit = rows[-1]["sequence"] + 1, limit - len(rows)
            portion = next_portion(len(rows), size_bytes, MAX_PAGE_BYTES, MAX_ROWS)

    async def _find(self, stream: str, filters: tuple[Filter, ...], order: Order, limit: int) -> Page:
        query = Query((Filter("stream", "in", (stream,)), *filters), (order,), limit)
        page, _ = await self._service.read(self._reader, self._view, lambda live: self._reader.find(live, query))
        return page


async def _page(streams: Streams, stream: str, requested: StreamRequest) -> tuple[list[bytes], int]:
    """The events of a page, fewer than its limit if they are large, and the version to continue from."""
    events: list[bytes] = []
    following, size_bytes = requested.start, 0
    async for records in streams.portions(stream, requested.start, requested.limit):
        for version, record in records:
            events.append(record)
            following = version + 1
            size_bytes += len(record)
            if size_bytes >= MAX_PAGE_BYTES:
                return events, following
    return events, following


async def state_of(
    service: Service,
    streams: Streams,
    aggregate: AnyAggregate,
    stream: str,
    version: int,
    requested: StreamRequest,
    caller: Caller,
) -> dict[str, Any]:
    """The state after `requested.version`, or after the last event not later than `requested.at`, for this caller."""
    if requested.version is not None and requested.version > version:
        raise StreamMissing(stream, version)
    folding = _Folding(aggregate, requested)
    async with service.work.folds.place():
        async for records in streams.portions(stream, 1, requested.version or version):
            if not await service.folding.run(folding.add, [record for _, record in records]):
                break
    if folding.time is None:
        raise StreamMissing(stream, version)
    state = folding.state
    body = service.personal.of_state(aggregate, state.__pydantic_serializer__.to_json(state), caller)
    return {
        "stream": stream,
        "version": folding.reached,
        "time": format_time(folding.time),
        "state": orjson.Fragment(body),  # it may have integers of any length
    }


class _Folding:
    """The state up to where a request asks for it, from portions of a stream; in threads, because it takes long."""

    def __init__(self, aggregate: AnyAggregate, requested: StreamRequest) -> None:
        self._aggregate, self._requested = aggregate, requested
        self.state, self.reached = aggregate.initial, 0
        self.time: datetime | None = None

    def add(self, records: Sequence[bytes]) -> bool:
        """Fold these events, the next ones; returns whether later ones are requested too."""
        requested = self._requested
        for record in records:
            envelope: Envelope = decode(record)
            if requested.at is not None and envelope.time > requested.at:
                return False
            if requested.version is not None and envelope.sequence > requested.version:
                return False  # an earlier event was erased, so the same number of events reaches further
            try:
                self.state, self.reached = fold(self._aggregate, [envelope], self.state, self.reached)
            except (SystemExit, GeneratorExit) as error:  # they would end the process, or its event loop
                raise RuntimeError(f'"{self._aggregate.name}" raised {error!r} at "{envelope.id}"') from error
            self.time = envelope.time
        return True


def _json(version: int, document: dict[str, Any]) -> Response:
    return Response(orjson.dumps(document), media_type="application/json", headers={"ETag": f'"{version}"'})
