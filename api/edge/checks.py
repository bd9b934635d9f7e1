"""Requests that are refused before their path is looked at: to other hosts, and with a malformed path or query."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Receive, Scope, Send

from headwater.api import problems
from headwater.api.errors import BadHost, MalformedTarget, UnknownHost
from headwater.api.hosts import Hosts
from headwater.api.requests.newlines import NEWLINE, without_newlines

HOST: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._~-]+)(?::[0-9]{0,5})?")
"""The header `Host` in lower case: a name or an address, and a port, which is not checked."""
NOT_ENCODED: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")


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


class CheckedTargets:
    """Refuses paths and queries that are not percent-encoded UTF-8, instead of matching U+FFFD. ASGI middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as ASGI."""
        if scope["type"] == "http":
            for part, sent in (("path", scope.get("raw_path") or b""), ("query", scope["query_string"])):
                if (problem := _problem(sent)) is not None:
                    await problems.answer(MalformedTarget(part, problem), scope, receive, send)
                    return
            if NEWLINE in scope["path"]:
                scope = {**scope, "path": without_newlines(scope["path"])}
        await self._app(scope, receive, send)


def _problem(sent: bytes) -> str | None:
    if not sent.isascii():
        return "has characters that are not ASCII: percent-encode them as UTF-8"
    if b"%" not in sent:
        return None
    if NOT_ENCODED.search(sent):
        return 'has a "%" without two hexadecimal digits: write %25 for a percent sign'
    try:
        unquote_to_bytes(sent).decode()
    except UnicodeDecodeError:
        return "is not UTF-8 once it is decoded: percent-encode UTF-8"
    return None
