"""Bench `read_your_writes`: a command, and then the row as the command left it, both over HTTP.

A query with `after=` is answered once the view has applied the event. Clients send a command, then the query, and so
on, one after the other: so the next command waits for the row. The views of the sample `listings` are on.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator
from typing import Any

import orjson

from headwater.projections.table.view import TableView
from headwater.samples.listings.views import listings
from tests.bench._cost_load import Client
from tests.bench._deployment import body, quantiles, services, wait_live
from tests.bench.visibility import VIEWS

NAMES = ("read_your_writes",)
CLIENTS = (1, 32)
WARM_UP_S, SECONDS = 30, 15


def run(name: str) -> Iterator[dict[str, Any]]:
    """A line per store and number of clients."""
    with services("commands", "projections", "api", HEADWATER_MODULES="listings") as deployment:
        wait_live(deployment.url)
        asyncio.run(_took(deployment.url, listings, max(CLIENTS), WARM_UP_S))
        for store, view in VIEWS.items():
            for clients in CLIENTS:
                took = asyncio.run(_took(deployment.url, view, clients, SECONDS))
                yield {
                    "store": store,
                    **quantiles([(answered - read) * 1000 for _, read, answered in took]),
                    "command_p50_ms": quantiles([(read - sent) * 1000 for sent, read, _ in took])["p50_ms"],
                    "per_s": round(len(took) / SECONDS),
                    "conditions": f"{clients} clients that send a command and read its row, one after the other, for "
                    f"{SECONDS} s after {WARM_UP_S} s; from the command's answer to the row",
                }


async def _took(url: str, view: TableView, clients: int, seconds: float) -> list[tuple[float, float, float]]:
    """Of each command: when it was sent, when it was answered, and when its row was."""
    client, took, until = Client(url), list[tuple[float, float, float]](), time.perf_counter() + seconds

    async def one_after_the_other() -> None:
        while (sent := time.perf_counter()) < until:
            key = uuid.uuid4().hex
            receipt = orjson.loads(await client.post("/commands/listing.list_property", body(key), "application/json"))
            answered = time.perf_counter()
            await client.get(f"/views/{view.name}/{key}?after={receipt['position']}&wait_ms=30000")
            took.append((sent, answered, time.perf_counter()))

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(one_after_the_other())
    finally:
        client.close()
    return took
