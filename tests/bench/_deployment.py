"""A whole deployment in an environment of its own, for benches that measure it from outside."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import orjson
import psycopg
import valkey
from elasticsearch import Elasticsearch

from headwater.compose.ports import free_port
from headwater.eventlog.kafka import admin
from headwater.eventlog.settings import LogSettings
from headwater.projections.settings import StoreSettings
from tests.bench._listing import LISTING
from tests.bench._waiting import eventually

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Deployment:
    """Services that run: the API's address, and where their data is."""

    url: str
    variables: Mapping[str, str]
    log: LogSettings
    stores: StoreSettings


@contextmanager
def services(*modules: str, **more: str) -> Iterator[Deployment]:
    """Headwater's processes in an environment of their own; everything of it is removed afterwards.

    more: further variables of each process.
    """
    with own_environment() as (settings, stores), ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="headwater-bench-")))
        port = free_port()
        variables = os.environ | {
            "HEADWATER_ENVIRONMENT": settings.environment,
            "HEADWATER_STATE": str(folder),
            "HEADWATER_API_PORT": str(port),
            **more,
        }
        log = replace(settings, state=folder)
        for module in modules:
            running.enter_context(process(["-m", f"headwater.{module}"], variables, folder / f"{module}.log"))
        try:
            yield Deployment(f"http://127.0.0.1:{port}", variables, log, stores)
        except BaseException:
            for file in sorted(folder.glob("*.log")):
                print(f"--- {file.name}\n{file.read_text(errors='replace')[-2000:]}", file=sys.stderr)
            raise


@contextmanager
def own_environment() -> Iterator[tuple[LogSettings, StoreSettings]]:
    """Topics and a name of their own on the servers; all that was made under that name is removed afterwards."""
    environment = f"bench_{uuid.uuid4().hex[:8]}"
    settings = replace(LogSettings.from_environment(os.environ), environment=environment)
    stores = replace(StoreSettings.from_environment(os.environ), environment=environment)
    admin.prepare(settings)
    try:
        yield settings, stores
    finally:
        _remove(settings, stores)


@contextmanager
def process(words: Sequence[str], variables: Mapping[str, str], log: Path, cwd: Path = ROOT) -> Iterator[int]:
    """The id of a Python with these arguments, its output in `log`, until it is asked to end."""
    with log.open("ab") as output:
        started = subprocess.Popen([sys.executable, *words], cwd=cwd, env=variables, stdout=output, stderr=output)
    try:
        yield started.pid
    finally:
        started.terminate()
        try:
            started.wait(60)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


async def paced(rate: float, number: int) -> AsyncIterator[float]:
    """At a steady rate, so many times, when each was due, in seconds of `time.perf_counter`; at once if it is late."""
    start = time.perf_counter()
    for each in range(number):
        due = start + each / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        yield due


async def send(
    url: str,
    rate: int,
    seconds: float,
    answered: Callable[[str, float, float], None],
    sent: dict[str, float] | None = None,
) -> None:
    """List properties at a steady rate, whether or not earlier requests were answered."""

    async def one(client: httpx.AsyncClient, key: str, due: float) -> None:
        answer = await client.post("/commands/listing.list_property", content=body(key), headers=JSON)
        answer.raise_for_status()
        answered(key, due, time.perf_counter())

    async with httpx.AsyncClient(base_url=url, timeout=30) as client, asyncio.TaskGroup() as group:
        async for due in paced(rate, int(rate * seconds)):
            key = uuid.uuid4().hex
            if sent is not None:
                sent[key] = due
            group.create_task(one(client, key, due))


JSON = {"content-type": "application/json"}


def body(key: str) -> bytes:
    return orjson.dumps({"listing_id": key, **LISTING})


def _remove(settings: LogSettings, stores: StoreSettings) -> None:
    admin.remove(settings)
    environment = stores.environment
    with psycopg.connect(stores.postgres, autocommit=True) as connection:
        connection.execute(f'DROP SCHEMA IF EXISTS "{environment}" CASCADE')
    with Elasticsearch(stores.elasticsearch) as client:
        for index in client.indices.get(index=f"{environment}.*"):
            client.indices.delete(index=index)
    with valkey.Valkey.from_url(stores.valkey) as cache:
        for key in cache.scan_iter(f"{environment}:*", count=1000):
            cache.delete(key)


def accepted(url: str, key: str) -> bool:
    """Whether the listing of this key is there, listed now or before."""
    try:
        answer = httpx.post(f"{url}/commands/listing.list_property", content=body(key), headers=JSON, timeout=30)
    except httpx.TransportError:
        return False
    return answer.status_code in (201, 409)


def in_every_view(url: str, key: str) -> bool:
    rows = [f"listings/{key}", f"listing_search/{key}", f"listing_card/{key}", "city_market/SACRAMENTO"]
    paths = [f"{url}/views/{row}" for row in rows] + [f"{url}/streams/listing/{key}"]
    return all(httpx.get(path, timeout=30).status_code == 200 for path in paths)


def wait_live(url: str) -> None:
    """Return once commands are answered, and every view of `listings` shows the first one."""
    eventually(lambda: accepted(url, "first"), "commands are answered", 120)
    eventually(lambda: in_every_view(url, "first"), "every view is live", 300)


def quantiles(took_ms: list[float]) -> dict[str, Any]:
    cuts = statistics.quantiles(took_ms, n=100, method="inclusive")
    p50, p99 = round(cuts[49], 2), round(cuts[98], 2)
    return {"value": p50, "unit": "ms (p50)", "p50_ms": p50, "p99_ms": p99, "count": len(took_ms)}
