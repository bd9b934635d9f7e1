"""What goes on in the background of a test, until the end of a block."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from headwater.eventlog.programs.stopping import Stopping

ROOT: Final = Path(__file__).parents[2]
END_S: Final = 300.0
"""How long what is asked to end may take, on a machine that is shared."""
SHOWN_FRAMES: Final = 6
"""Of each thread in a message: the last ones say what it waits for."""

Work = Callable[[Stopping], object]


class EndedTooSoon(AssertionError):
    """Something in the background has ended before its block; its own error, if it has one, is the cause."""


class _Running(threading.Thread):
    """A work, and the error with which it ended."""

    def __init__(self, work: Work, stop: Stopping) -> None:
        # one that does not end must not keep the whole run from ending
        super().__init__(name=getattr(work, "__qualname__", repr(work)), daemon=True)
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
            thread.join(END_S)
            _running.remove(thread)
    for thread in threads:
        assert not thread.is_alive(), f"{thread.name} has not ended {END_S:g} s after it was asked to{stacks()}"
        if thread.error is not None:
            raise thread.error


def check_background() -> None:
    """Raise EndedTooSoon if something in the background has ended: what a test waits for may never come then."""
    for thread in _running:
        if not thread.is_alive():
            raise EndedTooSoon(f"{thread.name} has ended in the background") from thread.error


def stacks() -> str:
    """Where all other threads of this process are, for a message about what has not happened.

    First the work in the background of the test, then other threads that run code of this checkout, the newest first
    of each; last those of libraries, which wait for their next work, with one line each.
    """
    frames = sys._current_frames()
    newest = [each for each in reversed(threading.enumerate()) if each is not threading.current_thread()]
    works, others, idle = list[str](), list[str](), list[str]()
    for thread in newest:
        if thread.ident not in frames:
            continue
        stack = traceback.extract_stack(frames[thread.ident])
        last = stack[-1]
        if thread not in _running and not any(map(_is_ours, stack)):
            idle.append(f"\nthread {thread.name} is in {last.name} ({Path(last.filename).name}:{last.lineno})")
            continue
        shown = f"\nthread {thread.name}:\n{''.join(stack.format()[-SHOWN_FRAMES:])}"
        (works if thread in _running else others).append(shown)
    return "".join(works + others + idle)


def _is_ours(frame: traceback.FrameSummary) -> bool:
    return "site-packages" not in frame.filename and Path(frame.filename).is_relative_to(ROOT)
