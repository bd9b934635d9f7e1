"""Benches `freshness` and `end_to_end`: when a command is visible in each store.

The bench starts the handler, the projections and the API against the local stack, in an environment of its own.

- `freshness`: from the event's arrival at a `read_committed` consumer in this process to the first poll of a store
  that finds the row. From that arrival on, the stores are polled by key, every 2 to 3 ms, with their own clients (less
  often when rows are late).
- `end_to_end`: from the moment the HTTP request was due to the same poll.

At the higher rate, most commands go straight to Kafka, and the same number as at the lower are watched.
"""

from __future__ import annotations

import asyncio
import functools
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import psycopg
import valkey
from confluent_kafka import Producer
from elasticsearch import Elasticsearch

from headwater.eventlog import topics
from headwater.eventlog.envelope import Envelope, decode, encode, partition_of, timestamp_ms
from headwater.eventlog.heartbeats import is_heartbeat_key
from headwater.eventlog.kafka.client import WRITER, client_config
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.settings import LogSettings
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.names import alias_name, cache_key, cache_pointer
from headwater.projections.table.view import TableView
from headwater.samples.listings.domain import ListProperty
from headwater.samples.listings.views import listing_card, listing_search, listings
from tests.bench._deployment import (
    ROOT,
    Deployment,
    accepted,
    in_every_view,
    paced,
    quantiles,
    send,
    services,
    wait_live,
)
from tests.bench._listing import LISTING
from tests.bench._waiting import eventually

NAMES = ("freshness", "end_to_end")
SECONDS, WARM_UP_S = 20, 60
"""The first thousands of events are computed by code that the JVM has not compiled yet."""
WATCHED_A_SECOND, FULL_RATE = 20, 500
AFTER_ALL = 16
"""Listings that are waited for at the end of a load: enough to meet every partition."""
POLL_SHARE = 0.1
"""A store is asked again after this share of the time that the oldest listing has been waited for."""
STORES = ("postgres", "elasticsearch", "valkey")
VIEWS = {"postgres": listings, "elasticsearch": listing_search, "valkey": listing_card}

Find = Callable[[list[str]], set[str]]


def run(name: str) -> Iterator[dict[str, Any]]:
    """A line a store and condition."""
    measured = _measured()
    start = "arrival at a read_committed consumer" if name == "freshness" else "HTTP request due"
    for condition, seen in measured.items():
        since = seen.logged if name == "freshness" else seen.sent
        for store in STORES:
            took = [(at - since[key]) * 1000 for key, at in seen.visible[store].items() if key in since]
            yield {
                "store": store,
                **quantiles(took),
                "max_ms": round(max(took), 2),
                "missing": len(seen.sent) - len(took),
                "conditions": f"{condition} for {SECONDS} s, after {WARM_UP_S} s of {FULL_RATE} a second, "
                f"all shipped views on, from {start} to visible by key",
            }


@dataclass
class Seen:
    """When each listing was sent, in the log, and visible in each store; seconds of one clock, by id.

    awaited: those in the log that a store does not show yet.
    """

    sent: dict[str, float] = field(default_factory=dict)
    logged: dict[str, float] = field(default_factory=dict)
    awaited: dict[str, dict[str, float]] = field(default_factory=lambda: {store: {} for store in STORES})
    visible: dict[str, dict[str, float]] = field(default_factory=lambda: {store: {} for store in STORES})

    @property
    def complete(self) -> bool:
        """Whether every store shows all that was sent."""
        return all(len(shown) == len(self.sent) for shown in self.visible.values())

    def arrived(self, key: str, at: float) -> None:
        """Note a listing in the log: from now on the stores are asked for it."""
        if key in self.sent and key not in self.logged:
            self.logged[key] = at
            for awaited in self.awaited.values():
                awaited[key] = at

    def shown(self, store: str, key: str, at: float) -> None:
        """Note a listing that a store shows."""
        self.visible[store][key] = at
        del self.awaited[store][key]


@functools.cache
def _measured() -> dict[str, Seen]:
    """What both benches read, by condition, of one deployment."""
    with services("commands", "projections", "api") as deployment:
        wait_live(deployment.url)
        asyncio.run(_load(deployment.log, FULL_RATE, WARM_UP_S))
        _settle(deployment.url)
        quiet = _watch(deployment, _watched)
        busy = _watch(deployment, _all)
        _settle(deployment.url)
        argv = [sys.executable, "-m", "headwater.replay", "rebuild", "--all"]
        with subprocess.Popen(
            argv, cwd=ROOT, env=deployment.variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as replay:
            rebuilding = _watch(deployment, _watched)
            if replay.wait():
                raise RuntimeError("the rebuild failed")
    return {
        f"{WATCHED_A_SECOND} commands/s": quiet,
        f"{FULL_RATE} commands/s": busy,
        f"{WATCHED_A_SECOND} commands/s, while all views are rebuilt": rebuilding,
    }


def _settle(url: str) -> None:
    """Wait until what was sent before is in every view, whatever partition it went through."""
    keys = [uuid.uuid4().hex for _ in range(AFTER_ALL)]
    if not all(accepted(url, key) for key in keys):
        raise RuntimeError("a listing was refused")
    eventually(lambda: all(in_every_view(url, key) for key in keys), "the load is in every view", 60)


Sending = Callable[[Deployment, Seen], Coroutine[Any, Any, None]]


async def _watched(deployment: Deployment, seen: Seen) -> None:
    await send(deployment.url, WATCHED_A_SECOND, SECONDS, lambda *_: None, seen.sent)


async def _all(deployment: Deployment, seen: Seen) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_load(deployment.log, FULL_RATE - WATCHED_A_SECOND, SECONDS))
        group.create_task(_watched(deployment, seen))


