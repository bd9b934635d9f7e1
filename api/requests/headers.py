"""Reads and checks the headers of a request: conditions, command id, tracing."""

from __future__ import annotations

import re
from typing import Final

from fastapi import Request
from starlette.datastructures import Headers
from starlette.types import Scope

from headwater.api.errors import BadHeader
from headwater.eventlog.tracing.spans import TRACEPARENT, Span

VERSION_TAG: Final = re.compile(r'"(0|[1-9][0-9]{0,17})"')
VISIBLE: Final = re.compile(r"[\x21-\x7e]{1,255}")
SPAN: Final = "headwater.span"
"""Where the scope of a request has its span, if it has one."""


def expected_version(request: Request) -> int | None:
    """The version of `If-Match: "7"`, 0 for `If-None-Match: *`, None if neither is given; raises BadHeader."""
    match, none_match = header(request, "If-Match"), header(request, "If-None-Match")
    if match is not None and none_match is not None:
        raise BadHeader("If-Match", "and If-None-Match cannot be combined: send one")
    if none_match is not None:
        if none_match.strip() != "*":
            raise BadHeader("If-None-Match", 'accepts only *, for "must not exist": use If-Match for a version')
        return 0
    if match is None:
        return None
    version = VERSION_TAG.fullmatch(match.strip())
    if version is None:
        raise BadHeader("If-Match", 'must be one version in quotes, such as "7"')
    return int(version[1])


def idempotency_key(request: Request) -> str | None:
    """The command id that the client chose; raises BadHeader."""
    return _visible(request, "Idempotency-Key")


def correlation_id(request: Request) -> str | None:
    """The id that this request shares with related requests; raises BadHeader."""
    return _visible(request, "X-Correlation-ID")


def causation_id(request: Request) -> str | None:
    """The event or command that caused this request; raises BadHeader."""
    return _visible(request, "X-Causation-ID")


def is_traceparent(text: str | None) -> bool:
    """Whether it is a W3C trace context."""
    return text is not None and TRACEPARENT.fullmatch(text) is not None


def given_traceparent(found: Headers) -> str | None:
    """The W3C trace context of the caller; a malformed one is ignored, as the recommendation says."""
    values = found.getlist("traceparent")
    return values[0] if len(values) == 1 and is_traceparent(values[0]) else None


def span_of(scope: Scope) -> Span | None:
    """The span of a request; None if its trace is not sampled."""
    span: Span | None = scope.get(SPAN)
    return span


def traceparent(request: Request) -> str | None:
    """The W3C trace context of what follows from a request: that of its span, else the caller's."""
    span = span_of(request.scope)
    return given_traceparent(request.headers) if span is None else span.traceparent


def header(request: Request, name: str) -> str | None:
    """The header's one value; raises BadHeader if it is given twice."""
    values = request.headers.getlist(name)
    if len(values) > 1:
        raise BadHeader(name, "is given more than once: give it once")
    return values[0] if values else None


def check_of_one_command(request: Request, instead: str) -> None:
    """Refuse headers about one command on a path that takes many; raises BadHeader. instead: what a line has."""
    for name in ("Idempotency-Key", "If-Match", "If-None-Match"):
        if name in request.headers:
            raise BadHeader(name, f"is about one command, but this path takes many lines: {instead}")


def _visible(request: Request, name: str) -> str | None:
    value = header(request, name)
    if value is not None and not VISIBLE.fullmatch(value):
        raise BadHeader(name, "must be 1 to 255 visible ASCII characters, without spaces")
    return value
