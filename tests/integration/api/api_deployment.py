"""What the API's integration tests share: a deployment of their own, and its processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from headwater.compose.ports import free_port
from headwater.eventlog.settings import LogSettings
from headwater.projections.settings import StoreSettings
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[3]
START_S = 240.0
PATIENT = {"HEADWATER_ANSWER_TIMEOUT_S": "60"}
"""On a busy machine, a handler may take long to answer a command."""


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

    def start(self, module: str, *words: str, **variables: str) -> subprocess.Popen[bytes]:
        """Start `python -m headwater.MODULE`, with these words; its output goes to a file in `folder`."""
        with (self.folder / f"{module}.log").open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", f"headwater.{module}", *words],
                cwd=ROOT,
                env=os.environ | self.variables | variables,
                stdout=output,
                stderr=subprocess.STDOUT,
            )


@contextmanager
def serving(deployment: Deployment, **variables: str) -> Iterator[httpx.Client]:
    """A client of `headwater api`, once it is ready."""
    port = free_port()
    process = deployment.start("api", **{"HEADWATER_API_PORT": str(port), **PATIENT, **variables})
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
        try:
            eventually(lambda: process.poll() is not None or is_ready(client), "the API is ready", START_S)
            assert process.poll() is None, (deployment.folder / "api.log").read_text()
            yield client
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(240)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def is_ready(client: httpx.Client) -> bool:
    """Whether it can serve requests, except those that wait for views: most tests have no process that keeps them."""
    try:
        parts = client.get("/health/ready").json()["parts"]
        return all(state == "ready" for name, state in parts.items() if name != "views")
    except httpx.TransportError:
        return False
