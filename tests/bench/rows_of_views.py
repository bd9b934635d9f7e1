"""Bench `rows_of_views`: from events through the topic of one view to the rows of a view that counts its rows.

- From the moment when the HTTP request was due to the row, at a steady rate: in the inner view, in the outer one, and
  until a query of the outer one is answered that awaits the event's position.
- Changes per second: events of as many listings as there are rows, from a full log to the last sum.
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
import psycopg

from headwater.eventlog.kafka.log import KafkaLog
from tests.bench._deployment import JSON, Deployment, accepted, paced, quantiles, services
from tests.bench._followed_views import bench_markets
from tests.bench._listing import LISTING
from tests.bench._waiting import eventually
from tests.bench.replay import fill

NAMES = ("rows_of_views",)
MODULES = "listings,tests.bench._followed_views"
RATE, SECONDS, WARM_UP_S = 20, 20, 30
EVENTS = 200_000
POLL_S = 0.003


def run(name: str) -> Iterator[dict[str, Any]]:
    """A line per delay, and one for the changes per second."""
    with services("commands", "api", "projections", HEADWATER_MODULES=MODULES) as deployment:
        eventually(lambda: accepted(deployment.url, uuid.uuid4().hex), "commands are answered")
        eventually(lambda: _found(deployment, LISTING["city"]), "the first sum is there")
        asyncio.run(_timed(deployment, WARM_UP_S))
        took = asyncio.run(_timed(deployment, SECONDS))
        for what, seconds in took.items():
            yield {
                "what": what,
                **quantiles([each * 1000 for each in seconds]),
                "conditions": f"{RATE} commands/s, each of a city of its own, for {SECONDS} s after {WARM_UP_S} s of "
                "the same, from HTTP request due; the samples of `listings` are on",
            }
        began = _applied(deployment)
        with closing(KafkaLog(deployment.log)) as log:
            fill(deployment.log, log, EVENTS)
        filled = time.monotonic()
        seen = _applied(deployment) - began
        eventually(lambda: _applied(deployment) >= began + EVENTS, "all is applied", every_s=0.5)
        yield {
            "what": "changes",
            "value": round((EVENTS - seen) / (time.monotonic() - filled)),
            "unit": "changes/s",
            "conditions": f"{EVENTS:,} price changes of {min(EVENTS, 100_000):,} listings, from a full log to the last "
            f"sum in PostgreSQL; the samples of `listings` and {os.cpu_count()} cores shared with the servers",
        }


async def _timed(deployment: Deployment, seconds: int) -> dict[str, list[float]]:
    """By what was asked, how long each took."""
    took: dict[str, list[float]] = {"inner": [], "outer": [], "after": []}

    async def one(client: httpx.AsyncClient, due: float) -> None:
        key = uuid.uuid4().hex
        sent = {**LISTING, "listing_id": key, "city": key}
        answer = await client.post("/commands/listing.list_property", json=sent, headers=JSON)
        position = answer.raise_for_status().json()["position"]

        async def visible(path: str) -> float:
            while (await client.get(path)).status_code != httpx.codes.OK:  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)
            return time.perf_counter() - due

        async def awaited() -> float:
            (await client.get(f"/views/bench_markets/{key}?after={position}&wait_ms=30000")).raise_for_status()
            return time.perf_counter() - due

        found = await asyncio.gather(
            visible(f"/views/bench_prices/{key}"), visible(f"/views/bench_markets/{key}"), awaited()
        )
        for each, elapsed in zip(took.values(), found, strict=True):
            each.append(elapsed)

    async with httpx.AsyncClient(base_url=deployment.url, timeout=60) as client, asyncio.TaskGroup() as group:
        async for due in paced(RATE, RATE * seconds):
            group.create_task(one(client, due))
    return took


def _found(deployment: Deployment, city: str) -> bool:
    return httpx.get(f"{deployment.url}/views/bench_markets/{city}", timeout=30).status_code == httpx.codes.OK


def _applied(deployment: Deployment) -> int:
    """How many price changes the sums have."""
    table = f'"{deployment.log.environment}"."{bench_markets.name}"'
    with psycopg.connect(deployment.stores.postgres) as connection:
        (found,) = connection.execute(f"SELECT coalesce(sum(changes), 0) FROM {table}").fetchone() or (0,)
    return int(found)
