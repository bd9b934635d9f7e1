"""Bench `replay_all`: from the shell, several views in one rebuild, beside a rebuild of each after the other."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import orjson

from headwater.eventlog.kafka.log import KafkaLog
from headwater.projections.registry import ViewRegistry
from headwater.projections.table.view import TableView
from tests.bench._commands import command, environment, rebuilding
from tests.bench._deployment import own_environment
from tests.bench.replay import EVENTS, ROUNDS, STREAMS, fill

NAMES = ("replay_all",)
SAMPLES, TEN = "listings", "tests.bench._ten_views"


def run(name: str) -> Iterator[dict[str, Any]]:
    """A line for the sample views in all stores, and one for ten views in PostgreSQL."""
    with own_environment() as (settings, stores), closing(KafkaLog(settings)) as log:
        fill(settings, log)
        samples = [view.name for view in ViewRegistry.load([SAMPLES]).of_kind(TableView)]
        yield _measured(environment(settings, stores, SAMPLES), samples, samples, "all stores", settings.partitions)
        ten = [view for view in ViewRegistry.load([SAMPLES, TEN]).views if view.startswith("bench_ten_")]
        # two of them stand for all: one with few columns, one with many
        yield _measured(
            environment(settings, stores, f"{SAMPLES},{TEN}"), ten, [ten[5], ten[9]], "PostgreSQL", settings.partitions
        )


def _measured(
    env: Mapping[str, str], views: list[str], measured: list[str], where: str, partitions: int
) -> dict[str, Any]:
    """The median of ROUNDS, in each of which all views are rebuilt together, and then each of `measured` alone."""
    together: list[float] = []
    alone: dict[str, list[float]] = {view: [] for view in measured}
    for _ in range(ROUNDS):
        together.append(_rebuilt(views, views, env))
        for view in measured:
            alone[view].append(_rebuilt([view], [view], env))
    ratios = [
        len(views) * statistics.mean(each) / taken for *each, taken in zip(*alone.values(), together, strict=True)
    ]
    return {
        "value": round(statistics.median(ratios), 2),
        "unit": "times as fast",
        "conditions": f"`replay rebuild` of {len(views)} views in {where}, beside the sum of one of each (measured: "
        f"{len(measured)}); {EVENTS} events of {STREAMS} listings, which all of them read; from the start "
        f"of a command to the swap, in local processes; {partitions} partitions, {os.cpu_count()} cores shared with "
        f"the servers; median of {ROUNDS}",
        "all": [round(ratio, 2) for ratio in ratios],
        "together_s": [round(each, 2) for each in together],
        "alone_s": {view: [round(each, 2) for each in taken] for view, taken in alone.items()},
    }


def _rebuilt(words: list[str], views: list[str], env: Mapping[str, str]) -> float:
    """Seconds, without the wait for the hand-over to running loaders, after the last swap."""
    seconds, output = command([*rebuilding(*words), "--engine", "local"], env)
    rebuilt = orjson.loads(output)["views"]
    if sorted(view["view"] for view in rebuilt) != sorted(views) or any(each["events"] < EVENTS for each in rebuilt):
        raise AssertionError(rebuilt)
    hand_over: float = min(each["phases"].get("hand-over", 0.0) for each in rebuilt)
    return seconds - hand_over
