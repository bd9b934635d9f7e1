"""Counts requests, measures how long their answers took, and lets log lines name their traces."""

from __future__ import annotations

import time
from contextlib import nullcontext

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.metrics import METHODS, NO_ANSWER, NO_ROUTE, OTHER, REQUEST_SECONDS, REQUESTS
from eventlog.programs.logs import about, trace_id_of


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
        traceparent = next((value for name, value in scope["headers"] if name == b"traceparent"), b"")
        try:
            with about(trace_id=trace_id_of(traceparent.decode("latin-1"))) if traceparent else nullcontext():
                await self._app(scope, receive, note)
        finally:
            route = getattr(scope.get("route"), "path_format", NO_ROUTE)
            REQUESTS.labels(method, route, status or NO_ANSWER).inc()
            if status:
                REQUEST_SECONDS.labels(route).observe(took_s)
