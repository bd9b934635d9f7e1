"""How a program is asked to stop: by SIGTERM, or by Ctrl-C."""

from __future__ import annotations

import _thread
import faulthandler
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Self

SIGNAL_S: Final = 1.0
"""The main thread waits in parts of this length: a signal that the kernel gives to another thread, as it does while a
debugger or profiler holds the main one, does not wake it, and only the main thread handles signals.
"""
SET_MS: Final = 100
"""How long the handler of a signal waits until an event is set."""
LATE_S: Final = 2
"""How much later than planned a program ends whose locks keep it from saying so."""

logger = logging.getLogger(__name__)


def call_by_signal(function: Callable[..., object], *arguments: object) -> None:
    """Let another thread call a function, in the handler of a signal.

    The handler runs in the main thread between any two steps of its code, maybe with a lock that the function needs, or
    with that of `threading`, which was starting another thread. So it starts one without `threading`.
    """
    _thread.start_new_thread(function, arguments)


def set_by_signal(event: threading.Event) -> None:
    """Set an event in the handler of a signal, a moment later if the main thread is in one of the event's methods."""
    call_by_signal(event.set)
    for _ in range(SET_MS):
        if event.is_set():
            return
        time.sleep(0.001)


def end_within(seconds: float) -> None:
    """From now on, this process has so long to end; then it ends at once, with exit code 1, and its log has the stacks
    of all threads.

    For programs that may be killed anywhere without losing anything. The handler of a signal may call it.
    """
    call_by_signal(_end, seconds)
    faulthandler.dump_traceback_later(seconds + LATE_S, exit=True)  # which needs no lock


def _end(seconds: float) -> None:
    time.sleep(seconds)
    logger.error("it has not ended %g s after it was asked to, and ends now, whatever its threads do:", seconds)
    faulthandler.dump_traceback(all_threads=True)
    os._exit(1)


class Stopping(threading.Event):
    """Set once this process is asked to stop."""

    def __init__(self) -> None:
        super().__init__()
        self._interrupts = False

    def wait(self, timeout: float | None = None) -> bool:
        """Also notices a signal that another thread gets, within SIGNAL_S."""
        while timeout is None:
            if super().wait(SIGNAL_S):
                return True
        return super().wait(timeout)

    @classmethod
    def by_signals(cls) -> Self:
        """It is set by signals from now on; for the main thread."""
        plan = cls()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, plan.ask)
        return plan

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Within it, a request to stop also raises KeyboardInterrupt in the main thread, once.

        For work that takes long and may be broken off anywhere. It is raised at once if the request came before.
        """
        self._interrupts = True
        try:
            if self.is_set():
                raise KeyboardInterrupt
            yield
        finally:
            self._interrupts = False

    def ask(self, *_: object) -> None:
        """Handle a signal; may raise KeyboardInterrupt."""
        set_by_signal(self)
        if self._interrupts:
            self._interrupts = False  # what is cleaned up is not interrupted again
            raise KeyboardInterrupt
