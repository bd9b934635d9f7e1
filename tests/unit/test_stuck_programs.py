"""What a test shows of a program that does not end, and that it is gone after it was killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.processes import SHOWS_STACKS, ended, kill
from tests.support.waiting import eventually

STUCK = """
import subprocess, sys, threading, time
def is_stuck_here():
    time.sleep(3_600)
if sys.argv[1:]:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3_600)"])
threading.Thread(target=is_stuck_here, daemon=True).start()
print("started", flush=True)
is_stuck_here()
"""


def start(log: Path, *words: str) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        command, variables = [sys.executable, "-c", STUCK, *words], {**os.environ, **SHOWS_STACKS}
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=variables)
    eventually(lambda: "started" in log.read_text(), "it has started")
    return process


@pytest.mark.programs
def test_the_error_shows_the_stacks_of_a_program_that_does_not_end(tmp_path: Path) -> None:
    process = start(tmp_path / "stuck.log")
    with pytest.raises(AssertionError, match=r"(?s)has not ended within 0\.1 s:.*stuck\.log:.*is_stuck_here"):
        ended(process, tmp_path, 0.1)
    assert process.poll() is not None


@pytest.mark.programs
def test_what_was_killed_is_gone_with_what_it_has_started(tmp_path: Path) -> None:
    process = start(tmp_path / "parent.log", "with a child")
    parent = psutil.Process(process.pid)
    (child,) = parent.children()
    kill(parent)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    kill(parent)
    assert process.wait() < 0
