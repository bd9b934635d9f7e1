"""Waiting for what comes in its time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

LIMIT_S = 180.0

Answer = TypeVar("Answer")


def eventually(
    condition: Callable[[], Answer], what: str, timeout_s: float = LIMIT_S, *, every_s: float = 0.2
) -> Answer:
    """The first true answer of `condition`; raises TimeoutError, with `what` was waited for, when it takes too long."""
    deadline = time.monotonic() + timeout_s
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s")
        time.sleep(every_s)
    return answer
