"""Bench `overhead`: metrics that are read, logs as JSON, and traces of one in a hundred, together, against none.

Each of `commands` and `live_throughput` is measured with and without, in turns, so that a machine that has other work
slows both; if that is much, only the processor time says something. Both handle the same records: what the senders of
traces do is not measured. `HEADWATER_BENCH_ROUNDS` says how many turns.
"""

from __future__ import annotations

import os
import statistics
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

from headwater.compose.ports import free_port
from headwater.eventlog.settings import LogSettings
from tests.bench import live
from tests.bench.commands import deployment, handle, submit_commands
from tests.support.collector import collecting

NAMES = ("overhead",)
ROUNDS: Final = int(os.environ.get("HEADWATER_BENCH_ROUNDS", "5"))
TRACED_EVERY: Final = 100
STREAMS: Final = 96_000
WARM_UP_EVENTS, EVENTS = 200_000, 400_000
SCRAPED_S: Final = 5.0
NONE: Final = {"HEADWATER_LOG_LEVEL": "ERROR", "OTEL_SDK_DISABLED": "true"}

Line = dict[str, Any]


def run(name: str) -> Iterator[Line]:
    """Two lines: what it costs the handler, and the live path."""
    with collecting(204) as collector, scraping() as scraped:

        def everything() -> dict[str, str]:
            scraped.append(port := free_port())
            return {
                "HEADWATER_METRICS_PORT": str(port),
                "HEADWATER_LOG_FORMAT": "json",
                "HEADWATER_LOG_LEVEL": "INFO",
                "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
                "OTEL_TRACES_SAMPLER": "parentbased_always_off",
            }

        yield compared("commands", "commands/s", everything, commands)
        yield compared("live_throughput", "events/s", everything, live_path)


def commands(more: Callable[[], Mapping[str, str]]) -> dict[str, float]:
    """Commands per second, and the handler's processor time per command."""
    with deployment(LogSettings.from_environment(os.environ)) as ours:
        number = submit_commands(ours, STREAMS, TRACED_EVERY)
        seconds, cpu_s = handle(ours, number, more(), without_start=True)
    return {"rate": number / seconds, "cpu_us": cpu_s / number * 1e6}


def live_path(more: Callable[[], Mapping[str, str]]) -> dict[str, float]:
    """Events per second through the live query and the loaders, and their processor time per event."""
    measured, seconds, cpu_s = live.path(WARM_UP_EVENTS, EVENTS, traced_every=TRACED_EVERY, more=more)
    return {"rate": measured / seconds, "cpu_us": cpu_s / measured * 1e6}


def compared(
    what: str,
    unit: str,
    everything: Callable[[], Mapping[str, str]],
    measured: Callable[[Callable[[], Mapping[str, str]]], dict[str, float]],
) -> Line:
    """The medians with and without, and the ratio of the time that both take."""
    found: dict[str, list[dict[str, float]]] = {"none": [], "everything": []}
    for number in range(ROUNDS):
        turns = [("none", lambda: NONE), ("everything", everything)]
        for which, more in turns if number % 2 else reversed(turns):
            found[which].append(measured(more))
    rates = {which: [each["rate"] for each in some] for which, some in found.items()}
    medians = {which: statistics.median(some) for which, some in rates.items()}
    pairs = [none / everything for none, everything in zip(rates["none"], rates["everything"], strict=True)]
    line: Line = {
        "what": what,
        "value": round(medians["everything"]),
        "unit": unit,
        "floor": round(medians["none"]),
        "ratio": round(medians["none"] / medians["everything"], 3),
        "ratios": [round(pair, 3) for pair in pairs],
        "all": [round(each) for each in rates["everything"]],
        "conditions": f"{what}, {ROUNDS} rounds in turns: metrics read every {SCRAPED_S:g} s, logs as JSON, and one of "
        f"{TRACED_EVERY} traced, against none; the same records, the same load on the machine",
    }
    spent = {which: statistics.median(each["cpu_us"] for each in some) for which, some in found.items()}
    turns_cpu = zip(found["none"], found["everything"], strict=True)
    return line | {
        "cpu_us": round(spent["everything"], 1),
        "floor_cpu_us": round(spent["none"], 1),
        "ratio_cpu": round(spent["everything"] / spent["none"], 3),
        "ratios_cpu": [round(everything["cpu_us"] / none["cpu_us"], 3) for none, everything in turns_cpu],
    }


@contextmanager
def scraping() -> Iterator[list[int]]:
    """The ports whose metrics are read, as Prometheus does, while the block runs; add to it."""
    ports: list[int] = []
    ended = threading.Event()

    def scrape() -> None:
        while not ended.wait(SCRAPED_S):
            for port in list(ports):
                with suppress(OSError):  # it does not listen yet, or any more
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read()

    scraper = threading.Thread(target=scrape, daemon=True)
    scraper.start()
    try:
        yield ports
    finally:
        ended.set()
        scraper.join()