async def _load(settings: LogSettings, rate: int, seconds: int) -> None:
    """Append commands to Kafka at a steady rate; their receipts are nobody's here."""
    producer = Producer(client_config(settings, **WRITER))
    async for _ in paced(rate, rate * seconds):
        key, now = uuid.uuid4().hex, datetime.now(UTC)
        command = Envelope(key, ListProperty.type, f"listing/{key}", now, {"listing_id": key, **LISTING})
        producer.produce(
            settings.topic(topics.COMMANDS),
            encode(command),
            command.stream,
            partition_of(command.stream, settings.partitions),
            timestamp=timestamp_ms(now),
        )
        producer.poll(0)
    if producer.flush(60):
        raise TimeoutError("the commands could not be appended")


def _watch(deployment: Deployment, sending: Sending) -> Seen:
    """Send, and note when what was sent is where."""
    seen, stopped = Seen(), threading.Event()
    with ExitStack() as stack:
        watchers = [threading.Thread(target=_watch_log, args=(deployment.log, seen, stopped))]
        for store, find in finders(deployment.stores, VIEWS, stack).items():
            watchers.append(threading.Thread(target=watch_store, args=(store, find, seen, stopped)))
        for watcher in watchers:
            watcher.start()
        try:
            asyncio.run(sending(deployment, seen))
            deadline = time.monotonic() + 10
            while not seen.complete and time.monotonic() < deadline:
                time.sleep(0.05)
        finally:
            stopped.set()
            for watcher in watchers:
                watcher.join()
    return seen


def _watch_log(settings: LogSettings, seen: Seen, stopped: threading.Event) -> None:
    log = KafkaLog(settings)
    tail = log.tail(
        topics.EVENTS, {partition: log.end(topics.EVENTS, partition) for partition in range(log.partitions)}
    )
    while not stopped.is_set():
        records = tail.poll(100, 0.05)
        now = time.perf_counter()
        for record in records:
            if not is_heartbeat_key(record.key):
                seen.arrived(decode(record.value).stream.removeprefix("listing/"), now)
    tail.close()
    log.close()


def watch_store(store: str, find: Find, seen: Seen, stopped: threading.Event) -> None:
    while not stopped.is_set():
        awaited = dict(seen.awaited[store])
        if awaited:
            found = find(list(awaited)[:50])
            now = time.perf_counter()
            for key in found:
                seen.shown(store, key, now)
        # a store that is far behind is not asked so often that the asking holds it up
        waited_s = time.perf_counter() - min(awaited.values(), default=time.perf_counter())
        time.sleep(max(0.002, POLL_SHARE * waited_s))


def finders(stores: StoreSettings, views: Mapping[str, TableView], stack: ExitStack) -> dict[str, Find]:
    """How to ask each store which of some keys its view shows."""
    environment = stores.environment
    table, documents, hashes = (views[store] for store in STORES)
    database = stack.enter_context(psycopg.connect(stores.postgres, autocommit=True))
    index = stack.enter_context(Elasticsearch(stores.elasticsearch))
    cache = stack.enter_context(valkey.Valkey.from_url(stores.valkey))

    def postgres(keys: list[str]) -> set[str]:
        query = f'SELECT {table.key_name} FROM "{environment}".{table.name} WHERE {table.key_name} = ANY(%s)'
        return {row[0] for row in database.execute(query, [keys])}

    def elasticsearch(keys: list[str]) -> set[str]:
        found = index.mget(index=alias_name(environment, documents.name), ids=keys, source=False)
        return {each["_id"] for each in found["docs"] if each.get("found")}

    def valkey_(keys: list[str]) -> set[str]:
        generation = int(cache.get(cache_pointer(environment, hashes.name)))
        with cache.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.hexists(cache_key(environment, hashes.name, generation, key), "doc")
            return {key for key, shown in zip(keys, pipeline.execute(), strict=True) if shown}

    return {"postgres": postgres, "elasticsearch": elasticsearch, "valkey": valkey_}
