"""`/console/views`: all views; and `/console/views/{view}`: its generations and rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response

from headwater.api.console.pages import Links, Pages
from headwater.api.errors import ApiError, KeyOnly
from headwater.api.guard import needs
from headwater.api.guard.caller import caller_of
from headwater.api.made_views import is_served, made_view
from headwater.api.requests.filters import operators
from headwater.api.requests.parameters import check_no_query
from headwater.api.requests.query import every_column
from headwater.api.routes.changes import is_followed
from headwater.api.routes.views import Found, ViewRoutes
from headwater.api.service import Service
from headwater.projections.errors import GenerationMissing, UnknownView
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


class ShownViews:
    """The endpoints of all views, by name, also of those that are made at run time."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._declared = {name: ViewRoutes(service, view) for name, view in service.views.items()}

    async def routes(self, name: str) -> ViewRoutes:
        """The endpoints of a view; raises UnknownView or MadeEarlier."""
        if name in self._declared:
            return self._declared[name]
        made = await self._service.generations.made(fresh=True)
        if name not in made:
            raise UnknownView(name, (*self._declared, *made))
        return ViewRoutes(self._service, made_view(self._service, made[name]))

    async def all(self) -> list[View]:
        """All views by name."""
        made = await self._service.generations.made()
        served = [made_view(self._service, each) for each in made.values() if is_served(self._service, each)]
        return sorted((*self._service.views.values(), *served), key=lambda view: view.name)


@dataclass(frozen=True)
class Condition:
    """A filter of the page, as the HTTP API has it in a query string."""

    parameter: str
    value: str


def view_routes(router: APIRouter, pages: Pages, service: Service, views: ShownViews) -> None:
    """Add the list of views, and the page of each."""

    async def list_views(request: Request) -> Response:
        check_no_query(request)
        shown = [{"view": each, "generation": await _generation(service, each)} for each in await views.all()]
        return pages.answer(request, "views.html", section="views", views=shown)

    async def show(request: Request, view: str) -> Response:
        routes = await views.routes(view)
        parameters = _parameters(request)
        problem, found = "", None
        try:
            found = await _found(routes, request, parameters)
        except KeyOnly:
            problem = "Its store finds rows by key only."
        except (ApiError, GenerationMissing) as error:
            problem = str(error)
        follows = view in service.views and is_followed(routes.view)
        return pages.answer(
            request,
            "view.html",
            section="views",
            changes=Links(request)("views", view, "changes") if follows else "",
            **_facts(request, routes, found, parameters),
            problem=problem,
            commands=COMMANDS if view in service.views else {},
            generations=sorted(
                await service.overseer.generations(view), key=lambda each: each.generation, reverse=True
            ),
            stores=[store.name for store in routes.view.stores],
        )

    router.add_api_route("/console/views", list_views, methods=["GET"], dependencies=needs.operating())
    router.add_api_route("/console/views/{view:name}", show, methods=["GET"], dependencies=needs.operating())


async def _generation(service: Service, view: View) -> int | None:
    try:
        return (await service.generations.live(view)).generation
    except GenerationMissing:
        return None


def _parameters(request: Request) -> list[tuple[str, str]]:
    """The parameters of the HTTP API: those of the address, and the filter that the form adds."""
    given = request.query_params
    found = [(name, value) for name, value in given.multi_items() if name not in OWN and value != ""]
    if given.get("column") and given.get("value", "") != "":
        operator = given.get("operator") or "eq"
        found.append((given["column"] if operator == "eq" else f"{given['column']}.{operator}", given["value"]))
    return found


async def _found(routes: ViewRoutes, request: Request, parameters: Sequence[tuple[str, str]]) -> Found:
    """A page of rows; of a search, if words are given."""
    caller = caller_of(request)
    asked = (
        [*parameters] if any(name == "limit" for name, _ in parameters) else [*parameters, ("limit", str(PAGE_ROWS))]
    )
    if any(name == "q" for name, _ in parameters):
        return await routes.find_by_text(caller, asked)
    return await routes.find(caller, asked)


def _facts(
    request: Request, routes: ViewRoutes, found: Found | None, parameters: Sequence[tuple[str, str]]
) -> dict[str, Any]:
    view, path = routes.view, Links(request)("views", routes.view.name)

    def page(kept: Sequence[tuple[str, str]]) -> str:
        return f"{path}?{urlencode(kept)}" if kept else path

    filters = [each for each in parameters if each[0] not in ("cursor", "sort", "limit", "q", "count")]
    kept = [each for each in parameters if each[0] != "cursor"]
    sort = next((value for name, value in parameters if name == "sort"), "")
    return {
        "view": view,
        "columns": every_column(view),
        "numbers": {name for name, kind in view.types.items() if kind in NUMBERS or kind.is_decimal},
        "found": found,
        "filters": [(name, value, page([each for each in kept if each != (name, value)])) for name, value in filters],
        "kept": [each for each in kept if each[0] != "q"],
        "words": next((value for name, value in parameters if name == "q"), ""),
        "searches": routes.searcher is not None,
        "following": page([*kept, ("cursor", found.cursor)]) if found is not None and found.cursor else None,
        "first": page(kept) if any(name == "cursor" for name, _ in parameters) else None,
        "sorted_by": sort,
        "sorting": _sorting(view, page, kept, sort),
        "operators": {
            name: list(operators(kind))
            for name, kind in view.types.items()
            if operators(kind) and name not in view.personal
        },
        "all_operators": sorted({each for kind in view.types.values() for each in operators(kind)}),
    }


def _sorting(view: View, page: Any, kept: Sequence[tuple[str, str]], sort: str) -> Mapping[str, str]:
    """By column, where rows are sorted by it, or the other way round."""
    others = [each for each in kept if each[0] != "sort"]
    return {
        name: page([*others, ("sort", f"-{name}" if sort == name else name)])
        for name, kind in view.types.items()
        if "eq" in operators(kind) and name not in view.personal
    }
