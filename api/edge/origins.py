"""Which websites a browser lets read the answers (CORS); this includes `EventSource`."""

from __future__ import annotations

from typing import Final

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from headwater.api import problems

METHODS: Final = ("GET", "HEAD", "POST")
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


class AllowedOrigins(CORSMiddleware):
    """Starlette's middleware, with the methods and headers of the API, and with problem documents. ASGI middleware."""

    def __init__(self, app: ASGIApp, origins: tuple[str, ...]) -> None:
        """origins: such as `https://shop.example.com`; `*` is any."""
        super().__init__(
            app,
            allow_origins=origins,
            allow_methods=METHODS,
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
