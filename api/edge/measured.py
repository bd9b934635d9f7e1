"""Counts requests, measures how long their answers took, traces them, and lets log lines name their traces."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headwater.api.metrics import METHODS, NO_ANSWER, NO_ROUTE, OTHER, REQUEST_SECONDS, REQUESTS
from headwater.api.requests.headers import SPAN, given_traceparent
from headwater.eventlog.programs.logs import about, trace_id_of
from headwater.eventlog.tracing.spans import received

UNTRACED: Final = ("/health/", "/metrics")
"""Paths that are polled."""
UNKNOWN_CALLER: Final = 401
"""What nobody may cause to be sent."""
FAILED: Final = 500
"""The first status that says that the server has failed."""


class Measured:
    """Counts every request by its route and the status of its answer. ASGI middleware.

    An answer without an end, such as that of a followed view, is measured up to its head.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, took_s = time.perf_counter(), 0, 0.0

        async def note(message: Message) -> None:
            nonlocal status, took_s
            if message["type"] == "http.response.start":
                status, took_s = message["status"], time.perf_counter() - began
            await send(message)

        method = scope["method"] if scope["method"] in METHODS else OTHER
        given = given_traceparent(Headers(scope=scope))
        span = None if scope["path"].startswith(UNTRACED) else received(method, given, {"http.request.method": method})
        if span is not None:
            scope[SPAN], given = span, span.traceparent
        try:
            with about(trace_id=trace_id_of(given)) if given else nullcontext():
                await self._app(scope, receive, note)
        finally:
            route = getattr(scope.get("route"), "path_format", NO_ROUTE)
            REQUESTS.labels(method, route, status or NO_ANSWER).inc()
            if status:
                REQUEST_SECONDS.labels(route).observe(took_s)
            if span is not None and status != UNKNOWN_CALLER:
                facts = {"http.route": route, "http.response.status_code": status}
                span.end(facts, name=f"{method} {route}", error="" if 0 < status < FAILED else str(status or NO_ANSWER))
