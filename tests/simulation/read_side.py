"""The read side of a long simulation: its processes and servers fail too, and its views are compared with replays."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress

import psutil

from headwater.compose.stack import Stack
from headwater.eventlog.settings import LogSettings
from headwater.projections.running_parts import EVERYTHING, ready_file
from tests.simulation.faults import Fault
from tests.simulation.tally import Added
from tests.support.table_views import table_views
from tests.support.waiting import eventually

START_S, STOP_S, VERIFY_S = 400.0, 60.0, 600.0
STORES = ("postgres", "elasticsearch", "valkey")
ATTEMPTS = 4
"""A view that was just held up may take more than the minute that `replay verify` waits for it."""
DIFFERS = 3
"""Exit code of `replay verify` where rows differ."""


class ReadSide:
    """`headwater projections` over the tallies."""

    def __init__(self, settings: LogSettings, stack: Stack, more: Mapping[str, str] | None = None) -> None:
        """more: variables of its processes."""
        self._stack = stack
        self._variables = os.environ | stack.endpoints.environment() | dict(more or {}) | {
            "HEADWATER_ENVIRONMENT": settings.environment,
            "HEADWATER_PARTITIONS": str(settings.partitions),
            "HEADWATER_MODULES": ",".join(settings.modules),
            "HEADWATER_STATE": str(settings.state),
        }  # fmt: skip
        views = table_views(settings.modules).values()
        self._views = [view.name for view in views if view.plan.handles_every or Added.type in view.plan.events]
        self._log, self._ready = settings.state / "projections.log", ready_file(settings, EVERYTHING)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Return at once: it waits for nobody, and nobody waits for it."""
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "headwater.projections"],
                env=self._variables,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    async def suffer(self, fault: Fault) -> None:
        """Kill the live query or a loader, which are started again, or restart a store."""
        self._supervise()
        store = STORES[fault.pick % len(STORES)]
        if fault.kind == "restart store":
            await asyncio.to_thread(self._stack[store].restart)
        else:
            self.kill(*(("headwater.projections", "live") if fault.kind == "kill live query" else ("load", store)))

    def kill(self, *words: str) -> bool:
        """The supervised process whose command ends with these words, and all that it started; whether there was one.

        It may be starting again.
        """
        killed = False
        if self._process is None:
            return killed
        for child in psutil.Process(self._process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if tuple(child.cmdline()[-len(words) :]) == tuple(words):
                    for started in (*child.children(recursive=True), child):
                        started.kill()
                    killed = True
        return killed

    def _supervise(self) -> None:
        """Start it again where it has ended, as a supervisor would: one that finds no server at its start ends."""
        if self._process is not None and self._process.poll() is not None:
            self.start()

    def complaints(self) -> list[str]:
        """What `replay verify` finds wrong with any view in any store."""
        self.wait_until_up()
        return [told for view in self._views if (told := self._complaint(view))]

    def wait_until_up(self) -> None:
        """Return once its live query and loaders work."""
        eventually(self._is_up, "the read side is up", START_S, every_s=0.5)

    def _is_up(self) -> bool:
        self._supervise()
        return self._ready.exists()

    def _complaint(self, view: str) -> str:
        argv = [sys.executable, "-m", "headwater.replay", "verify", view, "--json"]
        for _ in range(ATTEMPTS):
            done = subprocess.run(argv, env=self._variables, capture_output=True, text=True, timeout=VERIFY_S)
            if done.returncode == 0:
                return ""
            if done.returncode == DIFFERS:
                break
        return f"view {view} is not what a replay makes: {done.stdout[:2_000]} {done.stderr[-2_000:]}"

    def stop(self) -> None:
        """With all that it has started."""
        if self._process is None:
            return
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_S)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
