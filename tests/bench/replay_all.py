"""Bench `replay_all`: from the shell, all sample views in one rebuild, beside a rebuild of each after the other."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import orjson

from eventlog.kafka import KafkaLog
from projections.registry import ViewRegistry
from tests.bench._deployment import own_environment
from tests.bench.replay import EVENTS, ROUNDS, STREAMS, fill
from tests.bench.replay_cli import command, environment, rebuilding

NAMES = ("replay_all",)
MODULES = "listings"


def run(name: str) -> Iterator[dict[str, Any]]:
    """The median of ROUNDS, in each of which all are rebuilt together, and then each alone."""
    views = list(ViewRegistry.load([MODULES]).views)
    with own_environment() as (settings, stores), closing(KafkaLog(settings)) as log:
        fill(settings, log)
        env = environment(settings, stores, MODULES)
        together: list[float] = []
        alone: dict[str, list[float]] = {view: [] for view in views}
        for _ in range(ROUNDS):
            together.append(_rebuilt(["--all"], views, env))
            for view in views:
                alone[view].append(_rebuilt([view], [view], env))
        ratios = [sum(each) / taken for *each, taken in zip(*alone.values(), together, strict=True)]
        yield {
            "value": round(statistics.median(ratios), 2),
            "unit": "times as fast",
            "conditions": f"`replay rebuild --all` of {len(views)} views in all stores, beside the sum of a `replay "
            f"rebuild` of each; {EVENTS} events of {STREAMS} listings, which all of them read; from the start of a "
            "command to the swap, in local processes; "
            f"{settings.partitions} partitions, {os.cpu_count()} cores shared with the servers; median of {ROUNDS}",
            "all": [round(each, 2) for each in ratios],
            "together_s": [round(each, 2) for each in together],
            "alone_s": {view: [round(each, 2) for each in taken] for view, taken in alone.items()},
        }


def _rebuilt(words: list[str], views: list[str], env: Mapping[str, str]) -> float:
    """Seconds, without the wait for the hand-over to running loaders, after the last swap."""
    seconds, output = command([*rebuilding(*words), "--engine", "local"], env)
    rebuilt = orjson.loads(output)["views"]
    if sorted(each["view"] for each in rebuilt) != sorted(views) or any(each["events"] < EVENTS for each in rebuilt):
        raise AssertionError(rebuilt)
    hand_over: float = min(each["phases"].get("hand-over", 0.0) for each in rebuilt)
    return seconds - hand_over
