"""All routes of the console, and signing in: a person sends an API key or token once, and then has a signed cookie."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from starlette.exceptions import HTTPException

from headwater.api import problems
from headwater.api.console.operations import audit_routes, letter_routes, now_routes, shared_look, source_routes
from headwater.api.console.pages import HEADERS, Links, Pages, assets
from headwater.api.console.processes import process_routes
from headwater.api.console.streams import stream_routes
from headwater.api.console.views import row_routes, view_routes
from headwater.api.errors import BadParameter, Forbidden, ForgedRequest, Unauthenticated, UnsupportedMedia
from headwater.api.guard import needs
from headwater.api.guard.guard import COOKIE, HEADER, SESSION_S
from headwater.api.guard.needs import ASSETS, CONSOLE, SIGN_IN, is_console
from headwater.api.problems import meaning_of
from headwater.api.requests.body import read_body
from headwater.api.requests.parameters import check_names
from headwater.api.routing import GuardedRoute, router_of, while_connected
from headwater.api.served_views import ServedViews
from headwater.api.service import Service

SIGN_OUT: Final = f"{CONSOLE}/sign-out"
FORM: Final = "application/x-www-form-urlencoded"
MAX_FORM_BYTES: Final = 64 * 1024
MAX_FIELDS: Final = 200
FOR_EVER: Final = "public, max-age=31536000, immutable"


def signing_in_routes(router: APIRouter, pages: Pages, service: Service) -> None:
    """Add the pages for signing in and out, and the files that all pages need."""
    guard = service.guard

    async def ask(request: Request) -> Response:
        plain = check_names(request.query_params.multi_items(), ("next",))
        if guard.is_open:
            return _redirect(request, "")
        return pages.answer(request, "sign_in.html", next=plain.get("next", ""), problem="")

    async def sign_in(request: Request) -> Response:
        check_same_site(request)
        form = await read_form(service, request)
        if guard.is_open:
            return _redirect(request, "")
        wanted = form.get("next", "")
        try:
            # as a header, so that there is one way to read keys and tokens
            secret = form.get("key", "").strip().encode("latin-1", errors="replace")
            caller = await guard.caller([(HEADER, b"Bearer " + secret)])
            caller.must("operate", "*")
            session = guard.begin_session(caller)
        except Unauthenticated as error:
            return pages.answer(request, "sign_in.html", 401, next=wanted, problem=str(error))
        except Forbidden as error:
            return pages.answer(request, "sign_in.html", 403, next=wanted, problem=str(error))
        answer = _redirect(request, wanted)
        answer.set_cookie(
            COOKIE,
            session,
            max_age=SESSION_S,
            path=Links(request)(),
            secure=request.url.scheme == "https" or (request.headers.get("origin") or "").startswith("https://"),
            httponly=True,
            samesite="strict",
        )
        return answer

    async def sign_out(request: Request) -> Response:  # another website cannot send the cookie, so it signs nobody out
        answer = RedirectResponse(Links(request)("sign-in"), 303, HEADERS)
        answer.delete_cookie(COOKIE, path=Links(request)())
        return answer

    async def read_asset(request: Request, asset: str) -> Response:
        asset_file = assets().get(asset)
        if asset_file is None:
            raise HTTPException(404)
        fresh = request.query_params.get("v") == asset_file.version
        headers = HEADERS | {"Cache-Control": FOR_EVER if fresh else "no-cache"}
        return Response(asset_file.content, media_type=asset_file.media_type, headers=headers)

    router.add_api_route(SIGN_IN, ask, methods=["GET"])
    router.add_api_route(SIGN_IN, sign_in, methods=["POST"])
    router.add_api_route(SIGN_OUT, sign_out, methods=["POST"], dependencies=needs.operating())
    router.add_api_route(ASSETS, read_asset, methods=["GET"])


def _redirect(request: Request, wanted: str) -> RedirectResponse:
    """To the page of the console that was wanted before, and to no other site."""
    path = wanted.partition("?")[0]
    inside = is_console(path) and ".." not in path and "\\" not in path and wanted.isprintable()
    return RedirectResponse(Links(request)() + (wanted.removeprefix(CONSOLE) if inside else ""), 303, HEADERS)


async def read_form(service: Service, request: Request) -> Mapping[str, str]:
    """The fields of a form; the last one of a name counts.

    Raises UnsupportedMedia, BadParameter, TooLarge, BodyIncomplete or Overloaded.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in (FORM, ""):
        raise UnsupportedMedia(media_type, FORM)
    async with service.work.bodies.place() as place:
        content = await read_body(request, service.limits.body_s, MAX_FORM_BYTES, place)
    try:
        return dict(parse_qsl(content.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS))
    except ValueError as error:
        raise BadParameter("form", f"is not a form: {error}") from error


def check_same_site(request: Request) -> None:
    """Raise ForgedRequest unless a page of this host sent the request, as far as the browser says it."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is None and origin is None:
        raise ForgedRequest("it does not say which website sent it: use a current browser")
    if site is not None:  # no website can set it, and it is right also behind a proxy that changes the host
        is_own = site == "same-origin"
    else:  # browsers do not send it to addresses of other machines without TLS
        is_own = urlsplit(origin or "").netloc.lower() == request.headers.get("host", "").lower()
    if not is_own:
        raise ForgedRequest("another website sent it")


def console_routes(service: Service, views: ServedViews) -> APIRouter:
    """The routes of one service."""
    pages = Pages(service)
    router = router_of(route_class=page_route(pages), include_in_schema=False)
    signing_in_routes(router, pages, service)
    now_routes(router, pages, shared_look(lambda: service.overseer))
    stream_routes(router, pages, service)
    view_routes(router, pages, service, views)
    row_routes(router, pages, service, views)
    process_routes(router, pages, service)
    source_routes(router, pages, service)
    letter_routes(router, pages, service)
    audit_routes(router, pages, service)
    return router


def page_route(pages: Pages) -> type[GuardedRoute]:
    """A kind of route whose errors are pages, for clients that show pages; others get problem documents."""

    class PageRoute(GuardedRoute):
        """Such a route; the work of one that only reads ends when its client leaves."""

        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handler = super().get_route_handler()
            reads = "GET" in (self.methods or ())

            async def handle(request: Request) -> Response:
                try:
                    return await (while_connected(request, handler(request)) if reads else handler(request))
                except problems.KNOWN as error:
                    if "text/html" not in request.headers.get("accept", ""):
                        raise
                    meaning = meaning_of(error)
                    facts = {"title": meaning.title, "detail": problems.shown(error)}
                    return pages.answer(request, "error.html", meaning.status, **facts)

            return handle

    return PageRoute
