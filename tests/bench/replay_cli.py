"""Bench `replay_cli`: a rebuild as its user starts it, from the shell with nothing warm, beside a loop by hand."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import orjson

from eventlog.kafka import KafkaLog
from eventlog.settings import LogSettings
from projections.settings import StoreSettings
from tests.bench._deployment import ROOT, own_environment
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
            seconds, _ = command([sys.executable, "-m", "tests.bench._replay_in_python"], env)
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


def rebuilding(*words: str) -> list[str]:
    """The command that rebuilds these views, or --all."""
    return [sys.executable, "-m", "replay", "rebuild", *words, "--json"]


def environment(settings: LogSettings, stores: StoreSettings, modules: str) -> dict[str, str]:
    """What points a command at a deployment with these modules."""
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "HEADWATER_KAFKA": settings.bootstrap,
        "HEADWATER_ENVIRONMENT": settings.environment,
        "HEADWATER_PARTITIONS": str(settings.partitions),
        "HEADWATER_STATE": str(settings.state),
        "HEADWATER_POSTGRES": stores.postgres,
        "HEADWATER_ELASTICSEARCH": stores.elasticsearch,
        "HEADWATER_VALKEY": stores.valkey,
        "HEADWATER_MODULES": modules,
    }


def command(words: list[str], env: Mapping[str, str]) -> tuple[float, bytes]:
    """Run it; returns the seconds that it took, and its standard output."""
    began = time.monotonic()
    done = subprocess.run(words, env=env, cwd=ROOT, check=False, capture_output=True)
    seconds = time.monotonic() - began
    if done.returncode:
        raise RuntimeError(done.stderr.decode()[-2000:])
    return seconds, done.stdout
