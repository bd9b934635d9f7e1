"""Bench `stream_batch`: what the first batch of a stream view takes, which reads all records: time, memory and disk."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
from confluent_kafka import Producer

from headwater.commands.declaring.observation import Report, to_entry
from headwater.eventlog.kafka.client import client_config
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import OBSERVATIONS
from headwater.projections.generations.rebuild.engine import run_alone
from headwater.projections.spark.session import SparkSettings, end, start_session
from headwater.projections.spark.stream_queries.checkpoint import Checkpoint
from headwater.projections.spark.stream_queries.running_query import running
from headwater.projections.stores.store import Target
from headwater.projections.stream.view import StreamView
from tests.bench._deployment import own_environment
from tests.bench._stream_views import WINDOW_S, GatePassed, registry
from tests.support.ordered_producer import IN_BULK

NAMES = ("stream_batch",)
EVENTS = tuple(
    int(each) for each in os.environ.get("HEADWATER_BENCH_BATCHES", "1000000,4000000,10000000").split(",")
)  # fmt: skip
GATES = 1_000
PER_SECOND = 1_000
"""Of the time of the observations, so each window has ten of each gate."""
START = datetime(2026, 3, 1, tzinfo=UTC)
FLUSH = 50_000
SAMPLE_S = 0.25


@dataclass
class Peak:
    """The most that was seen. memory_mb: resident memory of the JVM. disk_mb: Spark's files, with the checkpoint.

    ended: when the first batch had ended, by `time.perf_counter`.
    """

    memory_mb: float = 0.0
    disk_mb: float = 0.0
    ended: float | None = None


def run(name: str) -> Iterator[dict[str, Any]]:
    """A line per number of observations; each in a new JVM, as a rebuild has it."""
    view = registry(1).of_kind(StreamView)[0]
    with own_environment() as (own, _), TemporaryDirectory(prefix="headwater-bench-") as folder:
        settings, filled = replace(own, state=Path(folder)), 0
        os.environ["SPARK_LOCAL_DIRS"] = f"{folder}/spark"
        for generation, events in enumerate(EVENTS, 1):
            _send(settings, filled, events)
            filled = events
            yield _measured(settings, Target(view, generation), events)


def _measured(settings: LogSettings, target: Target, events: int) -> dict[str, Any]:
    spark = SparkSettings.from_environment(os.environ)
    session = start_session(spark, name="bench", threads=os.cpu_count() or 2)
    try:
        began = time.perf_counter()
        with (
            _sampled(settings.state, Checkpoint.of(settings, target.tag)) as peak,
            running(session, settings, target, anew=True) as computed,
        ):
            run_alone(computed)
            seconds = (peak.ended or time.perf_counter()) - began
    finally:
        end(session)
    return {
        "value": round(events / seconds),
        "unit": "observations/s",
        "seconds": round(seconds, 1),
        "memory_mb": round(peak.memory_mb),
        "disk_mb": round(peak.disk_mb),
        "rows": min(events, events // (PER_SECOND * WINDOW_S) * GATES),
        "conditions": f"{events:,} observations, counted by {GATES:,} gates and windows of {WINDOW_S} s: until the end "
        f"of the first batch, in a new JVM with {spark.memory} of heap; Spark's own files and the checkpoint",
    }


@contextmanager
def _sampled(folder: Path, checkpoint: Checkpoint) -> Iterator[Peak]:
    """The peak while the body runs, and when the checkpoint had its first batch."""
    peak, stopped = Peak(), threading.Event()

    def look() -> None:
        while not stopped.wait(SAMPLE_S):
            if peak.ended is None and checkpoint.committed() >= 0:
                peak.ended = time.perf_counter()
            memory = 0
            for child in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    memory += child.memory_info().rss
            peak.memory_mb = max(peak.memory_mb, memory / 1e6)
            peak.disk_mb = max(peak.disk_mb, _size_bytes(folder) / 1e6)

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield peak
    finally:
        stopped.set()
        looking.join()


def _size_bytes(folder: Path) -> int:
    """Of all files; some are removed meanwhile."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += Path(path, name).stat().st_blocks * 512
    return total


def _send(settings: LogSettings, first: int, end: int) -> None:
    """The observations with these numbers, as the API writes them; one is encoded, and the others are like it."""
    topic = settings.topic(OBSERVATIONS)
    producer = Producer(client_config(settings, **IN_BULK, **{"compression.type": "lz4"}))
    example = Report(id="#id", source="#gate", time=START, data=GatePassed(gate="#gate", weight=987_654_321))
    entry = to_entry(example, START, None, None)
    time_text = b"2026-03-01T00:00:00.000000Z"
    assert entry.value is not None
    assert entry.value.count(time_text) == 2  # its time, and when it was recorded
    for number in range(first, end):
        gate, at = b"%d" % (number * 7_919 % GATES), START + timedelta(microseconds=number * 1_000_000 // PER_SECOND)
        value = (
            entry.value.replace(b"#id", b"%d" % number)
            .replace(b"#gate", gate)
            .replace(b"987654321", b"%d" % (number % 9))
            .replace(time_text, at.isoformat(timespec="microseconds")[:26].encode() + b"Z")
        )
        key = f"gate_passed/{gate.decode()}/{number}"
        producer.produce(topic, value, key, timestamp=int(at.timestamp() * 1_000))
        if number % FLUSH == 0:
            producer.flush()
    producer.flush()
