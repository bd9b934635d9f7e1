"""Work that waits for something else: each of its steps ends where it would wait, so that others can be done then."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Final

LOOK_S: Final = 0.02

Waits = Generator[None, None, None]
"""Work in steps: it has to wait before the next one."""


def wait_for(work: Waits) -> None:
    """Do the work alone."""
    for _ in work:
        time.sleep(LOOK_S)


def pause(seconds: float) -> Waits:
    """Nothing to do for so long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        yield
