"""Pages of actions: what a verb would do, the command that does the same in a shell, and how far it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from starlette.exceptions import HTTPException

from headwater.api.console.actions import Actions, shown_command
from headwater.api.console.pages import HEADERS, Links, Pages
from headwater.api.console.requests import read_own_form
from headwater.api.console.view_lists import ShownViews
from headwater.api.errors import NotInstalledHere
from headwater.api.guard import needs
from headwater.api.guard.caller import caller_of
from headwater.api.requests.parameters import check_no_query
from headwater.api.service import Service
from headwater.projections.errors import GenerationMissing, UnknownView
from headwater.projections.generations.registry.generation import previous
from headwater.projections.view import View

POLL_S: Final = 1


@dataclass(frozen=True)
class Verb:
    """A verb of `replay` about one view. meaning: what it does. dry_run: words for only saying what."""

    name: str
    title: str
    meaning: str
    dry_run: Sequence[str] = ()


VERBS: Final = (
    Verb(
        "rebuild",
        "Rebuild",
        "Builds a new generation from the whole log and swaps it with the live one. Queries and live updates continue, "
        "and the previous generation is kept.",
        ("--dry-run",),
    ),
    Verb(
        "verify",
        "Verify",
        "Rebuilds the view aside, compares every row with the live generation, and drops the rebuild: it changes "
        "nothing.",
    ),
    Verb(
        "rollback",
        "Roll back",
        "Makes the previous generation live again, after it has applied the patches that it misses. A second rollback "
        "undoes the first.",
    ),
)


def acting_routes(router: APIRouter, pages: Pages, service: Service, views: ShownViews, actions: Actions) -> None:
    """Add the pages of the actions on a view, and the page of a running action."""

    def asking(verb: Verb) -> Callable[[Request, str], Awaitable[Response]]:
        async def ask(request: Request, view: str) -> Response:
            check_no_query(request)
            declared = await _declared(views, service, view)
            words = ("replay", verb.name, declared)
            planned = ""
            if verb.dry_run and not actions.missing:
                planned = await actions.dry_run((*words, *verb.dry_run))
            return pages.answer(
                request,
                "act.html",
                section="views",
                view=declared,
                verb=verb,
                command=shown_command(words),
                planned=planned or await _planned(service, verb, service.views[declared]),
                missing=actions.missing,
            )

        return ask

    def acting(verb: Verb) -> Callable[[Request, str], Awaitable[Response]]:
        async def act(request: Request, view: str) -> Response:
            await read_own_form(request, pages)
            declared = await _declared(views, service, view)
            return start(request, actions, ("replay", verb.name, declared))

        return act

    async def show(request: Request, action_id: str) -> Response:
        action = actions.get(action_id)
        if action is None:
            raise HTTPException(404)
        running = action.exit_code is None
        view = action.words[-1]
        rebuilds = [each for each in await service.overseer.rebuilds() if each.view == view] if running else []
        return pages.answer(
            request,
            "action.html",
            section="audit",
            refresh_s=POLL_S if running else 0,
            action=action,
            progress=rebuilds[0] if rebuilds else None,
        )

    for verb in VERBS:
        path = f"/console/views/{{view:name}}/{verb.name}"
        router.add_api_route(path, asking(verb), methods=["GET"], dependencies=needs.operating())
        router.add_api_route(path, acting(verb), methods=["POST"], dependencies=needs.operating())
    router.add_api_route("/console/actions/{action_id:name}", show, methods=["GET"], dependencies=needs.operating())


def start(request: Request, actions: Actions, words: Sequence[str]) -> Response:
    """Start an action and show its page; raises NotInstalledHere or Overloaded."""
    if actions.missing:
        raise NotInstalledHere(shown_command(words), actions.missing)
    action = actions.start(words, caller_of(request).name)
    return RedirectResponse(Links(request.scope.get("root_path") or "")("actions", action.id), 303, HEADERS)


async def _declared(views: ShownViews, service: Service, view: str) -> str:
    """The name of a declared view; views that were made with --as never change."""
    routes = await views.routes(view)
    if routes.view.name not in service.views:
        raise UnknownView(view, tuple(service.views))
    return routes.view.name


async def _planned(service: Service, verb: Verb, view: View) -> str:
    """What a verb would do, as far as the registry of generations tells."""
    try:
        live = (await service.generations.live(view, fresh=True)).generation
    except GenerationMissing:
        return "No generation is live."
    if verb.name != "rollback":
        return f"The live generation is {live}."
    before, others = previous(view, await service.overseer.generations(view.name), live)
    if before is not None:
        made = f"{before.created_at:%Y-%m-%d %H:%M:%S} UTC"
        return f"Generation {before.generation}, made at {made}, takes the place of generation {live}."
    kept = ", ".join(f"{each.generation} ({each.tag})" for each in others)
    why = f"the others ({kept}) have another declaration" if others else "no other one is kept"
    return f"The live generation is {live}, and {why}: there is nothing to go back to."
