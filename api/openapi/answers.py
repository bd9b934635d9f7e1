"""The answer to an accepted command, and its headers, from its receipt."""

from __future__ import annotations

from headwater.api import links
from headwater.api.openapi.documents import Accepted
from headwater.commands.receipt import Receipt


def accepted(receipt: Receipt) -> Accepted:
    """The answer to an accepted command."""
    receipt_link = links.receipt_link(receipt.command_id, receipt.stream)
    return {
        "command_id": receipt.command_id,
        "stream": receipt.stream,
        "version": receipt.version,
        "events": [{"id": e.id, "type": e.type, "position": str(e.position)} for e in receipt.events],
        "position": None if receipt.position is None else str(receipt.position),
        "links": {"stream": links.stream_link(receipt.stream), "receipt": receipt_link},
    }


def receipt_headers(receipt: Receipt) -> dict[str, str]:
    """The stream's path and version."""
    headers = {"Location": links.stream_link(receipt.stream)}
    if receipt.version:
        headers["ETag"] = f'"{receipt.version}"'
    return headers
