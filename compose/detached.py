"""A stack whose supervisor runs in its own process: start it, and stop it from anywhere."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from headwater.compose.errors import ComposeError, NotRunning
from headwater.compose.settings import StackSettings
from headwater.compose.state import StateDirectory
from headwater.eventlog.programs.modules import SAFE_PATH
from headwater.projections.supervision.process import State

_START_TIMEOUT_S = 600.0  # longer than the supervisor itself takes to give up, which says why
_STOP_TIMEOUT_S = 120.0  # longer than the slowest service, Kafka Connect and the other servers take one after another
_POLL_S = 0.05


def start(settings: StackSettings) -> None:
    """Start a supervisor in the background and return when everything is healthy.

    Raises ComposeError with the supervisor's log if it ends before that. If this process is interrupted while it
    waits, the supervisor is stopped with all its servers: nobody asked for a half-started stack to stay.
    """
    settings.make_logs()
    log = settings.logs / "supervisor.log"
    with log.open("ab") as sink:
        began_at = sink.tell()
        supervisor = subprocess.Popen(
            [sys.executable, *SAFE_PATH, "-m", "headwater.compose", "up"],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )
    try:
        state = StateDirectory(settings.state)
        in_time = _wait(lambda: supervisor.poll() is not None or _is_healthy(state, supervisor.pid), _START_TIMEOUT_S)
    except BaseException:
        _end(supervisor)
        raise
    if not in_time:
        _end(supervisor)
        raise ComposeError(f"the stack was not healthy after {_START_TIMEOUT_S:.0f} s; see '{log}'")
    if supervisor.returncode is not None:
        with log.open() as said:
            said.seek(began_at)
            report = said.read().strip()
        raise ComposeError(report.rpartition("error: ")[2] or f"the supervisor ended immediately; see '{log}'")


def _end(supervisor: subprocess.Popen[bytes]) -> None:
    """Stop the supervisor and wait until its servers have ended; only its guards end them if it does not."""
    supervisor.terminate()
    try:
        supervisor.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        supervisor.kill()
        supervisor.wait()


def stop(settings: StackSettings) -> None:
    """Ask the supervisor to stop and wait for its end; raises NotRunning if there is none."""
    state = StateDirectory(settings.state)
    record = state.read()
    if record is None or not state.is_owned():
        raise NotRunning(settings.state)
    os.kill(record.owner, signal.SIGTERM)
    if not _wait(lambda: not state.is_owned(), _STOP_TIMEOUT_S):
        raise ComposeError(f"the supervisor (pid {record.owner}) did not stop in {_STOP_TIMEOUT_S:.0f} s")


def _is_healthy(state: StateDirectory, owner: int) -> bool:
    record = state.read()
    if record is None or record.owner != owner:
        return False
    return all(process.state is State.HEALTHY for process in record.processes)


def _wait(condition: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True
