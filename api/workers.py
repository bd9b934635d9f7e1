"""Several processes that serve one address: a dead one is replaced, and all end together."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Final

from api.settings import CANNOT_START, GRACE_S, ApiSettings
from eventlog.errors import SettingError
from eventlog.logs import log_to_stderr
from projections.supervision.process import DEFAULT_BACKOFF, Backoff

SPAWN: Final = multiprocessing.get_context("spawn")
"""Not forked, because the threads of the Kafka and store clients would be missing."""
END_S: Final = GRACE_S + 5.0
"""How long workers may take to end before they are killed."""

logger = logging.getLogger(__name__)


@dataclass
class _Worker:
    """The slot of one process; deaths: in a row, of young processes. due: when to start the next one."""

    process: SpawnProcess | None = None
    began: float = 0.0
    deaths: int = 0
    due: float = 0.0


class Workers:
    """Keeps `settings.workers` processes serving one listening socket, each with its own service."""

    def __init__(self, settings: ApiSettings, listening: socket.socket, backoff: Backoff = DEFAULT_BACKOFF) -> None:
        self._settings, self._listening, self._backoff = settings, listening, backoff
        self._workers = [_Worker() for _ in range(settings.workers)]

    def run(self) -> int:
        """Serve until SIGTERM or SIGINT; returns the exit code, not 0 if workers cannot start or keep dying."""
        with _stop_signals() as stopped:
            try:
                while True:
                    self._start_due()
                    ready = wait([stopped, *self._sentinels()], self._pause_s())
                    if stopped in ready:
                        return 0
                    for worker in self._workers:
                        if worker.process is not None and worker.process.sentinel in ready:
                            code = self._replace_later(worker)
                            if code:
                                return code
            finally:
                self._end()

    def _start_due(self) -> None:
        for number, worker in enumerate(self._workers, 1):
            if worker.process is None and worker.due <= time.monotonic():
                worker.process = SPAWN.Process(
                    target=work, args=(self._settings, self._listening), name=f"api worker {number}"
                )
                worker.process.start()
                worker.began = time.monotonic()

    def _sentinels(self) -> list[int]:
        return [worker.process.sentinel for worker in self._workers if worker.process is not None]

    def _pause_s(self) -> float | None:
        """Until the next start is due; None if every worker runs."""
        dues = [worker.due for worker in self._workers if worker.process is None]
        return max(0.0, min(dues) - time.monotonic()) if dues else None

    def _replace_later(self, worker: _Worker) -> int:
        """Replace a dead worker after a pause; returns the exit code if a new one would not help, or 0."""
        assert worker.process is not None  # noqa: S101
        worker.process.join()
        name, code = worker.process.name, worker.process.exitcode
        worker.process.close()
        worker.process = None
        if code == CANNOT_START:  # it has logged the reason
            return CANNOT_START
        lived_s = time.monotonic() - worker.began
        worker.deaths = 1 if lived_s > self._backoff.stable_s else worker.deaths + 1
        if self._backoff.limit is not None and worker.deaths > self._backoff.limit:
            logger.critical("%s ended %d times in a row, the last time with exit code %s", name, worker.deaths, code)
            return 1
        pause_s = self._backoff.wait_s(worker.deaths - 1)
        logger.warning("%s ended with exit code %s, starting another in %.1f s", name, code, pause_s)
        worker.due = time.monotonic() + pause_s
        return 0

    def _end(self) -> None:
        """Stop every worker like a stop signal, and kill those that do not end."""
        running = [worker.process for worker in self._workers if worker.process is not None]
        for process in running:
            process.terminate()
        deadline = time.monotonic() + END_S
        for process in running:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.exitcode is None:
                logger.warning("%s did not end within %g s, killing it", process.name, END_S)
                process.kill()
                process.join()


def listen(settings: ApiSettings) -> socket.socket:
    """A socket at the settings' address, for all workers; raises SettingError if it is not available."""
    try:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        return socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as error:
        needs = f"a free port on {settings.host} ({error.strerror or error})"
        raise SettingError("HEADWATER_API_PORT", str(settings.port), needs) from error


def work(settings: ApiSettings, listening: socket.socket) -> None:
    """Serve in its own process until a stop signal, or until the process that started this one is gone."""
    from api.serving import serve  # noqa: PLC0415 - the process that watches over workers needs none of it

    log_to_stderr(os.environ)
    sys.exit(serve(settings, listening))


@contextmanager
def _stop_signals() -> Iterator[Connection]:
    """A connection that becomes readable once this process gets a stop signal."""
    stopped, sender = SPAWN.Pipe(duplex=False)
    handlers = {
        number: signal.signal(number, lambda *_: sender.send_bytes(b"stop"))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield stopped
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        stopped.close()
        sender.close()
