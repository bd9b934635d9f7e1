"""What every request passes before its route: ASGI middlewares."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote_to_bytes

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headwater.api import problems
from headwater.api.errors import ApiError, BadHost, MalformedTarget, Unauthenticated, UnknownHost
from headwater.api.guard.caller import STATE, Caller
from headwater.api.guard.guard import HEADER, Guard, session_cookie
from headwater.api.guard.needs import CONSOLE, SIGN_IN, is_console
from headwater.api.limits import working_for
from headwater.api.requests.headers import SPAN, given_traceparent
from headwater.api.requests.parameters import NEWLINE, without_newlines
from headwater.api.settings import Hosts
from headwater.eventlog.programs.logs import about, trace_id_of
from headwater.eventlog.programs.metrics import counter, seconds
from headwater.eventlog.tracing.spans import received

if TYPE_CHECKING:
    from headwater.api.service import Service

NO_ROUTE: Final = "none"
"""In place of a path that no route has: whoever sends it chose it."""
METHODS: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"})
OTHER: Final = "other"
"""In place of another method, likewise."""
NO_ANSWER: Final = "none"
"""In place of a status, if the client left before it had one."""
REQUESTS: Final = counter("http_requests", "Requests that have ended.", ["method", "route", "status"])
REQUEST_SECONDS: Final = seconds("http_request_seconds", "From a request to the head of its answer.", ["route"])
HOST: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._~-]+)(?::[0-9]{0,5})?")
"""The header `Host` in lower case: a name or an address, and a port, which is not checked."""
NOT_ENCODED: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
UNTRACED: Final = ("/health/", "/metrics")
"""Paths that are polled."""
COOKIES: Final = b"cookie"
"""The header, which ends here: FastAPI parses it for every route, with a parser that takes a minute for a quoted value
of 60 kB in releases of Python that are in use."""
UNKNOWN_CALLER: Final = 401
"""What nobody may cause to be sent."""
FAILED: Final = 500
"""The first status that says that the server has failed."""
CACHING: Final = b"cache-control"
FILE_HEADER: Final = b"last-modified"
DEFAULT_HEADERS: Final = (
    (CACHING, b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"frame-ancestors 'none'"),
    (b"x-frame-options", b"DENY"),
)
CORS_METHODS: Final = ("GET", "HEAD", "POST")
REQUEST_HEADERS: Final = (
    "Authorization",
    "Idempotency-Key",
    "If-Match",
    "If-None-Match",
    "Last-Event-ID",
    "X-Correlation-ID",
    "X-Causation-ID",
    "traceparent",
)
ANSWER_HEADERS: Final = ("ETag", "Headwater-Generation", "Location", "Retry-After", "WWW-Authenticate")


class ServiceMetrics(Collector):
    """What the parts of a service do now."""

    def __init__(self, service: Service | None = None) -> None:
        """service: None: none is known, only the names of metrics are."""
        self._service = service

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        followers = GaugeMetricFamily("headwater_followers", "Clients that follow the changes of a view.")
        awaited = GaugeMetricFamily("headwater_receipts_awaited", "Commands that wait for their receipts.")
        if self._service is not None:
            followers.add_metric([], self._service.feeds.followers)
            awaited.add_metric([], self._service.gateway.awaited)
        yield followers
        yield awaited


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
        session, others = "", [header for header in scope["headers"] if header[0] != COOKIES]
        if len(others) < len(scope["headers"]):
            session, scope["headers"] = session_cookie(scope["headers"]), others
        limits = self._guard.limits
        if not (self._guard.needs_caller(_path(scope)) or self._guard.is_open):
            with working_for(""):
                await self._app(scope, receive, send)
            return
        with ExitStack() as admitted:
            try:
                caller = state[STATE] = await self._caller(scope, session)
                if limits.has_any and caller.name is not None:
                    admitted.enter_context(limits.admitted(caller.name))
            except ApiError as error:
                await _refuse(error, scope, receive, send)
                return
            # what was sent is done, and is answered; who only reads gets nothing that they may not have any more
            sending = self._while_valid(caller, scope, receive, send) if scope["method"] == "GET" else send
            with working_for(caller.name):
                await self._app(scope, receive, sending)

    def _while_valid(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> Send:
        """Sends the answer to a caller who is still valid when it begins; what follows its head looks for itself."""
        is_refused = False

        async def send_if_valid(message: Message) -> None:
            nonlocal is_refused
            if message["type"] == "http.response.start" and (refusal := self._guard.refusal(caller)) is not None:
                is_refused = True
                await _refuse(refusal, scope, receive, send)
            if not is_refused:
                await send(message)

        return send_if_valid

    async def _caller(self, scope: Scope, session: str) -> Caller:
        """Who sends the request; a session is one of the console, and not of the API. Raises ApiError."""
        headers = scope["headers"]
        if session and is_console(_path(scope)) and not self._guard.is_open:
            caller = None if any(name == HEADER for name, _ in headers) else self._guard.session(session)
            if caller is not None:
                return caller
        return await self._guard.caller(headers)


async def _refuse(error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer that the caller is not admitted: a person at a page of the console is sent to sign in."""
    shows_pages = any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])
    if isinstance(error, Unauthenticated) and is_console(_path(scope)) and shows_pages:
        wanted = CONSOLE
        if scope["method"] == "GET":  # after signing in, the page that was asked for
            query = scope["query_string"].decode("latin-1")
            wanted = f"{quote(_path(scope))}?{query}" if query else quote(_path(scope))
        target = f"{scope.get('root_path') or ''}{SIGN_IN}?next={quote(wanted, safe='/')}"
        await RedirectResponse(target, 303)(scope, receive, send)
    else:
        await problems.answer(error, scope, receive, send)


