"""`make demo`: real listings through the command API, every view checked against pandas, rebuilt under traffic."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
from rich.console import Console

from compose import sacramento
from compose.checks import mismatches
from compose.errors import ComposeError
from compose.ports import free_port, free_ports
from compose.sacramento import Request
from compose.services import service_specs
from compose.settings import HOST, StackSettings
from compose.stack import Stack
from projections.supervision.supervisor import Supervisor

CONCURRENCY = 64
VIEWS = ("listings", "listing_search", "listing_card", "city_market")
SETTLE_S = 120.0
FRESHNESS_SAMPLES = 100
TRAFFIC_PAUSE_S = 0.02

console = Console(stderr=True)


@dataclass
class Report:
    """The demo's measurements; printed as its last line."""

    listings: int = 0
    commands: int = 0
    commands_per_s: float = 0.0
    freshness_ms: list[float] = field(default_factory=list)
    rebuild: dict[str, Any] = field(default_factory=dict)
    commands_during_rebuild: int = 0
    mismatches: list[str] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """The JSON line: counts, rates, and the number of mismatches."""
        cuts = statistics.quantiles(self.freshness_ms, n=100) if len(self.freshness_ms) > 1 else [0.0] * 99
        return {
            "listings": self.listings,
            "commands": self.commands,
            "commands_per_s": round(self.commands_per_s),
            "freshness_p50_ms": round(cuts[49], 1),
            "freshness_p99_ms": round(cuts[98], 1),
            "rebuild_events_per_s": round(self.rebuild.get("events_per_s", 0)),
            "commands_during_rebuild": self.commands_during_rebuild,
            "mismatches": len(self.mismatches),
        }


class Client:
    """The demo's HTTP client: sends commands and remembers the last positions."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http
        self.positions: dict[int, int] = {}
        self._slots = asyncio.Semaphore(CONCURRENCY)

    async def send(self, request: Request, command_id: str | None = None) -> dict[str, Any]:
        """Send one command; with an id, a repetition does no harm.

        Raises ComposeError with the API's answer if it is not accepted.
        """
        headers = {} if command_id is None else {"Idempotency-Key": command_id}
        async with self._slots:
            answer = await self.http.post(f"/commands/{request.type}", json=request.body, headers=headers)
        if not answer.is_success:
            raise ComposeError(f"{request.type} {request.body} was answered {answer.status_code}: {answer.text}")
        receipt: dict[str, Any] = answer.json()
        for event in receipt["events"]:
            partition, offset = map(int, event["position"].split(":"))
            self.positions[partition] = max(offset, self.positions.get(partition, -1))
        return receipt

    async def send_all(self, requests: Sequence[Request]) -> None:
        """Send many at once, in any order."""
        await asyncio.gather(*(self.send(request) for request in requests))

    async def settle(self, views: Sequence[str] = VIEWS) -> None:
        """Wait until these views have applied every event of this client's commands.

        Raises ComposeError if one has not within SETTLE_S.
        """
        after = ",".join(f"{partition}:{offset}" for partition, offset in sorted(self.positions.items()))
        key = {"city_market": "Sacramento", "streams": "listing/sacramento-1/1"}
        deadline = time.monotonic() + SETTLE_S
        for view in views:
            path = f"/views/{view}/{key.get(view, 'sacramento-1')}"
            while (answer := await self.http.get(path, params={"after": after})).status_code == 503:
                if time.monotonic() > deadline:
                    raise ComposeError(f"{view} has not caught up within {SETTLE_S:.0f} s: {answer.text}")


async def play(client: Client, settings: StackSettings, environment: dict[str, str]) -> Report:
    """Load listings, trade, check, rebuild under traffic, check again."""
    frame, report = sacramento.load(), Report()
    name = environment["HEADWATER_ENVIRONMENT"]

    console.print(f"listing {len(frame)} properties through the HTTP API")
    rounds = [sacramento.list_all(frame), *sacramento.trade(frame)]
    began = time.perf_counter()
    for requests in rounds:
        await client.send_all(requests)
        report.commands += len(requests)
    report.listings, report.commands_per_s = len(frame), report.commands / (time.perf_counter() - began)
    await check(client, frame, settings, name, report, "after listing and trading")

    console.print("measuring freshness: from a price change to its new row in PostgreSQL")
    report.commands += await measure_freshness(client, frame, report)
    await check(client, frame, settings, name, report, "after more price changes")

    console.print("rebuilding every view from the whole log while commands are sent")
    stop = asyncio.Event()
    traffic = asyncio.create_task(trade_on(client, frame, stop))
    try:
        report.rebuild = await rebuild_all(settings, environment)
    finally:
        stop.set()
    report.commands_during_rebuild = await traffic
    report.commands += report.commands_during_rebuild
    await check(client, frame, settings, name, report, "after the rebuild")
    return report


async def check(
    client: Client, frame: pd.DataFrame, settings: StackSettings, environment: str, report: Report, when: str
) -> None:
    """Compare every view in its store with pandas and add the differences to the report."""
    await client.settle()
    found = await asyncio.to_thread(mismatches, frame, settings.endpoints, environment)
    console.print(f"checked {len(VIEWS)} views {when}: {len(found)} mismatches")
    for text in found[:10]:
        console.print(f"  {text}", style="red", markup=False)
    report.mismatches += found


async def measure_freshness(client: Client, frame: pd.DataFrame, report: Report) -> int:
    """Change prices one at a time, and measure from the receipt until the row has it. Returns the commands."""
    keys = list(frame.index[frame["status"] == "listed"])[:FRESHNESS_SAMPLES]
    for key in keys:
        receipt = await client.send(sacramento.change_price(frame, key, int(frame.at[key, "price"]) + 1000))
        began = time.perf_counter()
        answer = await client.http.get(f"/views/listings/{key}", params={"after": receipt["position"]})
        report.freshness_ms.append((time.perf_counter() - began) * 1000)
        if answer.json().get("price") != frame.at[key, "price"]:
            report.mismatches.append(f"listings/{key} did not show its own write: {answer.text}")
    return len(keys)


async def trade_on(client: Client, frame: pd.DataFrame, stop: asyncio.Event) -> int:
    """Change prices until stopped; returns their number."""
    keys = list(frame.index[frame["status"] == "listed"])
    sent = 0
    while not stop.is_set():
        key = keys[sent % len(keys)]
        await client.send(sacramento.change_price(frame, key, int(frame.at[key, "price"]) + 500))
        sent += 1
        await asyncio.sleep(TRAFFIC_PAUSE_S)
    return sent


async def rebuild_all(settings: StackSettings, environment: dict[str, str]) -> dict[str, Any]:
    """Run `replay rebuild --all --json` as a user would; returns its summary."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "replay",
        "rebuild",
        "--all",
        "--json",
        env={**os.environ, **settings.endpoints.environment(), "HEADWATER_STATE": str(settings.state), **environment},
        stdout=subprocess.PIPE,
    )
    output, _ = await process.communicate()
    if process.returncode:
        raise ComposeError(f"replay rebuild --all ended with {process.returncode}: {output.decode()}")
    summary: dict[str, Any] = json.loads(output.decode().strip().splitlines()[-1])
    return summary


