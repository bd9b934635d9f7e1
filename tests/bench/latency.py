"""Bench `command_latency`: from the moment a request was due to its answer, a receipt read back from the log."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any

from tests.bench._deployment import accepted, quantiles, send, services
from tests.bench._waiting import eventually

NAMES = ("command_latency",)
SECONDS, WARM_UP_S = 20, 3
COMMANDS_A_SECOND = 50


def run(name: str) -> Iterator[dict[str, Any]]:
    """The one line of it."""
    with services("commands", "api") as deployment:
        eventually(lambda: accepted(deployment.url, uuid.uuid4().hex), "commands are answered", 60)
        answered: list[float] = []
        asyncio.run(send(deployment.url, COMMANDS_A_SECOND, WARM_UP_S, lambda *_: None))
        asyncio.run(
            send(
                deployment.url,
                COMMANDS_A_SECOND,
                SECONDS,
                lambda _, due, done: answered.append((done - due) * 1000),
            )
        )
    yield {
        **quantiles(answered),
        "max_ms": round(max(answered), 2),
        "conditions": f"{COMMANDS_A_SECOND} commands/s for {SECONDS} s over HTTP, from request due to receipt; "
        "handler and API",
    }
