"""Benches of real-time views: `realtime_pipeline`, from an event in Kafka to its row in a topic, and `realtime_idle`.

The view is the sample `large_order_lines`: a select, a filter, an explode and a join with a table. Events are appended
to `events` without a handler; each has one row. A row is there when a `read_committed` consumer of the view's topic
gets it. `python -m tests.bench.realtime streams` and `… load STORE` are the processes that the bench starts.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
from confluent_kafka import Producer

from headwater.eventlog.envelope import Envelope, encode, partition_of, timestamp_ms
from headwater.eventlog.heartbeats import heartbeat_key
from headwater.eventlog.kafka.client import WRITER, client_config
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import EVENTS, VIEWS
from headwater.projections.queries import run_stream_queries
from headwater.projections.registry import ViewRegistry
from headwater.projections.service import Service
from headwater.projections.settings import StoreSettings
from headwater.samples.orders.domain.order import Placed
from headwater.samples.orders.views import LARGE_CENTS, large_order_lines
from tests.bench._deployment import own_environment, process, quantiles
from tests.bench._waiting import eventually

NAMES = ("realtime_pipeline", "realtime_idle")
RATES, SECONDS, WARM_UP_S = (100, 500), 30, 60
IDLE_S, SETTLE_S = 60, 20
LINES = [{"sku": "tea", "quantity": 4, "unit_cents": LARGE_CENTS}]


@dataclass
class Sent:
    """When each event was appended, by the key of its row, and when the row came; seconds of one clock."""

    appended: dict[str, float] = field(default_factory=dict)
    shown: dict[str, float] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether all rows have come."""
        return len(self.shown) == len(self.appended)


def run(name: str) -> Iterator[dict[str, Any]]:
    """A line per rate, or one for an idle view."""
    with deployed() as (settings, log):
        _measure(settings, log, RATES[-1], WARM_UP_S)
        if name == "realtime_idle":
            yield _idle()
            return
        for rate in RATES:
            sent = _measure(settings, log, rate, SECONDS)
            took = [(at - sent.appended[key]) * 1000 for key, at in sent.shown.items()]
            yield {
                **quantiles(took),
                "max_ms": round(max(took), 2),
                "conditions": f"{rate} events/s for {SECONDS} s, after {WARM_UP_S} s of {RATES[-1]} a second, from "
                "append to a row at a read_committed consumer of the view's topic; the view is in PostgreSQL too",
            }


@contextmanager
def deployed() -> Iterator[tuple[LogSettings, KafkaLog]]:
    """The view, the process of its query and a loader per store, once the first row is in the topic."""
    with own_environment() as (own, stores), ExitStack() as running:
        folder = Path(running.enter_context(TemporaryDirectory(prefix="headwater-bench-")))
        settings = replace(own, state=folder)
        Service(settings, replace(stores, log=settings), registry()).build_missing()
        variables = {**os.environ, "HEADWATER_ENVIRONMENT": settings.environment, "HEADWATER_STATE": str(folder)}
        for words in (["streams"], *(["load", store.name] for store in large_order_lines.stores)):
            log_file = folder / f"{words[-1]}.log"
            running.enter_context(process(["-m", "tests.bench.realtime", *words], variables, log_file))
        with closing(KafkaLog(settings)) as log:
            try:
                _measure(settings, log, 1, 1)
            except BaseException:
                for file in sorted(folder.glob("*.log")):
                    print(f"--- {file.name}\n{file.read_text(errors='replace')[-3000:]}", file=sys.stderr)
                raise
            yield settings, log


def registry() -> ViewRegistry:
    """The view alone."""
    return ViewRegistry([(__name__, large_order_lines)])


def _measure(settings: LogSettings, log: KafkaLog, rate: int, seconds: int) -> Sent:
    """Append events at a steady rate, and note when their rows come."""
    sent, stopped = Sent(), threading.Event()
    watching = threading.Thread(target=_watch, args=(log, sent, stopped))
    watching.start()
    try:
        _append(settings, sent, rate, seconds)
        eventually(lambda: sent.complete, "all rows", 180)
    finally:
        stopped.set()
        watching.join()
    return sent


def _append(settings: LogSettings, sent: Sent, rate: int, seconds: int) -> None:
    producer = Producer(client_config(settings, **WRITER))
    for partition in range(settings.partitions):  # a producer needs half a second for its first record
        producer.produce(settings.topic(EVENTS), b"{}", heartbeat_key(partition), partition)
    producer.flush(60)
    start = time.perf_counter()
    for number in range(rate * seconds):
        time.sleep(max(0.0, start + number / rate - time.perf_counter()))
        name, now = f"{time.time_ns():x}", datetime.now(UTC)
        data = {"order_id": name, "customer": "Ada", "lines": LINES, "total_cents": 4 * LARGE_CENTS}
        event = Envelope(f"order/{name}/1", Placed.type, f"order/{name}", now, data, sequence=1, recorded_time=now)
        sent.appended[f"order%2F{name}/0"] = time.perf_counter()
        partition = partition_of(event.stream, settings.partitions)
        producer.produce(
            settings.topic(EVENTS), encode(event), event.id, partition, timestamp=timestamp_ms(now)
        )  # fmt: skip
        producer.poll(0)
    if producer.flush(60):
        raise TimeoutError("the events could not be appended")


def _watch(log: KafkaLog, sent: Sent, stopped: threading.Event) -> None:
    topic = f"{VIEWS}{large_order_lines.name}"
    tail = log.tail(topic, {each: log.end(topic, each) for each in log.stored_ends(topic)})
    while not stopped.is_set():
        records = tail.poll(100, 0.05)
        now = time.perf_counter()
        for record in records:
            if record.key in sent.appended:
                sent.shown.setdefault(record.key, now)
    tail.close()


def _idle() -> dict[str, Any]:
    """The processor time of the query's process and loaders while nothing comes."""
    time.sleep(SETTLE_S)
    ours = [child for child in psutil.Process().children() if "tests.bench.realtime" in child.cmdline()]
    names = {our.pid: our.cmdline()[-1] for our in ours}
    before = {our.pid: _cpu_seconds(our) for our in ours}
    time.sleep(IDLE_S)
    used = {names[our.pid]: round((_cpu_seconds(our) - before[our.pid]) / IDLE_S, 3) for our in ours}
    return {
        "value": used["streams"],
        "unit": "cores",
        "processes": used,
        "conditions": f"the process of one real-time view, with Spark, while no event comes, for {IDLE_S} s, "
        f"{SETTLE_S} s after the last one",
    }


def _cpu_seconds(one: psutil.Process) -> float:
    return float(sum(sum(member.cpu_times()[:2]) for member in (one, *one.children(recursive=True))))


def main(part: str, store: str = "") -> None:
    """The process of stream views, or a loader, until it is told to stop."""
    logging.basicConfig(level=logging.INFO)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    settings, stores = LogSettings.from_environment(os.environ), StoreSettings.from_environment(os.environ)
    service = Service(settings, stores, registry())
    if part == "streams":
        run_stream_queries(service, stop)
    else:
        service.run_loader(store, stop)


if __name__ == "__main__":
    main(*sys.argv[1:])
