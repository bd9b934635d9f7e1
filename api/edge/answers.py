"""Answers that routes do not give: to HEAD, and after an error that nobody expected."""

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


class Heads:
    """Answers HEAD for every path with GET. ASGI middleware.

    The application takes it for GET. The answer is complete with its head, so that the server tells the application
    that the client has left: an answer without an end, such as that of a followed view, ends too.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as ASGI."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def send_head(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body", "body": b"", "more_body": False})

        await self._app({**scope, "method": "GET"}, receive, send_head)
