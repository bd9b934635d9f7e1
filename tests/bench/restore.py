"""How long a handler takes until it serves a million aggregates, and what memory it needs for them."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from headwater.commands.codec import write_snapshot
from headwater.eventlog import topics
from headwater.eventlog.envelope import Envelope, encode, partition_of, timestamp_ms
from headwater.eventlog.kafka.client import client_config
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.settings import LogSettings
from headwater.samples.listings.domain import Listing, listing
from tests.bench._handlers import handler, peak_mb
from tests.bench._waiting import eventually
from tests.bench.commands import deployment, now
from tests.support.ordered_producer import IN_BULK

NAMES = ("restore",)
SNAPSHOTS = 1_000_000
COMMANDS = 100_000
SERVING = re.compile(r'partition \d+: serving "commands"')


def run(name: str) -> Iterator[dict[str, Any]]:
    """Serve SNAPSHOTS aggregates cold, then again warm, and decide COMMANDS of as many of them."""
    settings = LogSettings.from_environment(os.environ)
    with deployment(settings) as ours, tempfile.TemporaryDirectory() as folder:
        write_snapshots(ours)
        state = Path(folder)
        cold_s, cold_mb, _ = serve(ours, state, "cold")
        warm_s, _, _ = serve(ours, state, "warm")
        _, warm_mb, busy_mb = serve(ours, state, "busy", commands=COMMANDS)
        size_mb = sum(file.stat().st_size for file in state.rglob("*") if file.is_file()) >> 20
        yield {
            "value": round(cold_s, 1),
            "unit": "s",
            "conditions": f"{SNAPSHOTS} snapshots of listings in {ours.partitions} partitions; from the start of the "
            f"handler process until it serves all partitions; memory at its peak, after {COMMANDS} commands of "
            "different listings",
            "cold_s": round(cold_s, 1),
            "warm_s": round(warm_s, 1),
            "rss_mb": max(cold_mb, busy_mb),
            "rss_cold_mb": cold_mb,
            "rss_warm_mb": warm_mb,
            "disk_mb": size_mb,
        }


def serve(settings: LogSettings, state: Path, name: str, commands: int = 0) -> tuple[float, int, int]:
    """Seconds until all partitions are served, and the process's peak memory then and after `commands`, in MB."""
    lines = state / f"{name}.log"
    started = time.monotonic()
    with handler(settings, state, lines) as process:
        eventually(
            lambda: len(SERVING.findall(lines.read_text())) == settings.partitions,
            "all partitions are served",
            every_s=0.02,
        )
        seconds, idle_mb = time.monotonic() - started, peak_mb(process.pid)
        if commands:
            submit_and_wait(settings, commands)
        return seconds, idle_mb, peak_mb(process.pid)


def write_snapshots(settings: LogSettings) -> None:
    """The snapshots of listings at version 1."""
    write(settings, topics.SNAPSHOTS, (snapshot(number) for number in range(SNAPSHOTS)))


def snapshot(number: int) -> tuple[str, bytes]:
    state = Listing(
        status="listed",
        city=f"City {number % 500}",
        property_type="Residential",
        beds=number % 6,
        baths=number % 4 / 2,
        square_feet=500 + number * 7919 % 3_000,
        price=50_000 + number * 104_729 % 900_000,
    )
    return f"listing/L{number}", write_snapshot(listing, state, 1)


def submit_and_wait(settings: LogSettings, commands: int) -> None:
    """Reprice `commands` different listings, and wait for the answers."""
    log = KafkaLog(settings)
    tail = log.tail(topics.RECEIPTS, dict.fromkeys(range(settings.partitions), 0))
    write(settings, topics.COMMANDS, (repricing(number) for number in range(commands)))
    received = 0

    def answered() -> bool:
        nonlocal received
        received += len(tail.poll(10_000, 0.1))
        return received >= commands

    eventually(answered, "commands are answered", every_s=0.02)
    tail.close()
    log.close()


def repricing(number: int) -> tuple[str, bytes]:
    stream = f"listing/L{number * (SNAPSHOTS // COMMANDS)}"
    body = {"listing_id": stream.partition("/")[2], "price": 50_000}
    return stream, encode(Envelope(f"c{number}", "listing.change_price", stream, now(), body))


def write(settings: LogSettings, topic: str, records: Iterator[tuple[str, bytes]]) -> None:
    """Append records to the partitions of their keys."""
    producer = Producer(client_config(settings, **IN_BULK))
    name, time_ms = settings.topic(topic), timestamp_ms(now())
    for key, value in records:
        producer.produce(name, value, key, partition_of(key, settings.partitions), timestamp=time_ms)
    if producer.flush(60):
        raise TimeoutError(f'"{topic}" could not be written')
