"""Bench `replay_cluster`: rebuilds on a Spark cluster of two workers with one core each, beside two local processes."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from headwater.eventlog.kafka.log import KafkaLog
from headwater.projections.engines import EngineChoice, SparkQueries, new_engine
from headwater.projections.folding import pool
from headwater.projections.folding.engine import FoldingEngine
from headwater.projections.generations.rebuild.rebuilder import Rebuilder
from headwater.projections.generations.registry.registry import Generations
from headwater.projections.spark.session import SparkSettings, lazy_session
from tests.bench._deployment import own_environment
from tests.bench._replay_views import bench_prices
from tests.bench.replay import EVENTS, ROUNDS, STREAMS, fill

NAMES = ("replay_cluster",)
WORKERS, MEMORY_MB = 2, 1024
MASTER = f"local-cluster[{WORKERS},1,{MEMORY_MB}]"
"""A master and workers as processes of their own, which share no disk as far as the tasks know."""


def run(name: str) -> Iterator[dict[str, Any]]:
    """The median of ROUNDS rebuilds on each, in turn, after one of each that does not count."""
    spark = SparkSettings(MASTER, f"{MEMORY_MB}m")
    with (
        own_environment() as (settings, stores),
        closing(KafkaLog(settings)) as log,
        lazy_session(spark, name="bench", threads=WORKERS) as session,
    ):
        fill(settings, log)
        generations = Generations(stores.postgres, settings.environment)
        generations.prepare()
        engines = {
            "cluster": new_engine(settings, log, session, EngineChoice.SPARK),
            "local": FoldingEngine(settings, log, lambda _: pool.opened(WORKERS), None),
        }
        queries = SparkQueries(settings, session)
        taken: dict[str, list[float]] = {engine: [] for engine in engines}
        for number in range(ROUNDS + 1):
            for each, engine in engines.items():
                began = time.monotonic()
                rebuilt = Rebuilder(settings, stores, log, generations, engine, queries).rebuild(bench_prices)
                seconds = time.monotonic() - began - rebuilt.phases.get("hand-over", 0.0)
                if (rebuilt.rows, rebuilt.events) != (STREAMS, EVENTS):
                    raise AssertionError(rebuilt)
                if number:
                    taken[each].append(EVENTS / seconds)
        value, floor = (statistics.median(taken[each]) for each in ("cluster", "local"))
        yield {
            "value": round(value),
            "unit": "events/s",
            "conditions": f"{EVENTS} events to {STREAMS} rows in PostgreSQL, in a process that has rebuilt once, with "
            f"Spark on {MASTER}; {settings.partitions} partitions, {os.cpu_count()} cores shared with the servers; "
            f"median of {ROUNDS}; floor: a new pool of {WORKERS} local processes for each rebuild",
            "floor": round(floor),
            "ratio": round(value / floor, 2),
            "all": [round(each) for each in taken["cluster"]],
        }
