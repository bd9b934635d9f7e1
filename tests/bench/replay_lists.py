"""Bench `replay_lists`: a rebuild, from the shell, of a view with lists, beside a view of the same events without."""

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
from tests.bench._commands import command, environment, rebuilding
from tests.bench._deployment import own_environment
from tests.bench._flight_views import Flown, bench_plain_routes, bench_routes
from tests.bench.replay import EVENTS, FIRST_MS, ROUNDS, bulk_producer

NAMES = ("replay_lists",)
ROUTES, CARRIERS, PLANES = 224, 16, 4_000
MODULES = "tests.bench._flight_views"


def run(name: str) -> Iterator[dict[str, Any]]:
    """The median of ROUNDS commands for each view, in turn."""
    with own_environment() as (settings, stores), closing(KafkaLog(settings)) as log:
        size = _fill(settings, log)
        env = environment(settings, stores, MODULES)
        lists, plain, bulk = list[float](), list[float](), list[float]()
        for _ in range(ROUNDS):
            seconds, folding = _rebuilt(bench_routes.name, env)
            lists.append(EVENTS / seconds)
            bulk.append(EVENTS / folding)
            plain.append(EVENTS / _rebuilt(bench_plain_routes.name, env)[0])
        yield {
            "value": round(statistics.median(lists)),
            "unit": "events/s",
            "conditions": f"`replay rebuild` of {EVENTS} flights, of {size:.0f} bytes, to {ROUTES} rows in PostgreSQL, "
            "with distinct, top, nested and average, from the start of the command to the swap, in local processes; "
            f"{settings.partitions} partitions, {os.cpu_count()} cores shared with the servers; median of {ROUNDS}; "
            "bulk: reading, folding and writing only; plain: the same with count and average only",
            "bulk": round(statistics.median(bulk)),
            "plain": round(statistics.median(plain)),
            "ratio": round(statistics.median(lists) / statistics.median(plain), 2),
            "all": [round(each) for each in lists],
        }


def _rebuilt(view: str, env: Mapping[str, str]) -> tuple[float, float]:
    """Seconds to the swap, and of them those of the bulk phase."""
    seconds, output = command([*rebuilding(view), "--engine", "local"], env)
    (rebuilt,) = orjson.loads(output)["views"]
    if (rebuilt["rows"], rebuilt["events"]) != (ROUTES, EVENTS):
        raise AssertionError(rebuilt)
    return seconds - rebuilt["phases"].get("hand-over", 0.0), rebuilt["phases"]["bulk"]


def _fill(settings: LogSettings, log: KafkaLog) -> float:
    """Append the flights, the same at each run; returns the mean size of a record's value in bytes."""
    producer, topic, chance, total = bulk_producer(log), settings.topic(topics.EVENTS), random.Random(2013), 0
    routes = [f"R{number:03d}" for number in range(ROUTES)]
    chance_of_route = [1 / (1 + number) for number in range(ROUTES)]
    carriers_of = {route: chance.sample(range(CARRIERS), chance.randint(1, 6)) for route in routes}
    of_route = chance.choices(routes, chance_of_route, k=EVENTS - ROUTES) + routes
    sample = Envelope(
        "@flight@/1",
        Flown.type,
        "@flight@",
        datetime.fromtimestamp(FIRST_MS / 1000, UTC),
        {"route": "@route@", "carrier": "@carrier@", "tail": "@tail@", "delay_minutes": "@d@", "air_minutes": "@a@"},
        sequence=1,
    )
    text = encode(sample).decode().replace("%", "%%").replace("@flight@", "%(flight)s").replace("@route@", "%(route)s")
    text = text.replace("@carrier@", "%(carrier)s").replace("@tail@", "%(tail)s")
    text = text.replace('"@d@"', "%(delay)d").replace('"@a@"', "%(air)d")
    for number, route in enumerate(of_route):
        flight = f"flight/{number:07d}"
        value = text % {
            "flight": flight,
            "route": route,
            "carrier": f"C{chance.choice(carriers_of[route]):02d}",
            "tail": f"N{int(chance.random() * PLANES):05d}",
            "delay": int(chance.expovariate(0.05)) - 10,
            "air": int(30 + 600 * chance.random()),
        }
        partition = partition_of(flight, settings.partitions)
        producer.produce(topic, value, f"{flight}/1", partition, timestamp=FIRST_MS + number)
        total += len(value)
        if number % 10_000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise TimeoutError("the flights could not be produced")
    return total / EVENTS
