"""Bench `sizing`: what each part of a deployment spends per command at its limit, and the memory that it takes.

Four clients send NDJSON as fast as it is answered, through one, two and four handlers and API processes, with the
sample `listings`. Each line has the processor time per command of every part, servers included, from HTTP to the last
row. Where all of them share few cores, that is what a part adds to a plan, and the rate is only what they reach
together.
"""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from typing import Any, Final

from tests.bench._deployment import ROOT
from tests.bench._processes import COMPILING, memory_mb, spent_s
from tests.bench.cost import deployment, settle

NAMES = ("sizing",)
NUMBERS: Final = ((1, 1), (2, 1), (4, 1), (1, 2), (1, 4))
"""Of handlers and API processes."""
WARM_UP: Final = 20_000
COMMANDS: Final = 60_000


def run(name: str) -> Iterator[dict[str, Any]]:
    """A line for each of NUMBERS."""
    for handlers, workers in NUMBERS:
        yield _measured(handlers, workers)


def _measured(handlers: int, workers: int) -> dict[str, Any]:
    with deployment(ROOT, handlers=handlers, workers=workers) as running:
        run = f"sizing-{uuid.uuid4().hex[:8]}"
        _send(running.url, "prepare", run, 0, 0)
        _send(running.url, "full", run, 0, WARM_UP)
        settle(running.url)
        began, spent = time.monotonic(), spent_s(running.roots)
        _send(running.url, "full", run, WARM_UP, COMMANDS)
        answered_s = time.monotonic() - began
        settle(running.url)
        seconds = time.monotonic() - began
        spent = spent_s(running.roots) - spent
        memory = memory_mb(running.roots)
    by = {part: round(value / COMMANDS * 1e6, 1) for part, value in spent.most_common()}
    return {
        "value": round(COMMANDS / answered_s),
        "unit": "commands/s",
        "handlers": handlers,
        "api_processes": workers,
        "us_per_command": by,
        "rows_after_s": round(seconds - answered_s, 1),
        "memory_mb": memory,
        "conditions": f"{COMMANDS} commands in NDJSON by four clients, {handlers} handlers, {workers} API processes; "
        f"microseconds per command: {', '.join(f'{part} {value}' for part, value in by.items() if part != COMPILING)}",
    }


def _send(url: str, how: str, run: str, first: int, number: int) -> None:
    """Send with a client in a process of its own; see `_cost_load.load`."""
    words = [sys.executable, "-m", "tests.bench._cost_load", url, how, run, str(first), str(number), "1"]
    subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.PIPE)