def wait_for_views(api: str, timeout_s: float = 120.0) -> None:
    """Return when every view has a live generation; raises ComposeError if one has none in time."""
    deadline, missing = time.monotonic() + timeout_s, "no answer"
    while time.monotonic() < deadline:
        answer = httpx.get(f"{api}/views")
        if answer.is_success:
            missing = ", ".join(view["name"] for view in answer.json()["views"] if not view.get("generation"))
            if not missing:
                return
        time.sleep(0.2)
    raise ComposeError(f"no live generation after {timeout_s:.0f} s: {missing}; see projections.log")


async def run() -> Report:
    """The whole demo on its own stack, ports and data, removed afterwards."""
    state = Path(tempfile.mkdtemp(prefix="headwater-demo-"))
    settings = StackSettings(state, free_ports())
    api_port = free_port()
    environment = {"HEADWATER_ENVIRONMENT": "demo"}
    async with AsyncExitStack() as cleanup:
        cleanup.push(lambda kind, *_: _clean(state, failed=kind is not None))
        console.print("starting Kafka, PostgreSQL, Elasticsearch and Valkey")
        stack = cleanup.enter_context(Stack(settings))
        console.print(f"starting the handler, the projections and the API on {HOST}:{api_port}")
        services = Supervisor(service_specs(stack.settings, api_port, environment))
        cleanup.callback(services.stop)
        await asyncio.to_thread(services.start)
        api = f"http://{HOST}:{api_port}"
        await asyncio.to_thread(wait_for_views, api)
        http = await cleanup.enter_async_context(httpx.AsyncClient(base_url=api, timeout=60.0))
        return await play(Client(http), settings, environment)


def _clean(state: Path, failed: bool) -> None:
    if failed:
        console.print(f"the logs are in {state / 'logs'}", markup=False, highlight=False)
    else:
        shutil.rmtree(state, ignore_errors=True)


def main() -> int:
    """Run the demo and print its summary; 1 on any mismatch."""
    report = asyncio.run(run())
    print(json.dumps(report.summary()), flush=True)
    return 1 if report.mismatches else 0
