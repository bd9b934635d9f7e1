"""`make demo`: load the samples, check all views, rebuild them under traffic, check again, and verify every row."""

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
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from headwater.compose.domains import SAMPLE, read_domains
from headwater.compose.errors import ComposeError
from headwater.compose.ports import free_port, free_ports
from headwater.compose.samples.sample import Client, Deployment, open_http
from headwater.compose.services import required, service_specs, wait_for_views
from headwater.compose.settings import HOST, StackSettings
from headwater.compose.stack import Stack, parts_for, parts_text
from headwater.eventlog.capturing import SourceRegistry
from headwater.eventlog.programs.modules import SAFE_PATH, shipped_domains
from headwater.projections.supervision.supervised import Supervisor
from headwater.replay.verify import DIFFERENT_EXIT
from tests.samples.checked import CheckedSample, checked_sample

TRAFFIC_PAUSE_S = 0.02

console = Console(stderr=True)


@dataclass
class Report:
    """The demo's measurements; printed as its last line. numbers: of listings, orders and so on, by these words."""

    numbers: dict[str, int]
    commands: int = 0
    commands_per_s: float = 0.0
    freshness_ms: list[float] = field(default_factory=list)
    rebuild: dict[str, Any] = field(default_factory=dict)
    commands_during_rebuild: int = 0
    verified_rows: int = 0
    mismatches: list[str] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """The JSON line: counts, rates, and the number of mismatches."""
        cuts = statistics.quantiles(self.freshness_ms, n=100) if len(self.freshness_ms) > 1 else [0.0] * 99
        return {
            **self.numbers,
            "commands": self.commands,
            "commands_per_s": round(self.commands_per_s),
            "freshness_p50_ms": round(cuts[49], 1),
            "freshness_p99_ms": round(cuts[98], 1),
            "rebuild_events_per_s": round(self.rebuild.get("events_per_s", 0)),
            "commands_during_rebuild": self.commands_during_rebuild,
            "verified_rows": self.verified_rows,
            "mismatches": len(self.mismatches),
        }


async def play(client: Client, samples: Mapping[str, CheckedSample], deployment: Deployment) -> Report:
    """Send the commands of the samples, check, rebuild under traffic, check again, and verify every row."""
    report = Report({sample.things: sample.number for sample in samples.values()})

    async def check(when: str) -> None:
        found = [text for sample in samples.values() for text in await sample.mismatches(client, deployment)]
        views = len({view for sample in samples.values() for view in sample.views})
        console.print(f"checked {views} views {when}: {len(found)} mismatches")
        for text in found[:10]:
            console.print(f"  {text}", style="red", markup=False)
        report.mismatches += found

    seconds = 0.0
    for domain, sample in samples.items():
        console.print(f"{domain}: sending {sample.number} {sample.things} through the HTTP API")
        await sample.prepare(client, deployment)
        began = time.perf_counter()
        for requests in sample.rounds():
            await asyncio.gather(client.send_all(requests), sample.change())
        seconds += time.perf_counter() - began
    report.commands_per_s = client.sent / seconds
    await check("after the first commands")

    console.print("measuring freshness: from a change to its row in PostgreSQL")
    for sample in samples.values():
        await measure_freshness(client, sample, report)
    await check("after more changes")

    console.print("rebuilding every view from the whole log while commands are sent")
    before, stop = client.sent, asyncio.Event()
    traffic = [asyncio.create_task(trade_on(client, sample, stop)) for sample in samples.values()]
    try:
        report.rebuild = await asyncio.to_thread(replay, deployment.variables, "rebuild")
    finally:
        stop.set()
    await asyncio.gather(*traffic)
    report.commands, report.commands_during_rebuild = client.sent, client.sent - before
    await check("after the rebuild")

    console.print("verifying every row of every view with a separate rebuild")
    report.verified_rows, different = await verify_all(deployment)
    console.print(f"verified {report.verified_rows} rows: {len(different)} differences")
    for text in different:
        console.print(f"  {text}", style="red", markup=False)
    report.mismatches += different
    return report


async def measure_freshness(client: Client, sample: CheckedSample, report: Report) -> None:
    """Change one thing at a time, and measure until the row has it."""
    for number in range(sample.measured):
        took_s, wrong = await sample.write_and_read(client, number)
        report.freshness_ms.append(took_s * 1000)
        report.mismatches += [wrong] if wrong else []


