"""Bench `decimal_sums`: a rebuild that adds up decimals, beside one that adds up the same amounts as integers."""

from __future__ import annotations

import os
import random
import statistics
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import orjson

from headwater.eventlog import topics
from headwater.eventlog.envelope import Envelope, encode, partition_of
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.settings import LogSettings
from tests.bench._bill_views import Charged
from tests.bench._commands import command, environment, rebuilding
from tests.bench._deployment import own_environment
from tests.bench.replay import EVENTS, FIRST_MS, STREAMS, bulk_producer

NAMES = ("decimal_sums",)
ROUNDS = 5
MODULE = "tests.bench._bill_views"


def run(name: str) -> Iterator[dict[str, Any]]:
    """A line for amounts of which hardly one comes twice, and one for a thousand different ones."""
    for different in (10_000_000, 1_000):
        with own_environment() as (settings, stores), closing(KafkaLog(settings)) as log:
            _fill(settings, log, different)
            yield _measured(environment(settings, stores, MODULE), different, settings.partitions)


def _measured(env: Mapping[str, str], different: int, partitions: int) -> dict[str, Any]:
    """The median of ROUNDS, in each of which both views are rebuilt, one after the other."""
    taken: dict[str, list[float]] = {"bench_integers": [], "bench_decimals": []}
    for _ in range(ROUNDS):
        for view, seconds in taken.items():
            seconds.append(_rebuilt(view, env))
    ratios = [one / other for one, other in zip(taken["bench_integers"], taken["bench_decimals"], strict=True)]
    return {
        "value": round(statistics.median(ratios), 2),
        "unit": "of the rate of integers",
        "conditions": f"`replay rebuild` of {EVENTS} events to {STREAMS} rows in PostgreSQL with a count and a sum of "
        f"DECIMAL(12, 2), beside one of integers, in turns; {different} different amounts; from the start of a command "
        f"to the swap, in local processes; {partitions} partitions, {os.cpu_count()} cores shared with the servers; "
        f"median of {ROUNDS}",
        "all": [round(ratio, 2) for ratio in ratios],
        "seconds": {view: [round(each, 2) for each in seconds] for view, seconds in taken.items()},
    }


def _rebuilt(view: str, env: Mapping[str, str]) -> float:
    """Seconds, without the wait for the hand-over to running loaders, after the swap."""
    seconds, output = command([*rebuilding(view), "--engine", "local"], env)
    (rebuilt,) = orjson.loads(output)["views"]
    if rebuilt["rows"] != STREAMS:
        raise AssertionError(rebuilt)
    hand_over: float = rebuilt["phases"].get("hand-over", 0.0)
    return seconds - hand_over


def _fill(settings: LogSettings, log: KafkaLog, different: int) -> None:
    """Append EVENTS charges: each bill is charged in turn."""
    producer, chance = bulk_producer(log), random.Random(0)
    topic, time = settings.topic(topics.EVENTS), datetime.fromtimestamp(FIRST_MS / 1000, UTC)
    for number in range(EVENTS):
        bill_id, cents = f"B{number % STREAMS:06d}", chance.randrange(different)
        stream, version = f"bill/{bill_id}", number // STREAMS + 1
        data = {"bill_id": bill_id, "cents": cents, "amount": f"{cents // 100}.{cents % 100:02d}"}
        envelope = Envelope(f"{stream}/{version}", Charged.type, stream, time, data, sequence=version)
        partition = partition_of(stream, settings.partitions)
        producer.produce(topic, encode(envelope), envelope.id, partition, timestamp=FIRST_MS + number)
        if number % 10_000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise TimeoutError("the events could not be produced")
