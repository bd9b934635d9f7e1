"""A whole deployment in an environment of its own, for benches that measure it from outside."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import orjson
import psycopg
import valkey
from elasticsearch import Elasticsearch

from eventlog import admin
from eventlog.settings import LogSettings
from projections.settings import StoreSettings

ROOT = Path(__file__).parents[2]
LISTING = {
    "city": "SACRAMENTO",
    "zip": "95815",
    "property_type": "Residential",
    "beds": 3,
    "baths": 2.0,
    "square_feet": 1_200,
    "price": 250_000,
    "latitude": 38.6,
    "longitude": -121.4,
    "description": "three bedrooms and a garden",
}


@dataclass(frozen=True)
class Deployment:
    """Services that run: the API's address, and where their data is."""

    url: str
    variables: Mapping[str, str]
    log: LogSettings
    stores: StoreSettings


@contextmanager
def services(*modules: str) -> Iterator[Deployment]:
    """Headwater's processes in an environment of their own; everything of it is removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="headwater-bench-"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    variables = os.environ | {
        "HEADWATER_ENVIRONMENT": f"bench_{uuid.uuid4().hex[:8]}",
        "HEADWATER_STATE": str(folder),
        "HEADWATER_API_PORT": str(port),
    }
    deployment = Deployment(
        f"http://127.0.0.1:{port}",
        variables,
        LogSettings.from_environment(variables),
        StoreSettings.from_environment(variables),
    )
    admin.prepare(deployment.log)
    processes = [_start(module, variables, folder) for module in modules]
    try:
        yield deployment
    except BaseException:
        for file in sorted(folder.glob("*.log")):
            print(f"--- {file.name}\n{file.read_text(errors='replace')[-2000:]}", file=sys.stderr)
        raise
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        _remove(deployment)
        shutil.rmtree(folder, ignore_errors=True)


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
        start = time.perf_counter()
        for number in range(int(rate * seconds)):
            due = start + number / rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            key = uuid.uuid4().hex
            if sent is not None:
                sent[key] = due
            group.create_task(one(client, key, due))


JSON = {"content-type": "application/json"}


def body(key: str) -> bytes:
    return orjson.dumps({"listing_id": key, **LISTING})


def _start(module: str, variables: Mapping[str, str], folder: Path) -> subprocess.Popen[bytes]:
    with (folder / f"{module}.log").open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", module], cwd=ROOT, env=variables, stdout=output, stderr=subprocess.STDOUT
        )


def _remove(deployment: Deployment) -> None:
    admin.remove(deployment.log)
    environment = deployment.stores.environment
    with psycopg.connect(deployment.stores.postgres, autocommit=True) as connection:
        connection.execute(f'DROP SCHEMA IF EXISTS "{environment}" CASCADE')
    with Elasticsearch(deployment.stores.elasticsearch) as client:
        for index in client.indices.get(index=f"{environment}.*"):
            client.indices.delete(index=index)
    with valkey.Valkey.from_url(deployment.stores.valkey) as cache:
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


def eventually(condition: Callable[[], bool], what: str, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s")
        time.sleep(0.2)


def quantiles(took_ms: list[float]) -> dict[str, Any]:
    cuts = statistics.quantiles(took_ms, n=100, method="inclusive")
    p50, p99 = round(cuts[49], 2), round(cuts[98], 2)
    return {"value": p50, "unit": "ms (p50)", "p50_ms": p50, "p99_ms": p99, "count": len(took_ms)}
