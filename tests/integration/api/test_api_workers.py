"""`headwater api` as several processes: one that is killed is replaced, and all end together. No servers are needed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from headwater.compose.ports import free_port
from tests.integration.api.api_deployment import Deployment, stop
from tests.support.local_http import local_http
from tests.support.waiting import eventually

WORKERS = 2
BOUND_S = 240.0
"""Three processes import everything; on a machine that has other work that is long."""


@pytest.fixture
def api(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The process that was started, and its address; nothing answers where its servers should be."""
    port = free_port()
    variables = {
        "HEADWATER_KAFKA": f"127.0.0.1:{free_port()}",
        "HEADWATER_MODULES": "listings",
        "HEADWATER_STATE": str(tmp_path),
    }
    deployment = Deployment(variables, tmp_path)
    process = deployment.start("api", HEADWATER_API_PORT=str(port), HEADWATER_API_WORKERS=str(WORKERS))
    try:
        yield process, f"http://127.0.0.1:{port}"
    finally:
        stop(process)


def workers(process: subprocess.Popen[bytes]) -> set[int]:
    """The processes that serve; beside them, the parent has one of multiprocessing's own."""
    return {child.pid for child in psutil.Process(process.pid).children() if serves(child)}


def all_workers(process: subprocess.Popen[bytes]) -> set[int]:
    """All of them; none as long as one is missing."""
    found = workers(process)
    return found if len(found) == WORKERS else set()


def serves(process: psutil.Process) -> bool:
    try:
        return any("spawn_main" in word for word in process.cmdline())
    except psutil.NoSuchProcess:  # also one that has just ended
        return False


def lives(url: str) -> bool:
    try:
        return local_http().get(f"{url}/health/live", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.complete
def test_a_worker_that_is_killed_is_replaced_and_all_end_together(api: tuple[subprocess.Popen[bytes], str]) -> None:
    process, url = api
    eventually(lambda: lives(url), "a worker answers", BOUND_S)
    first = eventually(lambda: all_workers(process), "all workers are started", BOUND_S)
    killed, other = first
    os.kill(killed, signal.SIGKILL)
    replaced = eventually(lambda: workers(process) - first, "another worker is started", BOUND_S)
    # without the one that was there all the time, whoever answers is the new one
    os.kill(other, signal.SIGSTOP)
    try:
        eventually(lambda: lives(url), "the new worker answers", BOUND_S)
    finally:
        os.kill(other, signal.SIGCONT)
    process.send_signal(signal.SIGTERM)
    assert process.wait(BOUND_S) == 0
    assert not any(psutil.pid_exists(pid) for pid in first | replaced)


@pytest.mark.complete
def test_workers_end_when_nobody_watches_over_them(api: tuple[subprocess.Popen[bytes], str]) -> None:
    process, url = api
    eventually(lambda: lives(url), "a worker answers", BOUND_S)
    left = eventually(lambda: all_workers(process), "all workers are started", BOUND_S)
    process.kill()
    process.wait()
    eventually(lambda: not any(psutil.pid_exists(pid) for pid in left), "the workers have ended", BOUND_S)
    assert not lives(url)


@pytest.mark.complete
def test_what_no_other_worker_would_do_better_ends_all(tmp_path: Path) -> None:
    wrong = os.environ | {"HEADWATER_API_WORKERS": str(WORKERS), "HEADWATER_API_PORT": str(free_port())}
    wrong["HEADWATER_MODULES"] = "no.such.package"
    ended = subprocess.run(
        [sys.executable, "-m", "headwater.api"], env=wrong, capture_output=True, text=True, timeout=BOUND_S
    )
    assert ended.returncode == 2
    assert 'there is no module "no.such.package"' in ended.stderr
    assert "Traceback" not in ended.stderr
