"""Benches `command_latency`, `freshness` and `end_to_end`: a command answered, and visible in each store.

The bench starts the handler, the projections and the API against the local stack, in an environment of its own.

- `command_latency`: from the moment a request was due to its answer, which is a receipt read back from the log.
- `freshness`: from the event's arrival at a `read_committed` consumer in this process to the first poll of a store
  that finds the row. Stores are polled by key, every 1 to 2 ms, with their own clients.
- `end_to_end`: from the moment the HTTP request was due to the same poll.
"""

from __future__ import annotations

import asyncio
import functools
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import orjson
import psycopg
import valkey
from elasticsearch import Elasticsearch

from eventlog import admin, topics
from eventlog.envelope import decode
from eventlog.kafka import KafkaLog
from eventlog.settings import LogSettings
from projections.settings import StoreSettings
from projections.stores.names import alias_name, cache_key, cache_pointer

NAMES = ("command_latency", "freshness", "end_to_end")

SECONDS = 20
COMMANDS_A_SECOND = {"command_latency": 50, "visible": 20}
WARM_UP_S = 3
STORES = ("postgres", "elasticsearch", "valkey")
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

Find = Callable[[list[str]], set[str]]


def run(name: str) -> Iterator[dict[str, Any]]:
    """The lines of one bench."""
    if name == "command_latency":
        yield _command_latency()
        return
    seen = _visibility()
    since = seen.logged if name == "freshness" else seen.sent
    start = "arrival at a read_committed consumer" if name == "freshness" else "HTTP request due"
    for store in STORES:
        took = [(at - since[key]) * 1000 for key, at in seen.visible[store].items() if key in since]
        yield {
            "bench": name,
            "store": store,
            **_quantiles(took),
            "max_ms": round(max(took), 2),
            "missing": len(seen.sent) - len(took),
            "conditions": f"{COMMANDS_A_SECOND['visible']} commands/s for {SECONDS} s, all views on, "
            f"from {start} to visible by key",
        }


@dataclass
class Seen:
    """When each listing was sent, in the log, and visible in each store; seconds of one clock, by id."""

    sent: dict[str, float] = field(default_factory=dict)
    logged: dict[str, float] = field(default_factory=dict)
    visible: dict[str, dict[str, float]] = field(default_factory=lambda: {store: {} for store in STORES})

    def pending(self, store: str) -> list[str]:
        return [key for key in list(self.sent) if key not in self.visible[store]]


def _command_latency() -> dict[str, Any]:
    rate = COMMANDS_A_SECOND["command_latency"]
    with _services("commands", "api") as deployment:
        _eventually(lambda: _accepted(deployment.url, uuid.uuid4().hex), "commands are answered", 60)
        answered: list[float] = []
        asyncio.run(_send(deployment.url, rate, WARM_UP_S, lambda *_: None))
        asyncio.run(_send(deployment.url, rate, SECONDS, lambda _, due, done: answered.append((done - due) * 1000)))
    return {
        "bench": "command_latency",
        **_quantiles(answered),
        "max_ms": round(max(answered), 2),
        "conditions": f"{rate} commands/s for {SECONDS} s over HTTP, from request due to receipt; handler and API",
    }


@functools.cache
def _visibility() -> Seen:
    """One run that both `freshness` and `end_to_end` read."""
    seen, stopped = Seen(), threading.Event()
    with _services("commands", "projections", "api") as deployment, ExitStack() as stack:
        _eventually(lambda: _accepted(deployment.url, "first"), "commands are answered", 60)
        _eventually(lambda: _in_every_view(deployment.url, "first"), "every view is live", 300)
        asyncio.run(_send(deployment.url, COMMANDS_A_SECOND["visible"], WARM_UP_S, lambda *_: None))
        watchers = [threading.Thread(target=_watch_log, args=(deployment.log, seen, stopped))]
        for store, find in _finders(deployment, stack).items():
            watchers.append(threading.Thread(target=_watch_store, args=(store, find, seen, stopped)))
        for watcher in watchers:
            watcher.start()
        try:
            rate = COMMANDS_A_SECOND["visible"]
            asyncio.run(_send(deployment.url, rate, SECONDS, lambda *_: None, seen.sent))
            deadline = time.monotonic() + 10
            while any(map(seen.pending, STORES)) and time.monotonic() < deadline:
                time.sleep(0.05)
        finally:
            stopped.set()
            for watcher in watchers:
                watcher.join()
    return seen


