"""`/console/views`: all views, the generations and rows of each, and a row with the events that made it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response

from headwater.api.console.pages import Links, Pages, growing
from headwater.api.errors import ApiError, BadParameter, KeyOnly
from headwater.api.guard import needs
from headwater.api.guard.caller import caller_of
from headwater.api.reading import Row
from headwater.api.reads.scans import EventFilter
from headwater.api.requests.filters import operators
from headwater.api.requests.parameters import check_names, check_no_query, check_text
from headwater.api.requests.query import every_column, sortable
from headwater.api.routes.changes import is_followed
from headwater.api.routes.streams import Streams
from headwater.api.routes.views import follow_view
from headwater.api.served_views import Found, ServedView, ServedViews
from headwater.api.service import Service
from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.observation import Observation
from headwater.eventlog.envelope import Position
from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.topics import EVENTS
from headwater.projections.errors import GenerationMissing
from headwater.projections.folding.row_changes import RowChange, RowChanges, streams_of_row
from headwater.projections.stream.sources import types_of
from headwater.projections.table.types import ColumnType
from headwater.projections.view import View

PAGE_ROWS: Final = 50
COMMANDS: Final = {
    "rebuild": "builds a new generation from the whole log and makes it live, while queries and live updates continue",
    "verify": "rebuilds the view aside, compares every row with the live generation, and changes nothing",
    "rollback": "makes the previous generation live again; a second rollback undoes the first",
}
"""Verbs of `replay` about one view, and what each does."""
NUMBERS: Final = (ColumnType.INTEGER, ColumnType.FLOAT)
OWN: Final = ("column", "operator", "value", "key")
"""Parameters of the page's own, beside those of the HTTP API."""
MAX_FOLDED: Final = 10_000
"""Events of the streams of one row: a row with more is read from the log, which shows progress."""
MAX_FOLDED_BYTES: Final = 16 * 1024 * 1024
"""Likewise, of their records."""
MAX_SHOWN: Final = 100
"""The last events of a row on a page."""
MAX_FOUND: Final = 1_000
"""Events after which a search of the log ends."""
SCAN_EVENTS: Final = 500


def view_routes(router: APIRouter, pages: Pages, service: Service, views: ServedViews) -> None:
    """Add the list of views, and the page of each."""

    async def list_views(request: Request) -> Response:
        check_no_query(request)
        shown = []
        for served in await views.all():
            try:
                generation: int | None = (await service.generations.live(served.view)).generation
            except GenerationMissing:
                generation = None
            shown.append({"view": served.view, "generation": generation})
        return pages.answer(request, "views.html", section="views", views=shown)

    async def show(request: Request, view: str) -> Response:
        served = await views.view(view, caller_of(request))
        parameters = _parameters(request)
        has_limit = any(name == "limit" for name, _ in parameters)
        asked = parameters if has_limit else [*parameters, ("limit", str(PAGE_ROWS))]
        problem, result = "", None
        try:
            read = served.search if any(name == "q" for name, _ in parameters) else served.find
            result = await read(caller_of(request), asked)
        except KeyOnly:
            problem = "Its store finds rows by key only."
        except (ApiError, GenerationMissing) as error:
            problem = str(error)
        follows = served.made is None and is_followed(served.view)
        return pages.answer(
            request,
            "view.html",
            section="views",
            changes=Links(request)("views", view, "changes") if follows else "",
            **_facts(request, served, result, parameters),
            problem=problem,
            commands=COMMANDS if served.made is None else {},
            generations=sorted(
                await service.overseer.generations(view), key=lambda generation: generation.generation, reverse=True
            ),
            stores=[store.name for store in served.view.stores],
        )

    router.add_api_route("/console/views", list_views, methods=["GET"], dependencies=needs.operating())
    router.add_api_route("/console/views/{view:name}", show, methods=["GET"], dependencies=needs.operating())


def _parameters(request: Request) -> list[tuple[str, str]]:
    """The parameters of the HTTP API: those of the address, and the filter that the form adds."""
    given = request.query_params
    filters = [(name, value) for name, value in given.multi_items() if name not in OWN and value != ""]
    if given.get("column") and given.get("value", "") != "":
        operator = given.get("operator") or "eq"
        filters.append((given["column"] if operator == "eq" else f"{given['column']}.{operator}", given["value"]))
    return filters


def _facts(
    request: Request, served: ServedView, found: Found | None, parameters: Sequence[tuple[str, str]]
) -> dict[str, Any]:
    view, path = served.view, Links(request)("views", served.view.name)

    def page(kept: Sequence[tuple[str, str]]) -> str:
        return f"{path}?{urlencode(kept)}" if kept else path

    filters = [parameter for parameter in parameters if parameter[0] not in ("cursor", "sort", "limit", "q", "count")]
    kept = [parameter for parameter in parameters if parameter[0] != "cursor"]
    unsorted = [pair for pair in kept if pair[0] != "sort"]
    sort = next((value for name, value in parameters if name == "sort"), "")
    return {
        "view": view,
        "columns": every_column(view),
        "numbers": {name for name, kind in view.types.items() if kind in NUMBERS or kind.is_decimal},
        "found": found,
        "filters": [(name, value, page([pair for pair in kept if pair != (name, value)])) for name, value in filters],
        "kept": [pair for pair in kept if pair[0] != "q"],
        "words": next((value for name, value in parameters if name == "q"), ""),
        "searches": served.searcher is not None,
        "following": page([*kept, ("cursor", found.cursor)]) if found is not None and found.cursor else None,
        "first": page(kept) if any(name == "cursor" for name, _ in parameters) else None,
        "sorted_by": sort,
        "sorting": {  # by column, where rows are sorted by it, or the other way round
            name: page([*unsorted, ("sort", f"-{name}" if sort == name else name)]) for name in sortable(view)
        },
        "operators": {
            name: list(operators(kind))
            for name, kind in view.types.items()
            if operators(kind) and name not in view.personal
        },
        "all_operators": sorted({operator for kind in view.types.values() for operator in operators(kind)}),
    }


