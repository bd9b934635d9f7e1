"""What keeps coming in the background of a test."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headwater.eventlog.programs.stopping import Stopping
from tests.support.background import running


@contextmanager
def repeated(step: Callable[[], object], every_s: float) -> Iterator[None]:
    """Traffic: `step` again and again until the end of the block, in a thread of its own; the last one has ended then.

    every_s: between two steps; more if a step takes long, since what the test is about needs the processor, too.
    """

    def go_on(stop: Stopping) -> None:
        took_s = 0.0
        while not stop.wait(max(every_s, 4 * took_s)):
            began = time.monotonic()
            step()
            took_s = time.monotonic() - began

    with running(go_on):
        yield
