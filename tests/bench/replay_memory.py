"""Bench `replay_memory`: how much memory a rebuild in local processes takes, for logs and views of several sizes."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from typing import Any

import orjson
import psutil

from headwater.eventlog.kafka.log import KafkaLog
from tests.bench._commands import environment, rebuilding
from tests.bench._deployment import ROOT, own_environment
from tests.bench._replay_views import bench_prices, bench_rows
from tests.bench.replay import STREAMS, fill

NAMES = ("replay_memory",)
EVENTS = (1_000_000, 2_000_000, 4_000_000)
ROWS = int(os.environ.get("HEADWATER_BENCH_ROWS", "5000000"))
SAMPLE_S = 0.1


def run(name: str) -> Iterator[dict[str, Any]]:
    """A line for each number of events, then one for a view with a row per event."""
    with own_environment() as (settings, stores), closing(KafkaLog(settings)) as log:
        env = environment(settings, stores, "listings,tests.bench._replay_views")
        filled = 0
        for events, view, rows in [
            *((event, bench_prices.name, STREAMS) for event in EVENTS),
            (ROWS, bench_rows.name, ROWS),
        ]:
            fill(settings, log, events - filled, first=filled, compression_type="lz4")
            filled = events
            peak, each_peak, rebuilt = _measured([*rebuilding(view), "--engine", "local"], env)
            if (rebuilt["rows"], rebuilt["events"]) != (rows, events):
                raise AssertionError(rebuilt)
            yield {
                "value": round(peak),
                "unit": "MB",
                "conditions": f"peak of the resident memory of all processes of one `replay rebuild`, summed (shared "
                f"pages count in each), every {SAMPLE_S:g} s; {events} events to {rows} rows in PostgreSQL, in local "
                f"processes; {os.cpu_count()} cores",
                "largest_mb": round(each_peak),
                "bulk_s": round(rebuilt["phases"]["bulk"], 2),
            }


def _measured(words: list[str], env: Mapping[str, str]) -> tuple[float, float, dict[str, Any]]:
    """The peak of the sum over all processes, and of one process, in MB; and what was rebuilt."""
    peak = largest = 0.0
    with subprocess.Popen(words, env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        parent = psutil.Process(process.pid)
        while process.poll() is None:
            sizes = [0.0]
            with suppress(psutil.Error):
                for each in (parent, *parent.children(recursive=True)):
                    with suppress(psutil.Error):
                        sizes.append(each.memory_info().rss / 1e6)
            peak, largest = max(peak, sum(sizes)), max(largest, *sizes)
            time.sleep(SAMPLE_S)
        assert process.stdout is not None
        assert process.stderr is not None
        if process.returncode:
            raise RuntimeError(process.stderr.read().decode()[-2000:])
        (rebuilt,) = orjson.loads(process.stdout.read())["views"]
    return peak, largest, rebuilt
