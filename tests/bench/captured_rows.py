"""Bench `cdc_freshness`: from the commit of an SQL transaction to its row in each store, and to Debezium's record.

It starts servers of its own with Kafka Connect, the shop's database, and the read side. Customers are inserted at a
steady rate. The stores are polled by key from the commit on, every 2 to 3 ms; the record is what a `read_committed`
consumer in this process gets.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from headwater.compose.ports import free_ports
from headwater.compose.samples.shop_database import fill
from headwater.compose.settings import StackSettings
from headwater.compose.stack import CAPTURING, Stack
from headwater.eventlog.heartbeats import is_table_heartbeat
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.settings import LogSettings
from headwater.projections.running_parts import EVERYTHING, ready_file
from headwater.projections.settings import StoreSettings
from headwater.samples.shop.source import Customer, shop
from tests.bench._captured_view import seen_customers
from tests.bench._deployment import process, quantiles
from tests.bench._waiting import eventually
from tests.bench.visibility import STORES, Seen, finders, watch_store
from tests.integration.sources.captured import Connector, captured

NAMES = ("cdc_freshness",)
CHANGES_A_SECOND, SECONDS, WARM_UP_S = 50, 30, 60
INSERT = """
INSERT INTO customers (public_id, name, email, is_business)
VALUES (gen_random_uuid(), 'Ada ' || %(number)s, %(place)s || %(number)s || '@example.com', false) RETURNING id
"""


def run(name: str) -> Iterator[dict[str, Any]]:
    """A line for Debezium alone, and one per store."""
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="headwater-bench-")))
        folder.chmod(0o711)  # PostgreSQL's user must pass it, if this is root
        stack = running.enter_context(Stack(StackSettings(folder / "servers", free_ports()), CAPTURING))
        connector = running.enter_context(captured(stack, shop))
        with connector.connect() as connection:
            fill(connection, 1)
        variables = {
            **os.environ,
            **stack.endpoints.environment(),
            "HEADWATER_ENVIRONMENT": connector.log.environment,
            "HEADWATER_PARTITIONS": str(connector.log.partitions),
            "HEADWATER_MODULES": "shop,tests.bench._captured_view",
            "HEADWATER_STATE": str(folder),
        }
        connector.put()
        running.enter_context(process(["-m", "headwater.projections"], variables, folder / "projections.log"))
        stores, log = StoreSettings.from_environment(variables), LogSettings.from_environment(variables)
        eventually(ready_file(log, EVERYTHING).exists, "the read side is up", 300)
        _insert(connector, Seen(), "warm", WARM_UP_S)
        seen = _measured(connector, stores)
    conditions = f"{CHANGES_A_SECOND} SQL transactions/s for {SECONDS} s, after {WARM_UP_S} s, from commit"
    yield _line("Debezium", seen.logged, seen, f"{conditions} to a committed record")
    for store in STORES:
        yield _line(store, seen.visible[store], seen, f"{conditions} to visible by key")


def _line(where: str, at: dict[str, float], seen: Seen, conditions: str) -> dict[str, Any]:
    took = [(at[key] - committed) * 1000 for key, committed in seen.sent.items() if key in at]
    missing = len(seen.sent) - len(took)
    return {
        "store": where,
        **quantiles(took),
        "max_ms": round(max(took), 2),
        "missing": missing,
        "conditions": conditions,
    }


def _measured(connector: Connector, stores: StoreSettings) -> Seen:
    seen, stopped = Seen(), threading.Event()
    with ExitStack() as opened:
        asked = finders(stores, dict.fromkeys(STORES, seen_customers), opened)
        watchers = [threading.Thread(target=_watch_topic, args=(connector.log, seen, stopped))]
        watchers += [threading.Thread(target=watch_store, args=(*each, seen, stopped)) for each in asked.items()]
        for watcher in watchers:
            watcher.start()
        try:
            _insert(connector, seen, "seen", SECONDS)
            deadline = time.monotonic() + 10
            while not seen.complete and time.monotonic() < deadline:
                time.sleep(0.05)
        finally:
            stopped.set()
            for watcher in watchers:
                watcher.join()
    return seen


def _insert(connector: Connector, seen: Seen, place: str, seconds: float) -> None:
    with connector.connect() as connection:
        start = time.perf_counter()
        for number in range(int(CHANGES_A_SECOND * seconds)):
            time.sleep(max(0.0, start + number / CHANGES_A_SECOND - time.perf_counter()))
            row = connection.execute(INSERT, {"number": str(number), "place": place}).fetchone()
            at = time.perf_counter()
            key = str(row[0] if row else "")
            for awaited in seen.awaited.values():
                awaited[key] = at
            seen.sent[key] = at


def _watch_topic(settings: LogSettings, seen: Seen, stopped: threading.Event) -> None:
    log, topic = KafkaLog(settings), Customer.topic()
    tail = log.tail(topic, {partition: log.end(topic, partition) for partition in range(log.partitions)})
    while not stopped.is_set():
        records = tail.poll(100, 0.05)
        now = time.perf_counter()
        for record in records:
            if not is_table_heartbeat(record.key.encode()):
                seen.logged.setdefault(record.key.removeprefix('{"id":').removesuffix("}"), now)
    tail.close()
    log.close()
