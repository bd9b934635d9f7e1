"""Bench `catch_up`: a read side starts a million events behind, while more events arrive.

First with one view: its parts are started here as the supervisor starts them, because every deployment also has the
view `streams`. Then all of `python -m headwater.projections`, with both views.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from headwater.commands.handling.command_task import heartbeat
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.settings import LogSettings
from headwater.projections.generations.upkeep.lag_reader import Lags
from headwater.projections.registry import ViewRegistry
from headwater.projections.running_parts import LIVE_HELD_BY, REPLAYING, ready_file
from headwater.projections.service import Service
from headwater.projections.settings import StoreSettings
from tests.bench._deployment import own_environment, process
from tests.bench._waiting import eventually
from tests.bench.live import part, service
from tests.bench.replay import fill

NAMES = ("catch_up",)
BEHIND, ARRIVING_A_SECOND = 1_000_000, 200
MODULE = "tests.bench._prices_view"


def run(name: str) -> Iterator[dict[str, Any]]:
    """From the start to views that are less than half a second of events behind."""
    with own_environment() as (settings, stores):
        yield _one_view(settings, stores)
    with own_environment() as (settings, stores):
        yield _everything(settings, stores)


def _one_view(settings: LogSettings, stores: StoreSettings) -> dict[str, Any]:
    read_side = service(settings, stores, 1)
    with _behind(read_side) as running:
        folder = running.enter_context(TemporaryDirectory(prefix="headwater-bench-"))
        upkeep = running.enter_context(read_side.upkeep())
        before = _lag_events(upkeep.lags)
        replaying = ready_file(settings, REPLAYING)
        replaying.touch()
        began = time.monotonic()
        running.enter_context(part("live", 1, settings.environment, folder, {LIVE_HELD_BY: str(replaying)}))
        upkeep.look()
        replayed = time.monotonic() - began
        replaying.unlink()
        running.enter_context(part("load", 1, settings.environment, folder))
        seconds = _seconds(upkeep.lags, began)
    what = "one view in PostgreSQL, from the start of the upkeep, Spark's start-up included,"
    return _line(before, seconds, what) | {"replayed_s": round(replayed, 2)}


def _everything(settings: LogSettings, stores: StoreSettings) -> dict[str, Any]:
    read_side = Service(settings, stores, ViewRegistry.load([MODULE]))
    with _behind(read_side) as running:
        folder = Path(running.enter_context(TemporaryDirectory(prefix="headwater-bench-")))
        variables = os.environ | {
            "HEADWATER_ENVIRONMENT": settings.environment,
            "HEADWATER_STATE": str(folder),
            "HEADWATER_MODULES": MODULE,
        }
        upkeep = running.enter_context(read_side.upkeep())
        before = _lag_events(upkeep.lags)
        began = time.monotonic()
        running.enter_context(process(["-m", "headwater.projections"], variables, folder / "projections.log"))
        seconds = _seconds(upkeep.lags, began)
    what = "two views in PostgreSQL, one with a row per event, from the start of `python -m headwater.projections`"
    return _line(before, seconds, what)


def _line(before: int, seconds: float, what: str) -> dict[str, Any]:
    return {
        "value": round(before / seconds),
        "unit": "events/s",
        "conditions": f"{before} events behind, {ARRIVING_A_SECOND} more a second, {what} to less than half a second "
        "behind",
        "all_s": round(seconds, 2),
    }


@contextmanager
def _behind(read_side: Service) -> Iterator[ExitStack]:
    """Views that have applied nothing of a log to which events are appended; the stack ends before these end."""
    with closing(KafkaLog(read_side.settings)) as log, ExitStack() as arrivals:
        read_side.build_missing()
        fill(read_side.settings, log, BEHIND)
        stop = threading.Event()
        arriving = threading.Thread(target=_arrive, args=(read_side.settings, log, stop))
        arrivals.callback(arriving.join)
        arrivals.callback(stop.set)
        arriving.start()
        with ExitStack() as running:
            yield running


def _lag_events(lags: Lags) -> int:
    """Of the view that is behind most; one that is not there has all before it."""
    return max(BEHIND if lag.lag_events is None else lag.lag_events for lag in lags.look())


def _seconds(lags: Lags, began: float) -> float:
    """Wait until all views are up to date; returns the time since `began`."""
    eventually(lambda: _lag_events(lags) <= ARRIVING_A_SECOND / 2, "the views are up to date", every_s=0.1)
    return time.monotonic() - began


def _arrive(settings: LogSettings, log: KafkaLog, stop: threading.Event) -> None:
    """Events at a steady rate, and a heartbeat of each partition every second."""
    while not stop.wait(1.0):
        fill(settings, log, ARRIVING_A_SECOND)
        for partition in range(settings.partitions):
            log.submit(heartbeat(partition, datetime.now(UTC)), partition).result()
