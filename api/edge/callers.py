"""Every request has a known caller, before its path is looked at."""

from __future__ import annotations

from contextlib import ExitStack

from starlette.types import ASGIApp, Receive, Scope, Send

from api import problems
from api.errors import ApiError
from api.guard.caller import STATE
from api.guard.guard import Guard


class KnownCallers:
    """Refuses requests whose caller is not known or has too many, and notes the caller of others in the state.

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
                caller = state[STATE] = await self._guard.caller(scope["headers"])
                if limits.has_any and caller.name is not None:
                    admitted.enter_context(limits.admitted(caller.name))
            except ApiError as error:
                await problems.answer(error, scope, receive, send)
                return
            await self._app(scope, receive, send)


def _path(scope: Scope) -> str:
    """The path as routes match it: without the prefix that a proxy adds."""
    path, prefix = str(scope["path"]), str(scope.get("root_path") or "")
    return path.removeprefix(prefix) if prefix and path.startswith(f"{prefix}/") else path
