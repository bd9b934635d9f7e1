"""Several processes that do the same work: a dead one is replaced, and all end together."""

from __future__ import annotations

import logging
import multiprocessing
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Final

from headwater.eventlog.programs.backoff import DEFAULT_BACKOFF, Backoff

SPAWN: Final = multiprocessing.get_context("spawn")
"""Not forked, because the threads of the Kafka and store clients would be missing."""

logger = logging.getLogger(__name__)


@dataclass
class _Worker:
    """The slot of one process; deaths: in a row, of young processes. due: when to start the next one."""

    process: SpawnProcess | None = None
    began: float = 0.0
    deaths: int = 0
    due: float = 0.0


class Workers:
    """Keeps several processes at the same work."""

    def __init__(
        self,
        name: str,
        number: int,
        target: Callable[..., None],
        arguments: tuple[Any, ...],
        *,
        end_s: float,
        hopeless: int | None = None,
        backoff: Backoff = DEFAULT_BACKOFF,
    ) -> None:
        """Prepare `number` processes that each call `target` with `arguments`, until SIGTERM.

        name: of a worker, for the log. end_s: how long workers may take to end before they are killed. hopeless: the
        exit code of a worker that another one would not help; it has logged the reason.
        """
        self._name, self._target, self._arguments = name, target, arguments
        self._end_s, self._hopeless, self._backoff = end_s, hopeless, backoff
        self._workers = [_Worker() for _ in range(number)]

    def run(self) -> int:
        """Work until SIGTERM or SIGINT; returns the exit code, not 0 if workers cannot start or keep dying."""
        with _stop_signals() as stopped:
            try:
                while True:
                    self._start_due()
                    running = [worker.process.sentinel for worker in self._workers if worker.process is not None]
                    dues = [worker.due for worker in self._workers if worker.process is None]
                    ready = wait([stopped, *running], max(0.0, min(dues) - time.monotonic()) if dues else None)
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
                work = (self._target, self._arguments)
                worker.process = SPAWN.Process(target=_call, args=work, name=f"{self._name} {number}")
                worker.process.start()
                worker.began = time.monotonic()

    def _replace_later(self, worker: _Worker) -> int:
        """Replace a dead worker after a pause; returns the exit code if a new one would not help, or 0."""
        assert worker.process is not None  # noqa: S101
        worker.process.join()
        name, code = worker.process.name, worker.process.exitcode
        worker.process.close()
        worker.process = None
        if code is not None and code == self._hopeless:
            return code
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
        deadline = time.monotonic() + self._end_s
        for process in running:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.exitcode is None:
                logger.warning("%s did not end within %g s, killing it", process.name, self._end_s)
                process.kill()
                process.join()


def _call(target: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    """Do the work of a worker; its error is logged as in a process of its own, and not printed by multiprocessing."""
    try:
        target(*arguments)
    except Exception as error:
        if sys.excepthook is sys.__excepthook__:  # logs are text
            raise
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)


def number_of_worker() -> int:
    """Which of several workers this process is, from 0; 0 as well if it is not one of several."""
    of_name = multiprocessing.current_process().name.rpartition(" ")[2]
    return int(of_name) - 1 if multiprocessing.parent_process() is not None and of_name.isdecimal() else 0


def call_without_parent(stop: Callable[[], None]) -> None:
    """In a worker: call `stop` once the process that started it is gone, so that it never works unsupervised."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "only a worker has a parent that supervises it"  # noqa: S101

    def wait_for_end() -> None:
        parent.join()
        stop()

    threading.Thread(target=wait_for_end, name="parent", daemon=True).start()


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
