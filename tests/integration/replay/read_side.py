"""The real read side of a deployment under test, and its processes."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil

from headwater.projections.running_parts import EVERYTHING, ready_file
from tests.integration.replay.deployed import START_S, Deployed
from tests.support.waiting import eventually


@contextmanager
def projections(deployed: Deployed) -> Iterator[subprocess.Popen[bytes]]:
    """`headwater projections`, once its live query takes in events; must end cleanly when told to."""
    process = deployed.start("projections")
    try:
        ready = ready_file(deployed.settings, EVERYTHING)
        deployed.eventually(lambda: process.poll() is not None or ready.exists(), "all is up", START_S)
        assert process.poll() is None, deployed.output("projections")
        yield process
        process.terminate()
        assert deployed.ended(process) == 0, deployed.output("projections")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def part(supervisor: subprocess.Popen[bytes], *words: str) -> psutil.Process:
    """The supervised process whose command ends with these words, once it runs: it may be starting again."""

    def found() -> psutil.Process | None:
        for child in psutil.Process(supervisor.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # or a zombie, its subclass
                if tuple(child.cmdline()[-len(words) :]) == words:
                    return child
        return None

    process = eventually(found, f"a process {words}")
    assert process is not None
    return process
