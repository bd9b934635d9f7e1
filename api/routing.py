"""Routes: each asks what its caller may do, and the work of one that only reads ends when its client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from headwater.api.guard.needs import need_of

Answer = TypeVar("Answer")


class GuardedRoute(APIRoute):
    """A route that asks for its need, and passes the parameters of its path as they are.

    FastAPI would resolve dependencies and validate parameters, which costs as much as all else of a short request, and
    no route has others: they read their own query parameters and bodies.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Ask for the need, then run the endpoint."""
        need, endpoint = need_of(self), self.endpoint

        async def handle(request: Request) -> Response:
            if need is not None:
                await need(request)
            answer: Response = await endpoint(request, **request.path_params)
            return answer

        return handle


class ReadingRoute(GuardedRoute):
    """A route without a body, whose endpoint is cancelled when its client leaves: uvicorn and FastAPI let it run on."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Watch the connection while the endpoint runs."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await while_connected(request, handler(request))

        return handle


def router_of(tag: str = "", route_class: type[APIRoute] = GuardedRoute, **options: Any) -> APIRouter:
    """An empty router. tag: of its routes in the documentation, where each has the name of its function."""
    return APIRouter(
        tags=[tag] if tag else None,
        route_class=route_class,
        generate_unique_id_function=lambda route: route.name,
        **options,
    )


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