async def _send(
    url: str,
    rate: int,
    seconds: float,
    answered: Callable[[str, float, float], None],
    sent: dict[str, float] | None = None,
) -> None:
    """List properties at a steady rate, whether or not earlier requests were answered."""

    async def one(client: httpx.AsyncClient, key: str, due: float) -> None:
        answer = await client.post("/commands/listing.list_property", content=_body(key), headers=JSON)
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


def _body(key: str) -> bytes:
    return orjson.dumps({"listing_id": key, **LISTING})


def _watch_log(settings: LogSettings, seen: Seen, stopped: threading.Event) -> None:
    log = KafkaLog(settings)
    tail = log.tail(
        topics.EVENTS, {partition: log.end(topics.EVENTS, partition) for partition in range(log.partitions)}
    )
    while not stopped.is_set():
        records = tail.poll(100, 0.05)
        now = time.perf_counter()
        for record in records:
            if not record.key.startswith("heartbeat/"):
                seen.logged.setdefault(decode(record.value).stream.removeprefix("listing/"), now)
    tail.close()
    log.close()


def _watch_store(store: str, find: Find, seen: Seen, stopped: threading.Event) -> None:
    visible = seen.visible[store]
    while not stopped.is_set():
        pending = seen.pending(store)
        if pending:
            found = find(pending[:50])
            now = time.perf_counter()
            for key in found:
                visible[key] = now
        time.sleep(0.001)


def _finders(deployment: Deployment, stack: ExitStack) -> dict[str, Find]:
    """How to ask each store which of some listings it shows."""
    stores, environment = deployment.stores, deployment.stores.environment
    database = stack.enter_context(psycopg.connect(stores.postgres, autocommit=True))
    index = stack.enter_context(Elasticsearch(stores.elasticsearch))
    cache = stack.enter_context(valkey.Valkey.from_url(stores.valkey))
    generation = int(cache.get(cache_pointer(environment, "listing_card")))  # type: ignore[arg-type]

    def postgres(keys: list[str]) -> set[str]:
        query = f'SELECT listing_id FROM "{environment}".listings WHERE listing_id = ANY(%s)'
        return {row[0] for row in database.execute(query, [keys])}

    def elasticsearch(keys: list[str]) -> set[str]:
        found = index.mget(index=alias_name(environment, "listing_search"), ids=keys, source=False)
        return {each["_id"] for each in found["docs"] if each.get("found")}

    def valkey_(keys: list[str]) -> set[str]:
        with cache.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.hexists(cache_key(environment, "listing_card", generation, key), "doc")
            return {key for key, shown in zip(keys, pipeline.execute(), strict=True) if shown}

    return {"postgres": postgres, "elasticsearch": elasticsearch, "valkey": valkey_}


@dataclass(frozen=True)
class Deployment:
    """Services that run: the API's address, and where their data is."""

    url: str
    log: LogSettings
    stores: StoreSettings


@contextmanager
def _services(*modules: str) -> Iterator[Deployment]:
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
        f"http://127.0.0.1:{port}", LogSettings.from_environment(variables), StoreSettings.from_environment(variables)
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


def _accepted(url: str, key: str) -> bool:
    """Whether the listing of this key is there, listed now or before."""
    try:
        answer = httpx.post(f"{url}/commands/listing.list_property", content=_body(key), headers=JSON, timeout=30)
    except httpx.TransportError:
        return False
    return answer.status_code in (201, 409)


def _in_every_view(url: str, key: str) -> bool:
    rows = [f"listings/{key}", f"listing_search/{key}", f"listing_card/{key}", "city_market/SACRAMENTO"]
    paths = [f"{url}/views/{row}" for row in rows] + [f"{url}/streams/listing/{key}"]
    return all(httpx.get(path, timeout=30).status_code == 200 for path in paths)


def _eventually(condition: Callable[[], bool], what: str, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s")
        time.sleep(0.2)


def _quantiles(took_ms: list[float]) -> dict[str, Any]:
    cuts = statistics.quantiles(took_ms, n=100, method="inclusive")
    p50, p99 = round(cuts[49], 2), round(cuts[98], 2)
    return {"value": p50, "unit": "ms (p50)", "p50_ms": p50, "p99_ms": p99, "count": len(took_ms)}


if __name__ == "__main__":
    for asked in sys.argv[1:] or NAMES:
        for line in run(asked):
            print(orjson.dumps(line).decode(), flush=True)
