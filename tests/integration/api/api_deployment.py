"""What the API's integration tests share: a deployment of their own, its processes, and waiting."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from eventlog.settings import LogSettings
from projections.settings import StoreSettings

ROOT = Path(__file__).parents[3]


def eventually(condition: Callable[[], Any], what: str, timeout_s: float = 60.0) -> Any:
    """The first true result of `condition`, asked until then; fails after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if result := condition():
            return result
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {timeout_s:g} s")


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


@dataclass(frozen=True)
class Deployment:
    """One environment on the servers; `variables` point Headwater's processes at it."""

    variables: dict[str, str]
    folder: Path

    @property
    def log(self) -> LogSettings:
        return LogSettings.from_environment(self.variables)

    @property
    def stores(self) -> StoreSettings:
        return StoreSettings.from_environment(self.variables)

    def start(self, module: str, **variables: str) -> subprocess.Popen[bytes]:
        """Start `python -m module`; its output goes to a file in `folder`."""
        with (self.folder / f"{module}.log").open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", module],
                cwd=ROOT,
                env=os.environ | self.variables | variables,
                stdout=output,
                stderr=subprocess.STDOUT,
            )


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/health/ready").status_code == 200
    except httpx.TransportError:
        return False
