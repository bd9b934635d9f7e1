"""Reads and checks the parts of a request: body, conditions, command id, tracing."""

from __future__ import annotations

import asyncio
import re
from typing import Final
from urllib.parse import quote

import orjson
from fastapi import Request

from api.bodies import check_values
from api.errors import BadHeader, BadParameter, BodyIncomplete, MalformedJson, UnsupportedMedia
from api.settings import Limits
from commands.errors import TooLarge

VERSION_TAG: Final = re.compile(r'"(0|[1-9][0-9]{0,17})"')
VISIBLE: Final = re.compile(r"[\x21-\x7e]{1,255}")
TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
UNRESERVED: Final = re.compile(r"[A-Za-z0-9_.~/-]*")
ENCODED: Final = re.compile(r"(?:[A-Za-z0-9_.~-]|%[0-9A-F]{2})+")
"""A part of an id of several parts."""
DOTS: Final = frozenset({".", ".."})
"""Parts that clients resolve before they send a path, also if they are percent-encoded."""
JSON_TYPE: Final = re.compile(r"application/(?:[a-z0-9.-]+\+)?json")


async def read_json(request: Request, limits: Limits) -> bytes:
    """The body, as it is; stops reading at the limit. Check it with `check_json`.

    Raises UnsupportedMedia, TooLarge or BodyIncomplete.
    """
    check_media(request)
    try:
        async with asyncio.timeout(limits.body_s):
            return await _read(request, limits.body_bytes)
    except TimeoutError as error:
        raise BodyIncomplete(limits.body_s) from error


def check_json(request: Request, body: bytes, limits: Limits) -> None:
    """Refuse a body that is not JSON, or has too many values.

    Its value is kept in the request's state, so that a problem document can point to invalid places. Raises
    MalformedJson or TooComplex.
    """
    check_values(body, limits.body_values)
    try:
        request.state.body = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise MalformedJson(error.msg, error.lineno, error.colno) from error


def check_media(request: Request, expected: str = "application/json") -> None:
    """Refuse a body with another media type than `expected`, in another encoding than UTF-8, or compressed.

    Raises UnsupportedMedia.
    """
    media, _, parameters = request.headers.get("content-type", "").lower().partition(";")
    media = media.strip()
    if not (JSON_TYPE.fullmatch(media) if expected == "application/json" else media == expected):
        raise UnsupportedMedia(media or "without a content type", expected)
    charset = re.search(r"charset=\"?([^\s\";]+)", parameters)
    if charset is not None and charset[1] not in ("utf-8", "utf8"):
        raise UnsupportedMedia(f"{media} in {charset[1]}", f"{expected} in utf-8")
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise UnsupportedMedia(f"compressed with {encoding}", expected)


async def _read(request: Request, limit_bytes: int) -> bytes:
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length[:19]) > limit_bytes:
        raise TooLarge(int(length[:19]), limit_bytes)
    chunks, size_bytes = [], 0
    async for chunk in request.stream():
        size_bytes += len(chunk)
        if size_bytes > limit_bytes:
            raise TooLarge(size_bytes, limit_bytes)
        chunks.append(chunk)
    return b"".join(chunks)


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


def traceparent(request: Request) -> str | None:
    """The W3C trace context; a malformed one is ignored, as the recommendation says."""
    values = request.headers.getlist("traceparent")
    return values[0] if len(values) == 1 and is_traceparent(values[0]) else None


def header(request: Request, name: str) -> str | None:
    """The header's one value; raises BadHeader if it is given twice."""
    values = request.headers.getlist(name)
    if len(values) > 1:
        raise BadHeader(name, "is given more than once: give it once")
    return values[0] if values else None


def stream_link(stream: str) -> str:
    """The path of a stream, also of one whose id cannot be part of a path."""
    aggregate, _, aggregate_id = stream.partition("/")
    if aggregate_id in DOTS:
        return f"/streams?stream={quote(stream, safe='/')}"
    parts = aggregate_id.split("/")
    if len(parts) > 1 and all(ENCODED.fullmatch(each) and each not in DOTS for each in parts):
        # its slashes need not be encoded, which some proxies do not let pass
        return "/streams/" + "/".join(quote(each, safe="") for each in (aggregate, *parts))
    return link("streams", aggregate, aggregate_id)


def receipt_link(command_id: str) -> str:
    """The path of a receipt, also of one whose command id cannot be part of a path."""
    if command_id in DOTS:
        return f"/receipts?command_id={command_id}"
    return link("receipts", command_id)


def link(*parts: str) -> str:
    """A path of these parts, percent-encoded if necessary."""
    path = "/" + "/".join(parts)
    # most paths need no quoting, which costs more than the rest of an answer
    if UNRESERVED.fullmatch(path) and path.count("/") == len(parts):
        return path
    return "".join("/" + quote(part, safe="") for part in parts)


def quoted(value: str) -> str:
    """The value of a query parameter, percent-encoded if necessary."""
    return value if UNRESERVED.fullmatch(value) else quote(value)


def check_no_query(request: Request) -> None:
    """Refuse query parameters if a path has none, so that a mistake is not silently ignored."""
    for name in request.query_params:
        raise BadParameter(name, "is not a parameter here: this path has no query parameters")


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
