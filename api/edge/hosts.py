"""Requests to other hosts than those of the API are refused."""

from __future__ import annotations

import re
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from headwater.api import problems
from headwater.api.errors import BadHost, UnknownHost
from headwater.api.hosts import Hosts

HOST: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._~-]+)(?::[0-9]{0,5})?")
"""The header `Host` in lower case: a name or an address, and a port, which is not checked."""


class CheckedHosts:
    """Refuses requests to other hosts. ASGI middleware."""

    def __init__(self, app: ASGIApp, hosts: Hosts) -> None:
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = [value.decode("latin-1").lower() for name, value in scope["headers"] if name == b"host"]
        if len(given) != 1:
            await problems.answer(BadHost(f"is given {len(given)} times"), scope, receive, send)
        elif (host := HOST.fullmatch(given[0])) is None:
            await problems.answer(BadHost("is not a name or an address with a port"), scope, receive, send)
        elif not self._hosts.has(host[1]):
            await problems.answer(UnknownHost(host[1]), scope, receive, send)
        else:
            await self._app(scope, receive, send)
