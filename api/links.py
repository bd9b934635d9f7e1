"""Paths of the API in its answers, percent-encoded if necessary."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

UNRESERVED: Final = re.compile(r"[A-Za-z0-9_.~/-]*")
ENCODED: Final = re.compile(r"(?:[A-Za-z0-9_.~-]|%[0-9A-F]{2})+")
"""A part of an id of several parts."""
DOTS: Final = frozenset({".", ".."})
"""Parts that clients resolve before they send a path, also if they are percent-encoded."""


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


def receipt_link(command_id: str, stream: str) -> str:
    """The path of a receipt, also of one whose command id cannot be part of a path."""
    if command_id in DOTS:
        return f"/receipts?command_id={command_id}&stream={quoted(stream)}"
    return f"{link('receipts', command_id)}?stream={quoted(stream)}"


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
