"""Bench `catch_up`: a view that is a million events behind when the read side starts, while more events arrive.

As the supervisor of the read side does it: the upkeep chooses bulk, the live query's session starts meanwhile, and the
query itself where the bulk ended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from tempfile import TemporaryDirectory
from typing import Any

from commands.handling.command_task import heartbeat
from eventlog.kafka import KafkaLog
from eventlog.settings import LogSettings
from projections.service import LIVE_HELD_BY, REPLAYING, ready_file
from tests.bench._deployment import own_environment
from tests.bench._waiting import eventually
from tests.bench.live import part, service
from tests.bench.replay import fill

NAMES = ("catch_up",)
BEHIND, ARRIVING_A_SECOND = 1_000_000, 200


def run(name: str) -> Iterator[dict[str, Any]]:
    """From the start of the upkeep to a view that is less than half a second of events behind."""
    with own_environment() as (settings, stores), closing(KafkaLog(settings)) as log:
        stop, read_side = threading.Event(), service(settings, stores, 1)
        with ExitStack() as running:
            read_side.build_missing()
            fill(settings, log, BEHIND)
            arriving = threading.Thread(target=_arrive, args=(settings, log, stop))
            running.callback(arriving.join)
            running.callback(stop.set)
            arriving.start()
            folder = running.enter_context(TemporaryDirectory(prefix="headwater-bench-"))

            upkeep = running.enter_context(read_side.upkeep())
            (before,) = upkeep.lags.look()
            replaying = ready_file(settings, REPLAYING)
            replaying.touch()
            began = time.monotonic()
            running.enter_context(part("live", 1, settings.environment, folder, {LIVE_HELD_BY: str(replaying)}))
            upkeep.look()
            replayed = time.monotonic() - began
            replaying.unlink()
            running.enter_context(part("load", 1, settings.environment, folder))
            eventually(
                lambda: (upkeep.lags.look()[0].lag_events or 0) <= ARRIVING_A_SECOND / 2,
                "the view is up to date",
                every_s=0.1,
            )
            seconds = time.monotonic() - began
        yield {
            "value": round((before.lag_events or 0) / seconds),
            "unit": "events/s",
            "conditions": f"{before.lag_events} events behind, {ARRIVING_A_SECOND} more a second, one view in "
            "PostgreSQL, from the start of the upkeep, Spark's start-up included, to less than half a second behind",
            "replayed_s": round(replayed, 2),
            "all_s": round(seconds, 2),
        }


def _arrive(settings: LogSettings, log: KafkaLog, stop: threading.Event) -> None:
    """Events at a steady rate, and a heartbeat of each partition every second."""
    while not stop.wait(1.0):
        fill(settings, log, ARRIVING_A_SECOND)
        for partition in range(settings.partitions):
            log.submit(heartbeat(partition, datetime.now(UTC)), partition).result()
