"""How a program is asked to stop: by SIGTERM, or by Ctrl-C."""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Self

SET_S: Final = 0.1
"""How long the handler of a signal waits until an event is set."""

logger = logging.getLogger(__name__)


def set_by_signal(event: threading.Event) -> None:
    """Set an event in the handler of a signal, which runs in the main thread between any two steps of its code: also in
    the middle of the event's own methods, with its lock. So another thread sets the event, a moment later if need be.
    """
    setting = threading.Thread(target=event.set, name="signal", daemon=True)
    setting.start()
    setting.join(SET_S)


def end_within(seconds: float) -> None:
    """From now on, this process has so long to end; then it ends at once, with exit code 1, and its log has the stacks
    of all threads. For programs that may be killed anywhere without losing anything.
    """
    timer = threading.Timer(seconds, _end, [seconds])
    timer.daemon = True
    timer.start()


def _end(seconds: float) -> None:
    logger.error("it has not ended %g s after it was asked to, and ends now, whatever its threads do:", seconds)
    faulthandler.dump_traceback(all_threads=True)
    os._exit(1)


class Stopping(threading.Event):
    """Set once this process is asked to stop."""

    def __init__(self) -> None:
        super().__init__()
        self._interrupts = False

    @classmethod
    def by_signals(cls) -> Self:
        """It is set by signals from now on; for the main thread."""
        made = cls()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, made.ask)
        return made

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
