"""Benches of stream views: `stream_freshness`, from an observation to its row, and `stream_idle`, what waiting costs.

`python -m tests.bench.streams streams N` and `… load N` are the processes that the bench starts.
"""

from __future__ import annotations

import asyncio
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
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import psycopg

from headwater.commands.declaring.observation import Report
from headwater.commands.sending.recorder import ObservationRecorder
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.settings import LogSettings
from headwater.projections.queries import run_stream_queries
from headwater.projections.service import Service
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.names import table_name
from tests.bench._deployment import own_environment, process, quantiles
from tests.bench._stream_views import WINDOW_S, GatePassed, registry
from tests.bench._waiting import eventually

NAMES = ("stream_freshness", "stream_idle")
RATE, SECONDS, WARM_UP_S = 200, 30, 60
IDLE_S, SETTLE_S = 60, 20
VIEWS = (1, 5)
LOOK_S, MOST_ASKED = 0.01, 200


@dataclass
class Sent:
    """When each observation was due, by the key of its row, and when the row of the last view had it."""

    due: dict[str, float] = field(default_factory=dict)
    shown: dict[str, float] = field(default_factory=dict)


def run(name: str) -> Iterator[dict[str, Any]]:
    """A line per number of views."""
    for views in VIEWS if name == "stream_freshness" else VIEWS[-1:]:
        with deployed(views) as (settings, stores, folder), closing(KafkaLog(settings)) as log:
            asyncio.run(_report(log, Sent(), WARM_UP_S))
            yield _fresh(settings, stores, log, views) if name == "stream_freshness" else _idle(folder, views)


@contextmanager
def deployed(views: int) -> Iterator[tuple[LogSettings, StoreSettings, Path]]:
    """So many stream views, their process and a loader, once the first row is stored."""
    with own_environment() as (own, stores), ExitStack() as running:
        folder = Path(running.enter_context(TemporaryDirectory(prefix="headwater-bench-")))
        settings = replace(own, state=folder)
        Service(settings, stores, registry(views)).build_missing()
        for part in ("streams", "load"):
            variables = {**os.environ, "HEADWATER_ENVIRONMENT": settings.environment, "HEADWATER_STATE": str(folder)}
            words = ["-m", "tests.bench.streams", part, str(views)]
            running.enter_context(process(words, variables, folder / f"{part}.log"))
        with closing(KafkaLog(settings)) as log, psycopg.connect(stores.postgres, autocommit=True) as database:
            first = Sent()
            asyncio.run(_report(log, first, 1 / RATE))
            for view in range(1, views + 1):
                eventually(partial(_found, database, stores, view, list(first.due)), "the first row", 120)
        yield settings, stores, folder


def _fresh(settings: LogSettings, stores: StoreSettings, log: KafkaLog, views: int) -> dict[str, Any]:
    sent, stopped = Sent(), threading.Event()
    watching = threading.Thread(target=_watch, args=(stores, views, sent, stopped))
    watching.start()
    try:
        asyncio.run(_report(log, sent, SECONDS))
        eventually(lambda: len(sent.shown) == len(sent.due), "all rows", 60)
    finally:
        stopped.set()
        watching.join()
    return {
        **quantiles([(at - sent.due[key]) * 1000 for key, at in sent.shown.items()]),
        "views": views,
        "conditions": f"{RATE} observations/s for {SECONDS} s, after {WARM_UP_S} s, from due to its row of a window of "
        f"{WINDOW_S} s in PostgreSQL, in the last of {views} stream view(s), as a reader sees it",
    }


def _idle(folder: Path, views: int) -> dict[str, Any]:
    """The processor time of all processes of stream views and loaders while nothing comes."""
    time.sleep(SETTLE_S)
    before = _cpu_seconds()
    time.sleep(IDLE_S)
    used = (_cpu_seconds() - before) / IDLE_S
    return {
        "value": round(used, 3),
        "unit": "cores",
        "views": views,
        "conditions": f"the process of {views} stream views, with Spark, and a loader, while no observation comes, for "
        f"{IDLE_S} s, {SETTLE_S} s after the last one",
    }


def _cpu_seconds() -> float:
    """Of the processes of `deployed`, and all that they started."""
    ours = [child for child in psutil.Process().children() if "tests.bench.streams" in child.cmdline()]
    family = [member for our in ours for member in (our, *our.children(recursive=True))]
    return sum(sum(member.cpu_times()[:2]) for member in family)


async def _report(log: KafkaLog, sent: Sent, seconds: float) -> None:
    """Record observations at a steady rate, each of a gate of its own."""
    recorder, start = ObservationRecorder(log), time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(int(RATE * seconds)):
            due = start + number / RATE
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            now = datetime.now(UTC)
            since = datetime.fromtimestamp(now.timestamp() // WINDOW_S * WINDOW_S, UTC)
            gate = f"{time.time_ns():x}"
            sent.due[f"{gate}/{since:%Y-%m-%dT%H:%M:%S}.000Z"] = due
            report = Report(id=gate, source="bench", time=now, data=GatePassed(gate=gate, weight=number % 9))
            group.create_task(recorder.record([report]))


def _watch(stores: StoreSettings, views: int, sent: Sent, stopped: threading.Event) -> None:
    with psycopg.connect(stores.postgres, autocommit=True) as database:
        while not stopped.wait(LOOK_S):
            awaited = [key for key in list(sent.due) if key not in sent.shown][:MOST_ASKED]
            found = _found(database, stores, views, awaited)
            now = time.perf_counter()
            sent.shown.update(dict.fromkeys(found, now))


def _found(database: psycopg.Connection[Any], stores: StoreSettings, view: int, keys: list[str]) -> set[str]:
    table = f'"{stores.environment}"."{table_name(f"gates_{view}", 1)}"'
    return {key for (key,) in database.execute(f"SELECT key FROM {table} WHERE key = ANY(%s)", [keys])}


def main(part: str, views: int) -> None:
    """The process of stream views, or a loader, until it is told to stop."""
    logging.basicConfig(level=logging.INFO)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    settings, stores = LogSettings.from_environment(os.environ), StoreSettings.from_environment(os.environ)
    service = Service(settings, stores, registry(views))
    if part == "streams":
        run_stream_queries(service, stop)
    else:
        service.run_loader("postgres", stop)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
