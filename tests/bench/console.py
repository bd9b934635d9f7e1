"""Bench `console`: the pages of operators with 26 views and two million events, and what a page that is open costs."""

from __future__ import annotations

import os
import random
import re
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import httpx
import psutil

from headwater.api.console.operations import EVERY_S
from headwater.compose.ports import free_port
from headwater.eventlog.kafka.log import KafkaLog
from headwater.projections.registry import ViewRegistry
from headwater.projections.table.view import TableView
from tests.bench._commands import command, environment, rebuilding
from tests.bench._deployment import own_environment, process, quantiles
from tests.bench._waiting import eventually
from tests.bench.replay import EVENTS, STREAMS, fill

NAMES = ("console",)
MODULES: Final = "listings,tests.bench._many_views"
LOOKS, PAGES, SCANS = 20, 200, 3
IDLE_S: Final = 30.0
SCANNED: Final = 100_000
"""Offsets of the log after which a page that reads it is left."""


def run(name: str) -> Iterator[dict[str, Any]]:
    """A line for each page, and one for an open page that nobody looks at."""
    with own_environment() as (settings, stores), closing(KafkaLog(settings)) as log:
        fill(settings, log)
        port = free_port()
        env = environment(settings, stores, MODULES) | {"HEADWATER_API_PORT": str(port), "HEADWATER_API_OPEN": "true"}
        tables = [view.name for view in ViewRegistry.load(MODULES.split(",")).of_kind(TableView)]
        command([*rebuilding(*tables), "--engine", "local"], env)
        with TemporaryDirectory(prefix="headwater-bench-") as folder:
            env["HEADWATER_STATE"] = folder
            with (
                process(["-m", "headwater.api"], env, Path(folder) / "api.log") as api,
                httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
            ):
                eventually(lambda: _answers(client), "the API answers", 60)
                known = f"{len(tables)} views that are built, {EVENTS} events"
                yield _timed(lambda: _page(client, "/console"), LOOKS, f"the first page, {known}", EVERY_S + 0.2)
                yield _timed(
                    lambda: _page(client, "/console"), PAGES, f"the first page soon after another one, {known}"
                )
                yield _timed(
                    lambda: _why(client), PAGES, f"a row of `listings`, and the {EVENTS // STREAMS} events of it"
                )
                yield _timed(lambda: _page(client, "/console/streams"), PAGES, f"the newest events of {EVENTS}")
                yield _scanned(client)
                yield _idle(client, psutil.Process(api))


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/health/live").is_success and _page(client, "/console") != ""
    except httpx.TransportError:
        return False


def _page(client: httpx.Client, path: str) -> str:
    return client.get(path).raise_for_status().text


def _why(client: httpx.Client) -> None:
    key = f"L{random.randrange(STREAMS):06d}"
    text = _page(client, f"/console/views/listings/row?key={key}")
    if f"listing/{key}/{EVENTS // STREAMS}" not in text:
        raise AssertionError(f"the last event of {key} is missing")


def _timed(ask: Callable[[], object], times: int, what: str, pause_s: float = 0.0) -> dict[str, Any]:
    took_ms = list[float]()
    for number in range(times + 1):
        time.sleep(pause_s)
        began = time.perf_counter()
        ask()
        if number:  # the first one makes templates and connections
            took_ms.append((time.perf_counter() - began) * 1000)
    p95 = statistics.quantiles(took_ms, n=20, method="inclusive")[-1]
    return quantiles(took_ms) | {"p95_ms": round(p95, 2), "conditions": f"{what}; one after another, by one client"}


def _scanned(client: httpx.Client) -> dict[str, Any]:
    """How long a page takes that reads the log until it shows something, and how fast it reads."""
    first_ms, rates = list[float](), list[float]()
    for _ in range(SCANS):
        began = time.perf_counter()
        path = "/console/views/city_market/row/scan?key=NOWHERE"
        with client.stream("GET", path) as answer:
            if answer.status_code != httpx.codes.OK:
                answer.read()
                raise AssertionError(answer.text[:2000])
            read = 0
            for text in answer.iter_text():
                if not read:
                    first_ms.append((time.perf_counter() - began) * 1000)
                read = max([read, *(int(each) for each in re.findall(r'<progress value="(\d+)"', text))]) or 1
                if read >= SCANNED:
                    break
        rates.append(read / (time.perf_counter() - began))
    return {
        "value": round(statistics.median(rates)),
        "unit": "events/s",
        "first_ms": [round(each, 1) for each in first_ms],
        "conditions": f"a page that reads the log for a row, left after {SCANNED} events; median of {SCANS}",
    }


def _idle(client: httpx.Client, api: psutil.Process) -> dict[str, Any]:
    """Processor time of the API while a browser asks for the first page again as often as it does, and without it."""
    cores = {"open": _cores(api, lambda: _page(client, "/console")), "closed": _cores(api, lambda: None)}
    return {
        "value": round(cores["open"] - cores["closed"], 4),
        "unit": "cores",
        "floor": round(cores["closed"], 4),
        "conditions": f"of the API, by a first page that is open for {IDLE_S:g} s; floor: without one; "
        f"{os.cpu_count()} cores",
    }


def _cores(api: psutil.Process, ask: Callable[[], object]) -> float:
    before, began = api.cpu_times(), time.monotonic()
    while time.monotonic() - began < IDLE_S:
        ask()
        time.sleep(EVERY_S)
    used = api.cpu_times()
    spent_s: float = used.user + used.system - before.user - before.system
    return spent_s / (time.monotonic() - began)
