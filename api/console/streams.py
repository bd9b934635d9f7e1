"""`/console/streams`: the log by type and time, a stream with its state at any version, and what followed an event."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import orjson
from fastapi import APIRouter, Request, Response

from headwater.api.console.pages import Pages
from headwater.api.errors import BadParameter, StreamMissing, UnknownAggregate
from headwater.api.guard import needs
from headwater.api.guard.caller import caller_of
from headwater.api.reads.scans import AuditPage, EventFilter
from headwater.api.requests.parameters import check_names, check_text, read_integer, read_time
from headwater.api.routes.log import read_positions, write_positions
from headwater.api.routes.streams import HIGHEST_VERSION, StreamRequest, Streams, state_of
from headwater.api.service import Service
from headwater.commands.receipt import Receipt
from headwater.eventlog.envelope import Envelope, Position, decode, stream_name
from headwater.eventlog.errors import NotAnEnvelope
from headwater.projections.view import View

PARAMETERS: Final = ("stream", "version", "from", "type", "since", "at")
PAGE_EVENTS: Final = 50
SHOWN_KEYS: Final = 20
"""Rows of one view that an event changed, on a page."""
RECENT: Final = timedelta(hours=1)
"""How far back the log is shown without a time."""


@dataclass(frozen=True)
class ShownEvent:
    """An event on a page. position: None if it is not known. rows: by view, the keys of rows that it may change."""

    event: Envelope
    position: Position | None
    rows: Sequence[tuple[str, Sequence[str]]]


def stream_routes(router: APIRouter, pages: Pages, service: Service) -> None:
    """Add the pages of events."""
    page = StreamPage(pages, service)

    async def find(request: Request) -> Response:
        plain = check_names(request.query_params.multi_items(), PARAMETERS)
        if wanted := plain.get("stream", ""):
            aggregate, slash, aggregate_id = wanted.partition("/")
            if not slash:
                raise BadParameter("stream", "has no slash: write it like listing/L1")
            return await page.stream(request, aggregate, aggregate_id, plain)
        return await page.log(request, plain)

    async def show(request: Request, aggregate: str, aggregate_id: str) -> Response:
        plain = check_names(request.query_params.multi_items(), ("version", "from"))
        return await page.stream(request, aggregate, aggregate_id, plain)

    for path, endpoint in (
        ("/console/streams", find),
        ("/console/streams/{aggregate:name}/{aggregate_id:key}", show),
        ("/console/followed", page.followed),
    ):
        router.add_api_route(path, endpoint, methods=["GET"], dependencies=needs.operating())


class StreamPage:
    """The pages of events of one service."""

    def __init__(self, pages: Pages, service: Service) -> None:
        self._pages, self._service, self._streams = pages, service, Streams(service)

    async def stream(self, request: Request, aggregate: str, aggregate_id: str, plain: dict[str, str]) -> Response:
        """One stream: the state at a version, and its events."""
        declared = self._service.commands.aggregates.get(aggregate)
        if declared is None:
            raise UnknownAggregate(aggregate, tuple(self._service.commands.aggregates))
        check_text("stream", aggregate_id)
        stream = stream_name(aggregate, aggregate_id)
        await self._streams.wait({})
        last = await self._streams.version(stream)
        if last == 0:
            raise StreamMissing(stream)
        version = min(read_integer("version", plain.get("version", str(last)), 1, HIGHEST_VERSION), last)
        start = read_integer("from", plain.get("from", str(max(1, version - PAGE_EVENTS // 2))), 1, HIGHEST_VERSION)
        try:
            requested = StreamRequest(1, 1, version, None)
            state = await state_of(self._service, self._streams, declared, stream, last, requested, caller_of(request))
        except StreamMissing:  # all events up to there were erased
            state = {"state": {}, "version": version}
        events = [event async for event in self._events(stream, start)]
        following = events[-1].event.sequence + 1 if events else last + 1
        return self._pages.answer(
            request,
            "stream.html",
            section="streams",
            stream=stream,
            last=last,
            version=version,
            state=json.loads(orjson.dumps(state["state"])),  # orjson reads large integers as others
            reached=state["version"],
            events=events,
            earlier=max(1, start - PAGE_EVENTS) if start > 1 else None,
            later=following if following <= last else None,
        )

    async def _events(self, stream: str, start: int) -> Any:
        async for rows in self._streams.rows(stream, start, PAGE_EVENTS):
            for row in rows:
                position = None if row.get("offset") is None else Position(row["partition"], row["offset"])
                yield self._shown(decode(row["record"]), position)

    def _shown(self, event: Envelope, position: Position | None) -> ShownEvent:
        return ShownEvent(event, position, list(changed_rows(self._service.views.values(), event)))

    async def log(self, request: Request, plain: dict[str, str]) -> Response:
        """The events of all streams, of a type, since a time."""
        kind, text = plain.get("type", ""), plain.get("since", "")
        since = read_time("since", text) if text else datetime.now(UTC) - RECENT
        starts = read_positions("from", plain["from"], self._service.waiter.partitions) if "from" in plain else {}
        event_filter = EventFilter(frozenset(self._service.commands.types_of(kind) if kind else ()), since)
        page = await self._page(starts, event_filter)
        return self._pages.answer(
            request,
            "log.html",
            section="streams",
            types=sorted(self._service.commands.events),
            aggregates=sorted(self._service.commands.aggregates),
            kind=kind,
            since=since.isoformat(timespec="seconds").replace("+00:00", "Z"),
            events=list(self._listed(page)),
            following=None if page.ended else write_positions(page.next_offsets),
            unreadable=page.unreadable,
        )

    async def followed(self, request: Request) -> Response:
        """What followed an event: the events of its correlation, from its time on, and the receipt of its command."""
        plain = check_names(request.query_params.multi_items(), ("stream", "version", "at"))
        stream = plain.get("stream", "")
        version = read_integer("version", plain.get("version", ""), 1, HIGHEST_VERSION)
        await self._streams.wait({})
        cause = next((event for event in [e async for e in self._events(stream, version)]), None)
        if cause is None or cause.event.sequence != version:
            raise StreamMissing(stream)
        event = cause.event
        starts = read_positions("at", plain["at"], self._service.waiter.partitions) if "at" in plain else {}
        event_filter = EventFilter(since=event.time, correlation_id=event.correlation_id or "")
        page = await self._page(starts, event_filter)
        later = [neighbor for neighbor in self._listed(page) if neighbor.event.id != event.id]
        return self._pages.answer(
            request,
            "followed.html",
            section="streams",
            cause=cause,
            receipt=await self._receipt(event),
            events=later,
            following=None if page.ended else write_positions(page.next_offsets),
        )

    async def _receipt(self, event: Envelope) -> Receipt | None:
        if event.causation_id is None or not self._service.gateway.ready:
            return None
        return await self._service.gateway.receipt(event.causation_id, event.stream)

    async def _page(self, starts: dict[int, int], event_filter: EventFilter) -> AuditPage:
        async with self._service.work.scans.place():
            return await self._service.audit.page(starts, event_filter, PAGE_EVENTS)

    def _listed(self, page: AuditPage) -> Iterator[ShownEvent]:
        for position, record in page.events:
            yield self._shown(decode(record), position)


def changed_rows(views: Sequence[View] | Any, event: Envelope) -> Iterator[tuple[str, Sequence[str]]]:
    """By view, the keys of the rows that an event may change; of stream views they are not known."""
    for view in views:
        try:
            keys = view.rows_of(event) if view.handles(event.type) else ()
        except (NotAnEnvelope, KeyError, TypeError, ValueError):  # an event that the view cannot read changes nothing
            continue
        if keys:
            yield view.name, list(dict.fromkeys(keys))[:SHOWN_KEYS]