async def trade_on(client: Client, sample: CheckedSample, stop: asyncio.Event) -> None:
    """Change things until stopped."""
    turn = 0
    while not stop.is_set():
        await sample.trade(client, turn)
        turn += 1
        await asyncio.sleep(TRAFFIC_PAUSE_S)


def replay(variables: Mapping[str, str], verb: str) -> dict[str, Any]:
    """Run `replay` for all views, with its progress on standard error; its document, also if rows differ."""
    words = [sys.executable, *SAFE_PATH, "-m", "headwater.replay", verb, "--all", "--json"]
    ran = subprocess.run(words, env=variables, stdout=subprocess.PIPE, text=True, check=False)
    if ran.returncode not in (0, DIFFERENT_EXIT):
        raise ComposeError(f"replay {verb} ended with {ran.returncode}")
    document: dict[str, Any] = json.loads(ran.stdout.strip().splitlines()[-1])
    return document


async def verify_all(deployment: Deployment) -> tuple[int, list[str]]:
    """Run `replay verify --all --json` as a user would: the number of compared rows, and a text per difference.

    A broken log is one more difference.
    """
    summary = await asyncio.to_thread(replay, deployment.variables, "verify")
    compared = [(view["view"], store) for view in summary["views"] for store in view["stores"]]
    different = [
        f"{view} in {store['store']}: {store['differences']} of {store['rows']} rows differ from a rebuild, "
        f"{store['undecided']} kept changing, such as {json.dumps(store['sample'][:1])}"
        for view, store in compared
        if store["differences"] or store["undecided"]
    ]
    broken = {name: summary["log"][name] for name in ("repeated", "out_of_order", "backwards")}
    if any(problems["count"] for problems in broken.values()):
        different.append(f"the log of events is broken: {json.dumps(broken)}")
    return sum(store["rows"] for _, store in compared), different


async def run(domains: Sequence[str]) -> Report:
    """The whole demo of some samples, on its own stack, ports and data, removed afterwards."""
    settings = StackSettings(state := _folder(), free_ports())
    api_port = free_port()
    environment = {
        "HEADWATER_ENVIRONMENT": "demo",
        "HEADWATER_MODULES": ",".join(domains),
        "HEADWATER_STATE": str(state),
        **required(settings, domains),
    }
    async with AsyncExitStack() as cleanup:
        cleanup.push(lambda kind, *_: _clean(state, failed=kind is not None))
        parts = parts_for(domains)
        console.print(f"starting {parts_text(parts)}")
        stack = cleanup.enter_context(Stack(settings, parts))
        console.print(f"starting the handler, the projections and the API on {HOST}:{api_port}")
        watched = list(SourceRegistry.load(domains).sources)
        services = Supervisor(service_specs(stack.settings, api_port, environment, watched))
        cleanup.callback(services.stop)
        await asyncio.to_thread(services.start)
        api = f"http://{HOST}:{api_port}"
        await asyncio.to_thread(wait_for_views, api)
        http = await cleanup.enter_async_context(open_http(api))
        samples = {domain: checked_sample(domain) for domain in domains}
        variables = {**os.environ, **settings.endpoints.environment(), **environment}
        return await play(Client(http), samples, Deployment(settings.endpoints, variables))


def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="headwater-demo-"))
    folder.chmod(0o711)  # PostgreSQL's user must pass it, if this is root
    return folder


def _clean(state: Path, failed: bool) -> None:
    if failed:
        console.print(f"the logs are in {state / 'logs'}", markup=False, highlight=False)
    else:
        for folder in ((state / "postgres").resolve(), state):  # its data may be elsewhere
            shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    """Run the demo of some samples and print its summary; 1 on any mismatch."""
    parser = ArgumentParser(prog="python -m tests.demo", description=__doc__)
    parser.add_argument("--domains", default="", help=f"all, or some of {', '.join(shipped_domains())}")
    report = asyncio.run(run(read_domains(parser.parse_args().domains) or SAMPLE))
    print(json.dumps(report.summary()), flush=True)
    return 1 if report.mismatches else 0


if __name__ == "__main__":
    sys.exit(main())
