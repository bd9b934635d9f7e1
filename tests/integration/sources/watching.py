"""`headwater sources watch` as a process, and a server that stays away until a test lets it come back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from headwater.compose.stack import Stack
from tests.support.processes import ends_of
from tests.support.waiting import BOUND_S, Latest, eventually


@dataclass(frozen=True)
class Watch:
    """A watch that runs, and the file that it logs to."""

    process: subprocess.Popen[bytes]
    file: Path

    def lines(self, text: str) -> list[str]:
        """The lines of its log that have this text."""
        return [line for line in self.file.read_text().splitlines() if text in line]

    def wait_for(self, text: str) -> None:
        """Return once it has logged this."""
        eventually(
            lambda: self.lines(text) or self.process.poll() is not None,
            Latest(lambda: f"'{text}' in the log of the watch:\n{ends_of(self.file)}"),
        )
        assert self.lines(text), self.file.read_text()

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it by this signal, and check that it ends well and has logged sentences only."""
        self.process.send_signal(how)
        code, logged = self.process.wait(BOUND_S), self.file.read_text()
        assert code == 0, logged
        assert "Traceback" not in logged, logged


@contextmanager
def watching(variables: Mapping[str, str], file: Path) -> Iterator[Watch]:
    """A watch over the sources of a deployment with these variables."""
    with file.open("wb") as log:
        argv = [sys.executable, "-m", "headwater.eventlog.capturing", "watch"]
        process = subprocess.Popen(argv, env={**os.environ, **variables}, stdout=log, stderr=subprocess.STDOUT)
    watch = Watch(process, file)
    try:
        watch.wait_for("watching ")
        yield watch
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


@contextmanager
def away(servers: Stack, part: str) -> Iterator[None]:
    """Kill a server, and keep it from starting again until the end of the block."""
    process = servers[part]
    usual, back = process.spec, threading.Event()

    def prepare() -> None:
        back.wait()
        usual.prepare()

    process.spec = replace(usual, prepare=prepare)
    try:
        servers[part].kill()
        yield
    finally:
        process.spec = usual
        back.set()
        servers[part].wait_healthy()
