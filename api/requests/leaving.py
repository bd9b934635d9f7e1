"""Ends the work of a request when its client leaves: uvicorn and FastAPI let it run to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect
from starlette.types import Receive

Answer = TypeVar("Answer")


class ReadingRoute(APIRoute):
    """A route without a body, whose endpoint is cancelled when its client leaves."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Watch the connection while the endpoint runs."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await while_connected(request, handler(request))

        return handle


async def while_connected(request: Request, work: Coroutine[Any, Any, Answer]) -> Answer:
    """The result of `work`; if the client leaves, it is cancelled and ClientDisconnect is raised.

    request: one whose body was read, or that has none.
    """
    working, leaving = asyncio.create_task(work), asyncio.create_task(left(request.receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def left(receive: Receive) -> None:
    """Return when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