def row_routes(router: APIRouter, pages: Pages, service: Service, views: ServedViews) -> None:
    """Add the pages of a row."""
    page = RowPage(pages, service, views)

    async def follow(request: Request, view: str) -> Response:
        return await follow_view(service, await views.view(view, caller_of(request)), request)

    for path, endpoint in (
        ("/console/views/{view:name}/row", page.show),
        ("/console/views/{view:name}/row/scan", page.scan),
        ("/console/views/{view:name}/changes", follow),
    ):
        router.add_api_route(path, endpoint, methods=["GET"], dependencies=needs.operating())


class RowPage:
    """The pages of rows of one service."""

    def __init__(self, pages: Pages, service: Service, views: ServedViews) -> None:
        self._pages, self._service, self._views, self._streams = pages, service, views, Streams(service)

    async def show(self, request: Request, view: str) -> Response:
        """The row, and its events if they are known without reading the log."""
        served, key, column = await self._requested(request, view)
        declared = served.view
        row, live = await served.row(caller_of(request), key)
        found, too_many = await self._changes(declared, key)
        shown = None if found is None else [row for row in found if column is None or column in row.columns]
        follows = served.made is None and is_followed(declared)
        return self._pages.answer(
            request,
            "row.html",
            section="views",
            changes=Links(request)("views", declared.name, "changes", key=key) if follows else "",
            view=declared,
            key=key,
            column=column,
            row=row,
            generation=live.generation,
            found=None if shown is None else shown[-MAX_SHOWN:],
            hidden=0 if shown is None else max(0, len(shown) - MAX_SHOWN),
            folded=found[-1].after if found else None,
            is_folded=not declared.has_own_query,
            too_many=too_many,
            captured=list(declared.tables),
            log_events=await self._log_events() if found is None and not declared.has_own_query else 0,
        )

    async def _requested(self, request: Request, name: str) -> tuple[ServedView, str, str | None]:
        """The view of a request, the key of its row, and the column that is asked for; raises BadParameter."""
        plain = check_names(request.query_params.multi_items(), ("key", "column"))
        served = await self._views.view(name, caller_of(request))
        key, column = plain.get("key", ""), plain.get("column")
        check_text("key", key)
        if column is not None and column not in served.view.types:
            raise BadParameter("column", f'is no column of "{served.view.name}"', tuple(served.view.types))
        return served, key, column

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

    async def scan(self, request: Request, view: str) -> Response:
        """A page that grows while the log is read; leaving it ends the reading."""
        served, key, column = await self._requested(request, view)
        declared = served.view
        if declared.has_own_query:
            raise BadParameter("view", "is a stream view: Spark makes its rows, and no event alone tells which")
        row, live = await served.row(caller_of(request), key)
        total = await self._log_events()
        facts = {"section": "views", "view": declared, "key": key, "column": column, "row": row, "total": total}

        async def content() -> AsyncIterator[str]:
            try:
                async for change, done in self._scanned(request, declared, key):
                    if change is None:
                        yield self._pages.text(request, "scan_progress.html", done=done, total=max(total, done))
                    elif column is None or column in change.columns:
                        yield self._pages.text(request, "change.html", change=change, column=column, view=declared)
            except LogUnavailable as error:
                yield self._pages.text(request, "scan_ended.html", problem=str(error))

        return growing(self._pages.text(request, "scan.html", generation=live.generation, **facts), content())

    async def _scanned(self, request: Request, view: View, key: str) -> AsyncIterator[tuple[RowChange | None, int]]:
        """The changes of a row in the log, and how many offsets were read; None: only these."""
        folded, change_count = RowChanges(view, key), 0
        starts: Mapping[int, int] = {}
        event_filter = EventFilter(_types(view))
        caller, guard = caller_of(request), self._service.guard
        while change_count < MAX_FOUND:
            async with self._service.work.scans.place():
                page = await self._service.audit.page(starts, event_filter, SCAN_EVENTS)
            changes = await self._service.folding.run(_added, folded, page.events)
            if not guard.is_valid(caller):
                return
            for change in changes:
                change_count += 1
                yield change, 0
            starts = page.next_offsets
            yield None, sum(starts.values())
            if page.ended:
                return


def _folded(view: View, key: str, events: Sequence[Row]) -> list[RowChange]:
    """The changes of a row, by the events of its streams, in the order of their times."""
    ordered = sorted(events, key=lambda event: (event["time"], event["stream"], event["sequence"]))
    placed = [(Position(message["partition"], message["offset"]), message["record"].encode()) for message in ordered]
    return _added(RowChanges(view, key), placed)


def _added(changes_so_far: RowChanges, events: Sequence[tuple[Position, bytes]]) -> list[RowChange]:
    return [change for at, record in events if (change := changes_so_far.add(at, record)) is not None]


def _types(view: View) -> frozenset[str]:
    """The types of the events that a view handles; empty: all."""
    types = frozenset(name for cls in view.classes if issubclass(cls, Event | Observation) for name in types_of(cls))
    return types if all(view.handles(type_) for type_ in types) else frozenset()
