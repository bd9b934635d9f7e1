"""`/console/views/{view}/row`: a row, and why it is so: the events that made it, with the row before and after each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

from fastapi import APIRouter, Request, Response
from starlette.responses import StreamingResponse

from headwater.api.console.pages import HEADERS, Links, Pages
from headwater.api.console.view_lists import ShownViews
from headwater.api.errors import BadParameter
from headwater.api.event_pages import EventFilter
from headwater.api.guard import needs
from headwater.api.guard.caller import caller_of
from headwater.api.ports import Row
from headwater.api.requests.parameters import check_names, check_text
from headwater.api.routes import changes
from headwater.api.routes.streams import Streams
from headwater.api.routes.views import ViewRoutes
from headwater.api.service import Service
from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.observation import Observation
from headwater.eventlog.envelope import Position
from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.topics import EVENTS
from headwater.projections.folding.row_changes import RowChange, RowChanges, streams_of_row
from headwater.projections.stream.declaring.sources import types_of
from headwater.projections.view import View

MAX_FOLDED: Final = 10_000
"""Events of the streams of one row: a row with more is read from the log, which shows progress."""
MAX_FOLDED_BYTES: Final = 16 * 1024 * 1024
"""Likewise, of their records."""
MAX_SHOWN: Final = 100
"""The last events of a row on a page."""
MAX_FOUND: Final = 1_000
"""Events after which a search of the log ends."""
SCAN_EVENTS: Final = 500


def row_routes(router: APIRouter, pages: Pages, service: Service, views: ShownViews) -> None:
    """Add the pages of a row."""
    page = RowPage(pages, service, views)

    async def follow(request: Request, view: str) -> Response:
        found = await views.routes(view)
        return await changes.following(service, found.view)(request)

    for path, endpoint in (
        ("/console/views/{view:name}/row", page.show),
        ("/console/views/{view:name}/row/scan", page.scan),
        ("/console/views/{view:name}/changes", follow),
    ):
        router.add_api_route(path, endpoint, methods=["GET"], dependencies=needs.operating())


class RowPage:
    """The pages of rows of one service."""

    def __init__(self, pages: Pages, service: Service, views: ShownViews) -> None:
        self._pages, self._service, self._views, self._streams = pages, service, views, Streams(service)

    async def show(self, request: Request) -> Response:
        """The row, and its events if they are known without reading the log."""
        routes, key, column = await self._requested(request)
        view = routes.view
        row, live = await routes.read_row(caller_of(request), key)
        found, too_many = await self._changes(view, key)
        shown = None if found is None else [each for each in found if column is None or column in each.columns]
        follows = view.name in self._service.views and changes.is_followed(view)
        return self._pages.answer(
            request,
            "row.html",
            section="views",
            changes=Links(request)("views", view.name, "changes", key=key) if follows else "",
            view=view,
            key=key,
            column=column,
            row=row,
            generation=live.generation,
            found=None if shown is None else shown[-MAX_SHOWN:],
            hidden=0 if shown is None else max(0, len(shown) - MAX_SHOWN),
            folded=found[-1].after if found else None,
            is_folded=not view.has_own_query,
            too_many=too_many,
            captured=list(view.tables),
            log_events=await self._log_events() if found is None and not view.has_own_query else 0,
        )

    async def _requested(self, request: Request) -> tuple[ViewRoutes, str, str | None]:
        """The view of a request, the key of its row, and the column that is asked for; raises BadParameter."""
        plain = check_names(request.query_params.multi_items(), ("key", "column"))
        routes, key, column = (
            await self._views.routes(request.path_params["view"]),
            plain.get("key", ""),
            plain.get("column"),
        )
        check_text("key", key)
        if column is not None and column not in routes.view.types:
            raise BadParameter("column", f'is no column of "{routes.view.name}"', tuple(routes.view.types))
        return routes, key, column

    async def _changes(self, view: View, key: str) -> tuple[list[RowChange] | None, bool]:
        """The changes of a row keyed by its stream, and whether there are too many; None if the log must be read."""
        streams = streams_of_row(view, key, self._service.commands.aggregates.values())
        if streams is None:
            return None, False
        await self._streams.wait({})
        events: list[Row] = []
        size_bytes = 0
        for stream in streams:
            async for rows in self._streams.rows(stream, 1, MAX_FOLDED + 1):
                events += rows
                size_bytes += sum(len(row["record"]) for row in rows)
                if len(events) > MAX_FOLDED or size_bytes > MAX_FOLDED_BYTES:
                    return None, True
        return await self._service.folding.run(_folded, view, key, events), False

    async def _log_events(self) -> int:
        ends = await self._service.events.ends((EVENTS,))
        return sum(ends.values())

    async def scan(self, request: Request) -> Response:
        """A page that grows while the log is read; leaving it ends the reading."""
        routes, key, column = await self._requested(request)
        view = routes.view
        if view.has_own_query:
            raise BadParameter("view", "is a stream view: Spark makes its rows, and no event alone tells which")
        row, live = await routes.read_row(caller_of(request), key)
        total = await self._log_events()
        facts = {"section": "views", "view": view, "key": key, "column": column, "row": row, "total": total}
        text = self._pages.text(request, "scan.html", generation=live.generation, **facts)
        head, _, tail = text.partition("<!-- events -->")

        async def content() -> AsyncIterator[str]:
            yield head
            try:
                async for change, done in self._scanned(request, view, key):
                    if change is None:
                        yield self._pages.text(request, "scan_progress.html", done=done, total=max(total, done))
                    elif column is None or column in change.columns:
                        yield self._pages.text(request, "change.html", change=change, column=column, view=view)
            except LogUnavailable as error:
                yield self._pages.text(request, "scan_ended.html", problem=str(error))
            yield tail

        return StreamingResponse(content(), media_type="text/html", headers=HEADERS | {"X-Accel-Buffering": "no"})

    async def _scanned(self, request: Request, view: View, key: str) -> AsyncIterator[tuple[RowChange | None, int]]:
        """The changes of a row in the log, and how many offsets were read; None: only these."""
        folded, found = RowChanges(view, key), 0
        starts: Mapping[int, int] = {}
        event_filter = EventFilter(_types(view))
        caller, guard = caller_of(request), self._service.guard
        while found < MAX_FOUND and guard.is_valid(caller):
            async with self._service.work.scans.place():
                page = await self._service.audit.page(starts, event_filter, SCAN_EVENTS)
            for change in await self._service.folding.run(_added, folded, page.events):
                found += 1
                yield change, 0
            starts = page.next_offsets
            yield None, sum(starts.values())
            if page.ended:
                return


def _folded(view: View, key: str, events: Sequence[Row]) -> list[RowChange]:
    """The changes of a row, by the events of its streams, in the order of their times."""
    ordered = sorted(events, key=lambda each: (each["time"], each["stream"], each["sequence"]))
    placed = [(Position(each["partition"], each["offset"]), each["record"].encode()) for each in ordered]
    return _added(RowChanges(view, key), placed)


def _added(changes_so_far: RowChanges, events: Sequence[tuple[Position, bytes]]) -> list[RowChange]:
    return [change for at, record in events if (change := changes_so_far.add(at, record)) is not None]


def _types(view: View) -> frozenset[str]:
    """The types of the events that a view handles; empty: all."""
    types = frozenset(name for each in view.classes if issubclass(each, Event | Observation) for name in types_of(each))
    return types if all(view.handles(each) for each in types) else frozenset()
