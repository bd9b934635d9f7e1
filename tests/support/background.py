"""What goes on in the background of a test, until the end of a block."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from eventlog.programs.stopping import Stopping

Work = Callable[[Stopping], object]


class EndedTooSoon(AssertionError):
    """Something in the background has ended before its block; its own error, if it has one, is the cause."""


class _Running(threading.Thread):
    """A work, and the error with which it ended."""

    def __init__(self, work: Work, stop: Stopping) -> None:
        super().__init__(name=getattr(work, "__qualname__", repr(work)))
        self._work, self._stopping = work, stop
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self._work(self._stopping)
        except BaseException as error:  # noqa: BLE001 - the thread of the test raises it
            self.error = error


_running: list[_Running] = []


@contextmanager
def running(*works: Work) -> Iterator[None]:
    """Each of `works` in a thread of its own; what it is given is set at the end of the block, and it must end then,
    and no sooner.

    If one ends sooner, the block fails with EndedTooSoon: at once where it waits with `eventually`, else at its end.
    """
    stop = Stopping()
    threads = [_Running(work, stop) for work in works]
    for thread in threads:
        thread.start()
    _running.extend(threads)
    try:
        yield
        check_background()
    except EndedTooSoon:
        raise
    except Exception:
        check_background()  # this is why the block failed
        raise
    finally:
        stop.set()
        for thread in threads:
            thread.join()
            _running.remove(thread)
    for thread in threads:
        if thread.error is not None:
            raise thread.error


def check_background() -> None:
    """Raise EndedTooSoon if something in the background has ended: what a test waits for may never come then."""
    for thread in _running:
        if not thread.is_alive():
            raise EndedTooSoon(f"{thread.name} has ended in the background") from thread.error
