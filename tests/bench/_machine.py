"""What a measurement was taken on: without it, a number says little."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[2]
SAMPLE_S = 0.5
ADDITIONS = 10_000_000
BUSY_CORES = 0.05
"""A process that takes less of a core is no company."""


def machine(stack: str) -> dict[str, Any]:
    """The machine as it is now; stack: see `servers`. load: runnable processes, over one minute and over five.

    loop_s: processor time of ADDITIONS in Python, which tells machines with the same number of cores apart.
    others: what else runs, by name, in cores; the process itself and what it started are left out.
    """
    one, five, _ = os.getloadavg()
    return {
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9),
        "python": platform.python_version(),
        "commit": commit(),
        "stack": stack,
        "loop_s": loop_s(),
        "load": [round(one, 2), round(five, 2)],
        "others": others(),
    }


def loop_s() -> float:
    """Processor time of a loop of ADDITIONS, in seconds."""
    began, total = time.process_time(), 0
    for number in range(ADDITIONS):
        total += number
    return round(time.process_time() - began, 2)


def commit() -> str:
    """The commit that is checked out, with a plus if files differ from it; empty outside of a repository."""
    try:
        head = _git("rev-parse", "--short=12", "HEAD")
        return head + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


def others() -> dict[str, float]:
    """Cores that other processes take, those with the most first."""
    ours = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
    watched = [each for each in psutil.process_iter(["name"]) if each.pid not in ours]
    _cpu(watched)
    psutil.cpu_percent(SAMPLE_S)
    found: dict[str, float] = {}
    for name, cores in _cpu(watched):
        found[name] = found.get(name, 0.0) + cores
    busy = {name: round(cores, 2) for name, cores in found.items() if cores >= BUSY_CORES}
    return dict(sorted(busy.items(), key=lambda each: -each[1])[:5])


def _cpu(processes: list[psutil.Process]) -> list[tuple[str, float]]:
    """By name, the cores taken since the last call."""
    found = []
    for process in processes:
        try:
            found.append((process.info["name"] or "?", process.cpu_percent() / 100))
        except psutil.Error:
            continue  # it has ended
    return found


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
