"""Every request has a known caller, before its path is looked at."""

from __future__ import annotations

from contextlib import ExitStack
from urllib.parse import quote

from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from headwater.api import problems
from headwater.api.errors import ApiError, Unauthenticated
from headwater.api.guard.caller import STATE, Caller
from headwater.api.guard.guard import COOKIE, HEADER, Guard
from headwater.api.guard.needs import CONSOLE, SIGN_IN, is_console


class KnownCallers:
    """Refuses requests whose caller is not known or has too many, and notes the caller of others in the state.

    A browser that shows the console has a signed cookie instead of a key; without one, it is sent to the page for
    signing in.
    ASGI middleware. What a caller may do, the routes say (`api.guard.needs`).
    """

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app, self._guard = app, guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as ASGI; a protocol other than HTTP is not served."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        state = dict(scope.get("state") or {})
        state.pop(STATE, None)
        scope["state"] = state
        limits = self._guard.limits
        if not (self._guard.needs_caller(_path(scope)) or self._guard.is_open):
            await self._app(scope, receive, send)
            return
        with ExitStack() as admitted:
            try:
                caller = state[STATE] = await self._caller(scope)
                if limits.has_any and caller.name is not None:
                    admitted.enter_context(limits.admitted(caller.name))
            except ApiError as error:
                if isinstance(error, Unauthenticated) and is_console(_path(scope)) and _shows_pages(scope):
                    await RedirectResponse(_sign_in(scope), 303)(scope, receive, send)
                else:
                    await problems.answer(error, scope, receive, send)
                return
            await self._app(scope, receive, send)

    async def _caller(self, scope: Scope) -> Caller:
        """Who sends the request; a session is one of the console, and not of the API. Raises ApiError."""
        headers = scope["headers"]
        if is_console(_path(scope)) and not self._guard.is_open and all(name != HEADER for name, _ in headers):
            caller = self._guard.session(HTTPConnection(scope).cookies.get(COOKIE, ""))
            if caller is not None:
                return caller
        return await self._guard.caller(headers)


def _shows_pages(scope: Scope) -> bool:
    """Whether the client shows pages to a person."""
    return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])


def _sign_in(scope: Scope) -> str:
    """Where to sign in, and from there to the page that was asked for."""
    page = _path(scope) if scope["method"] == "GET" else CONSOLE
    query = scope["query_string"].decode("latin-1") if scope["method"] == "GET" else ""
    wanted = f"{quote(page)}?{query}" if query else quote(page)
    return f"{scope.get('root_path') or ''}{SIGN_IN}?next={quote(wanted, safe='/')}"


def _path(scope: Scope) -> str:
    """The path as routes match it: without the prefix that a proxy adds."""
    path, prefix = str(scope["path"]), str(scope.get("root_path") or "")
    return path.removeprefix(prefix) if prefix and path.startswith(f"{prefix}/") else path
