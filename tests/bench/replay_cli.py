"""Bench `replay_cli`: a rebuild as its user starts it, from the shell with nothing warm, beside a loop by hand."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import orjson

from headwater.eventlog.kafka.log import KafkaLog
from tests.bench._commands import BY_HAND, command, environment, rebuilding
from tests.bench._deployment import own_environment
from tests.bench.replay import EVENTS, ROUNDS, STREAMS, fill

NAMES = ("replay_cli",)
VIEW = "bench_prices"


def run(name: str) -> Iterator[dict[str, Any]]:
    """The median of ROUNDS commands with each engine, in turn with the loop by hand."""
    with own_environment() as (settings, stores), closing(KafkaLog(settings)) as log:
        fill(settings, log)
        env = environment(settings, stores, "listings,tests.bench._replay_views")
        taken: dict[str, list[float]] = {"local": [], "spark": [], "by hand": []}
        phases: Mapping[str, float] = {}
        for _ in range(ROUNDS):
            seconds, output = command([*rebuilding(VIEW), "--engine", "local"], env)
            (rebuilt,) = orjson.loads(output)["views"]
            if rebuilt["rows"] != STREAMS:
                raise AssertionError(rebuilt)
            phases = {phase: round(each, 2) for phase, each in rebuilt["phases"].items()}
            # the command waits for the hand-over to running loaders, after the swap
            taken["local"].append(seconds - rebuilt["phases"].get("hand-over", 0.0))
            seconds, _ = command(BY_HAND, env)
            taken["by hand"].append(seconds)
        seconds, output = command([*rebuilding(VIEW), "--engine", "spark"], env)
        (rebuilt,) = orjson.loads(output)["views"]
        taken["spark"].append(seconds - rebuilt["phases"].get("hand-over", 0.0))
        value, floor = (EVENTS / sorted(taken[each])[len(taken[each]) // 2] for each in ("local", "by hand"))
        yield {
            "value": round(value),
            "unit": "events/s",
            "conditions": f"`replay rebuild` of {EVENTS} events to {STREAMS} rows in PostgreSQL, from the start of the "
            f"command to the swap, {settings.partitions} partitions, {os.cpu_count()} cores shared with the servers; "
            f"median of {ROUNDS}; floor: a Python loop by hand in two processes; spark: once",
            "floor": round(floor),
            "ratio": round(value / floor, 2),
            "spark": round(EVENTS / taken["spark"][0]),
            "phases_s": phases,
            "seconds": {each: [round(one, 2) for one in all_of] for each, all_of in taken.items()},
        }
