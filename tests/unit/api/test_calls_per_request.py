from __future__ import annotations

import asyncio
import sys
from types import FrameType
from typing import Any

from headwater.api.app import create_app
from tests.unit.api.fake_service import fake_service

MOST = 560
"""Calls of Python functions for one request; FastAPI's own resolution of dependencies and routers needs 250 more."""
SELL = b'{"listing_id": "L1", "sold_for": 1}'
HEADERS = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]


def calls(modules: tuple[str, ...], method: str, path: str, body: bytes = b"") -> int:
    """How many Python functions the second request of this kind calls: a measure that no other load changes."""
    service = fake_service(modules=modules)
    service.readers["postgres"].rows["listings"] = {"L1": dict.fromkeys(service.views["listings"].types)}
    app = create_app(service)

    async def request() -> int:
        scope: dict[str, Any] = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": list(HEADERS),
        }
        messages = [{"type": "http.request", "body": body, "more_body": False}]
        statuses = []

        async def receive() -> dict[str, Any]:
            if messages:
                return messages.pop()
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: Any) -> None:
            statuses.append(message.get("status"))

        await app(scope, receive, send)
        status: int = statuses[0]
        return status

    async def count() -> int:
        number = 0

        def note(_: FrameType, event: str, __: Any) -> None:
            nonlocal number
            number += event == "call"

        assert await request() in (200, 201)
        before = sys.getprofile()
        sys.setprofile(note)
        try:
            await request()
        finally:
            sys.setprofile(before)
        return number

    return asyncio.run(count())


def test_a_command_and_a_row_need_few_calls() -> None:
    assert calls(("listings",), "POST", "/commands/listing.sell", SELL) < MOST
    assert calls(("listings",), "GET", "/views/listings/L1") < MOST


def test_a_command_needs_as_many_calls_however_many_are_declared() -> None:
    of_one, of_many = (
        calls(modules, "POST", "/commands/listing.sell", SELL)
        for modules in (("listings",), ("shop", "orders", "listings"))
    )
    assert of_many - of_one < 10