def _path(scope: Scope) -> str:
    """The path as routes match it: without the prefix that a proxy adds."""
    path, prefix = str(scope["path"]), str(scope.get("root_path") or "")
    return path.removeprefix(prefix) if prefix and path.startswith(f"{prefix}/") else path


class Measured:
    """Counts every request by its route and the status of its answer. ASGI middleware.

    It gives answers the headers with which nobody keeps them or shows them in a frame, unless they have their own.

    An answer without an end, such as that of a followed view, is measured up to its head.
    """

    def __init__(self, app: ASGIApp, declared: Mapping[str, Collection[str]]) -> None:
        """declared: by the parameter of a general route, the names that a measured route has in its place."""
        self._app, self._declared = app, declared

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
                names = {name for name, _ in message["headers"]}
                has_own = names | {CACHING} if FILE_HEADER in names else names  # files are the same for everybody
                defaults = [header for header in DEFAULT_HEADERS if header[0] not in has_own]
                message["headers"] = [*message["headers"], *defaults]
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
            for name, value in scope.get("path_params", {}).items():
                if value in self._declared.get(name, ()) and not is_console(route):
                    route = route.replace(f"{{{name}}}", value)
            REQUESTS.labels(method, route, status or NO_ANSWER).inc()
            if status:
                REQUEST_SECONDS.labels(route).observe(took_s)
            if span is not None and status != UNKNOWN_CALLER:
                facts = {"http.route": route, "http.response.status_code": status}
                span.end(facts, name=f"{method} {route}", error="" if 0 < status < FAILED else str(status or NO_ANSWER))


class AllowedOrigins(CORSMiddleware):
    """Starlette's middleware, with the methods and headers of the API, and with problem documents. ASGI middleware."""

    def __init__(self, app: ASGIApp, origins: tuple[str, ...]) -> None:
        """origins: such as `https://shop.example.com`; `*` is any."""
        super().__init__(
            app,
            allow_origins=origins,
            allow_methods=CORS_METHODS,
            allow_headers=REQUEST_HEADERS,
            expose_headers=ANSWER_HEADERS,
            # browsers ask for it before a website reaches an address of this machine or of its network
            allow_private_network=True,
        )

    def preflight_response(self, request_headers: Headers) -> Response:
        """The answer to the question of a browser whether it may send a request."""
        answer = super().preflight_response(request_headers)
        if answer.status_code < 400:
            return answer
        reason = bytes(answer.body).decode().lower()
        return _Refused(reason, {name: text for name, text in answer.headers.items() if name.startswith("access-")})


class _Refused(Response):
    """A problem document, which needs the path of the request."""

    def __init__(self, reason: str, headers: dict[str, str]) -> None:
        super().__init__(status_code=400)
        self._reason, self._allowed = reason, headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as ASGI."""
        answer = problems.problem_response(
            Request(scope), 400, "cross_origin", "The browser may not send this request",
            f"{self._reason}: see HEADWATER_API_ORIGINS", {},
        )  # fmt: skip
        answer.headers.update(self._allowed)
        await answer(scope, receive, send)


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
