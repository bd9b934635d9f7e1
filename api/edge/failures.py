"""Errors that nobody expected: an answer, and a connection that can be used again."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headwater.api import problems


class Failures:
    """Answers every error that has no handler with 500. ASGI middleware.

    Starlette's own raises the error again, and the server then closes the connection without `Connection: close`: the
    next request of a client on it is reset. After the head of an answer, only that can end it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as ASGI."""
        started = False

        async def note(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, note)
        except Exception as error:
            if scope["type"] != "http" or started:
                raise
            await problems.answer(error, scope, receive, send)
