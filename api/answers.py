"""The answer to an accepted command, and its headers, from its receipt."""

from __future__ import annotations

from api import requests
from api.documents import Accepted
from commands.receipt import Receipt


def accepted(receipt: Receipt) -> Accepted:
    """The answer to an accepted command."""
    return {
        "command_id": receipt.command_id,
        "stream": receipt.stream,
        "version": receipt.version,
        "events": [{"id": e.id, "type": e.type, "position": str(e.position)} for e in receipt.events],
        "position": None if receipt.position is None else str(receipt.position),
        "links": {"stream": stream_link(receipt), "receipt": receipt_link(receipt)},
    }


def receipt_headers(receipt: Receipt) -> dict[str, str]:
    """The stream's path and version."""
    headers = {"Location": stream_link(receipt)}
    if receipt.version:
        headers["ETag"] = f'"{receipt.version}"'
    return headers


def receipt_link(receipt: Receipt) -> str:
    """The path of the receipt, with its stream, because commands of other streams may have the same id."""
    return f"{requests.link('receipts', receipt.command_id)}?stream={requests.quoted(receipt.stream)}"


def stream_link(receipt: Receipt) -> str:
    """The path of the receipt's stream."""
    aggregate, _, aggregate_id = receipt.stream.partition("/")
    return requests.link("streams", aggregate, aggregate_id)
