"""Keeps processes alive: a thread watches each, and a guard process ends it if this process dies."""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, cast

from headwater.eventlog.programs.backoff import DEFAULT_BACKOFF, Backoff
from headwater.projections.supervision.process import (
    ProcessSpec,
    ProcessStatus,
    StartFailed,
    State,
    SupervisionError,
    cpu_s,
    last_log_lines,
)

_GUARD = Path(__file__).with_name("guard.py")
_LOG = logging.getLogger(__name__)
_LOG_FILE_LIMIT_BYTES = 32 << 20
_BUSY_SHARE = 0.1
"""Of a core: what uses more while it starts makes progress."""
_PROBE_STARTING_S, _PROBE_RUNNING_S = 0.1, 2.0


class Supervised:
    """One process under supervision. All methods may be called from any thread."""

    def __init__(
        self,
        spec: ProcessSpec,
        predecessors: Sequence[Supervised] = (),
        backoff: Backoff = DEFAULT_BACKOFF,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.spec = spec
        self._predecessors, self._backoff, self._on_change = predecessors, backoff, on_change
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._restart_requested = self._was_healthy = False
        self._renewed = False  # whether its program has changed since the process was last started
        self._log_start = 0
        self._guard: subprocess.Popen[bytes] | None = None
        self._status = ProcessStatus(spec.name, State.WAITING, None, None, None, 0, time.time(), "")
        self._thread = self._new_thread()

    @property
    def status(self) -> ProcessStatus:
        """The current state of the process."""
        with self._changed:
            return self._status

    def start(self) -> None:
        """Begin supervising; returns immediately."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the process and wait for its end; after `stop_timeout_s` it is killed."""
        self.release()
        if self._thread.ident is not None:
            self._thread.join()

    def release(self) -> None:
        """Begin to stop; returns immediately."""
        self._stopping.set()
        with self._changed:
            self._close_pipe()
            self._changed.notify_all()

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Send the process a signal that ends it, and return after the supervisor has noticed its end."""
        with self._changed:
            pid = self._status.pid
            if pid is None:
                return
            os.kill(pid, how)
            self._changed.wait_for(lambda: self._status.pid != pid)

    def restart(self) -> None:
        """Stop the process like `stop`, start it again, and return when it is healthy."""
        with self._changed:
            pid = self._status.pid
            self.begin_restart()
            if pid is not None:
                self._changed.wait_for(lambda: self._status.pid != pid)
        self.wait_healthy()

    def begin_restart(self) -> None:
        """Begin to restart the process, if it is running; returns immediately."""
        with self._changed:
            if self._status.pid is not None:
                self._restart_requested = True
                self._close_pipe()

    def renew(self) -> None:
        """Like `begin_restart`; a process that was given up is started again, since its program has changed."""
        with self._changed:
            self._renewed = True
            self.begin_restart()
            if self._status.state is not State.FAILED or self._stopping.is_set():
                return
        self._thread.join()  # it has nothing left to do
        self._set(State.WAITING)
        self._thread = self._new_thread()
        self._thread.start()

    def wait_healthy(self, timeout_s: float | None = None) -> None:
        """Return when the process is healthy.

        Raises StartFailed if it has been given up or stopped, or is not healthy within `timeout_s` (default: long
        enough for the restarts of a first start; unlimited if these are).
        """
        bound_s = timeout_s
        if bound_s is None and self._backoff.limit_at_first is not None:
            tries = 1 + self._backoff.limit_at_first
            bound_s = 5.0 + tries * (self.spec.start_timeout_s + self._backoff.max_s)
        final = (State.HEALTHY, State.FAILED, State.STOPPED)
        with self._changed:
            in_time = self._changed.wait_for(lambda: self._status.state in final, bound_s)
            if self._status.state is not State.HEALTHY:
                reason = self._status.detail or self._status.state.value
                late = "" if in_time else f" after {bound_s:.0f} s"
                raise StartFailed(self.spec.name, reason + late, self.spec.log)

    def _new_thread(self) -> threading.Thread:
        return threading.Thread(target=self._run, name=f"supervise-{self.spec.name}", daemon=True)

    def _run(self) -> None:
        try:
            self._supervise()
        except Exception as error:  # noqa: BLE001 (a probe with a defect must not leave a process that seems watched)
            _LOG.exception("supervision of '%s' failed", self.spec.name)
            self._set(State.FAILED, f"its supervision failed: {error!r}")

    def _supervise(self) -> None:
        for predecessor in self._predecessors:
            if not self._wait_for(predecessor):
                self._set(State.STOPPED, f"'{predecessor.spec.name}' did not become healthy")
                return
        attempt = 0
        while not self._stopping.is_set():
            began, self._renewed = time.monotonic(), False
            reason = self._run_once()
            if self._stopping.is_set():
                break
            with self._changed:
                requested, self._restart_requested = self._restart_requested, False
                self._status = replace(self._status, restarts=self._status.restarts + 1)
            if requested or time.monotonic() - began > self._backoff.stable_s:
                attempt = 0
            if requested:
                continue
            limit = self._backoff.limit if self._was_healthy else self._backoff.limit_at_first
            if attempt == limit:
                _LOG.error(
                    "'%s' %s; giving up after %d restarts; see '%s'", self.spec.name, reason, attempt, self.spec.log
                )
                if self._give_up(reason):
                    return
                attempt = 0
                continue
            wait_s = self._backoff.wait_s(attempt)
            attempt += 1
            _LOG.warning(
                "'%s' %s; restart %d in %.1f s; its log is '%s'", self.spec.name, reason, attempt, wait_s, self.spec.log
            )
            self._set(State.BACKOFF, reason)
            self._stopping.wait(wait_s)
        self._set(State.STOPPED)

    def _give_up(self, reason: str) -> bool:
        """Fail for good, unless the program has changed since it was started: the next process may run."""
        with self._changed:
            if self._renewed:
                return False
            self._status = replace(self._status, state=State.FAILED, detail=reason, since=time.time())
            self._changed.notify_all()
        self._on_change()  # without the lock: it may look at other processes, whose threads may look at this one
        return True

    def _wait_for(self, predecessor: Supervised) -> bool:
        while not self._stopping.is_set():
            with predecessor._changed:
                predecessor._changed.wait(0.2)
                state = predecessor._status.state
            if state is State.HEALTHY:
                return True
            if state in (State.FAILED, State.STOPPED):
                return False
        return False

    def _run_once(self) -> str:
        """Run the process from start to end; returns how it ended."""
        self._set(State.STARTING)
        try:
            self.spec.prepare()
            guard = self._spawn()
        except (OSError, subprocess.SubprocessError, SupervisionError) as error:
            return f"could not be started: {error}"
        if guard is None:
            return "was stopped"
        output = cast(IO[bytes], guard.stdout)
        reason = "lost its supervision"
        try:
            with guard:
                pid = output.readline()
                if pid:
                    with self._changed:
                        self._status = replace(self._status, pid=int(pid), guard=guard.pid, started=time.time())
                    self._on_change()
                    reason = self._watch(output)
                else:
                    reason = f"could not be started: '{self.spec.argv[0]}' does not run"
        finally:
            with self._changed:
                self._guard = None
                # In one step, so that nobody sees a dead process as healthy.
                self._status = replace(
                    self._status, pid=None, guard=None, started=None, state=State.BACKOFF, detail=reason
                )
                self._changed.notify_all()
        return reason

    def _spawn(self) -> subprocess.Popen[bytes] | None:
        self.spec.log.parent.mkdir(parents=True, exist_ok=True)
        # keep one old log, so that logs do not fill the disk with every restart
        if self.spec.log.exists() and self.spec.log.stat().st_size > _LOG_FILE_LIMIT_BYTES:
            self.spec.log.replace(self.spec.log.with_suffix(".old.log"))
        order = {
            "argv": self.spec.argv,
            "log": str(self.spec.log),
            "cwd": None if self.spec.cwd is None else str(self.spec.cwd),
            "user": self.spec.user,
            "stop_signal": self.spec.stop_signal,
            "stop_timeout_s": self.spec.stop_timeout_s,
        }
        with self._changed, self.spec.log.open("ab") as log:
            if self._stopping.is_set():
                return None
            self._log_start = log.tell()
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_GUARD), self.spec.name, json.dumps(order)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                env={**os.environ, **self.spec.env},
                start_new_session=True,
            )
            return self._guard

    def _watch(self, output: IO[bytes]) -> str:
        started, worked_s = self.status.pid or 0, 0.0
        deadline = time.monotonic() + self.spec.start_timeout_s
        interval_s = _PROBE_STARTING_S
        while not select.select([output], [], [], interval_s)[0]:
            if self._stopping.is_set() or self._restart_requested:
                continue
            problem = self.spec.probe()
            state = self.status.state
            if problem is None and state is not State.HEALTHY:
                interval_s = _PROBE_RUNNING_S
                self._was_healthy = True
                self._set(State.HEALTHY, "")
                _LOG.info("'%s' is healthy", self.spec.name)
            elif problem is not None and state in (State.HEALTHY, State.UNHEALTHY):
                if state is State.HEALTHY:
                    _LOG.warning("'%s' is unhealthy: %s", self.spec.name, problem)
                self._set(State.UNHEALTHY, problem)
            elif problem is not None:
                self._set(State.STARTING, problem)
                if self.spec.held():
                    deadline = time.monotonic() + self.spec.start_timeout_s
                elif time.monotonic() > deadline:
                    before_s, worked_s = worked_s, cpu_s(started)
                    if worked_s - before_s <= _BUSY_SHARE * self.spec.start_timeout_s:
                        return f"did next to nothing for {self.spec.start_timeout_s:.0f} s: {problem}"
                    deadline = time.monotonic() + self.spec.start_timeout_s
        status = output.readline()
        if not status:
            pid = self.status.pid  # its guard was killed: it must end before it is started again
            if pid is not None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
            return "ended with its guard"
        code = int(status)
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"
        said = last_log_lines(self.spec.log, self._log_start) if code > 0 else ""
        return f"{how}: {said}" if said else how

    def _close_pipe(self) -> None:
        if self._guard is not None and self._guard.stdin is not None and not self._guard.stdin.closed:
            self._guard.stdin.close()

    def _set(self, state: State, detail: str = "") -> None:
        with self._changed:
            if (state, detail) == (self._status.state, self._status.detail):
                return
            self._status = replace(self._status, state=state, detail=detail, since=time.time())
            self._changed.notify_all()
        self._on_change()


class Supervisor:
    """Several processes; each starts after those that it depends on."""

    def __init__(
        self,
        specs: Sequence[ProcessSpec],
        backoff: Backoff = DEFAULT_BACKOFF,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._processes: dict[str, Supervised] = {}
        for spec in _ordered(specs):
            predecessors = [self._processes[name] for name in spec.after]
            self._processes[spec.name] = Supervised(spec, predecessors, backoff, on_change)

    def __getitem__(self, name: str) -> Supervised:
        return self._processes[name]

    def start(self) -> None:
        """Start everything and return when all are healthy; on StartFailed, stop what has been started."""
        try:
            self.begin(*self._processes)
            for process in self._processes.values():
                process.wait_healthy()
        except BaseException:
            self.stop()
            raise

    def begin(self, *names: str) -> None:
        """Start the processes with these names; returns immediately."""
        for name in names:
            self._processes[name].start()

    @property
    def is_healthy(self) -> bool:
        """Whether every process is healthy now."""
        return all(status.state is State.HEALTHY for status in self.status())

    def stop(self) -> None:
        """Stop everything, each process only after those that came after it."""
        remaining = dict(self._processes)
        while remaining:
            needed = {name for process in remaining.values() for name in process.spec.after}
            last = [process for name, process in remaining.items() if name not in needed]
            for process in last:
                process.release()
            for process in last:
                process.stop()
                del remaining[process.spec.name]

    def status(self) -> list[ProcessStatus]:
        """The state of each process."""
        return [process.status for process in self._processes.values()]


def _ordered(specs: Sequence[ProcessSpec]) -> list[ProcessSpec]:
    placed: dict[str, ProcessSpec] = {}
    waiting = {spec.name: spec for spec in specs}
    while waiting:
        ready = [spec for spec in waiting.values() if all(name in placed for name in spec.after)]
        if not ready:
            raise SupervisionError(f"processes wait for each other or for an unknown process: {sorted(waiting)}")
        for spec in ready:
            placed[spec.name] = waiting.pop(spec.name)
    return list(placed.values())
