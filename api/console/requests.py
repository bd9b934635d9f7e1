"""Requests of browsers: routes whose errors are pages, and forms that no other website can send."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from fastapi import Request, Response
from fastapi.routing import APIRoute

from headwater.api import problems
from headwater.api.console.pages import Pages
from headwater.api.errors import BadParameter, ForgedRequest, UnsupportedMedia
from headwater.api.meanings import meaning_of
from headwater.api.requests.leaving import while_connected

FORM: Final = "application/x-www-form-urlencoded"
MAX_FORM_BYTES: Final = 64 * 1024
MAX_FIELDS: Final = 200

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def page_route(pages: Pages) -> type[APIRoute]:
    """A kind of route whose errors are pages, for clients that show pages; others get problem documents."""

    class PageRoute(APIRoute):
        """Such a route; the work of one that only reads ends when its client leaves."""

        def get_route_handler(self) -> Handler:
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


async def read_form(request: Request) -> Mapping[str, str]:
    """The fields of a form; the last one of a name counts. Raises UnsupportedMedia or BadParameter."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in (FORM, ""):
        raise UnsupportedMedia(media_type, FORM)
    content = b""
    async for chunk in request.stream():
        content += chunk
        if len(content) > MAX_FORM_BYTES:
            raise BadParameter("form", f"has more than {MAX_FORM_BYTES} bytes")
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
