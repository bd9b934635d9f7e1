"""Waiting for what comes in its time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tests.support.background import check_background, stacks

BOUND_S = 300.0
"""Long, because machines are shared: only a fault comes near it."""
PAUSE_S = 2.0
"""The longest pause between two questions."""

Answer = TypeVar("Answer")


class Latest:
    """A text that is made when it is shown: in a message about what has not come, it says what is there by then."""

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text()


def eventually(
    condition: Callable[[], Answer],
    what: str | Latest = "what is awaited",
    timeout_s: float = BOUND_S,
    *,
    every_s: float = 0.05,
) -> Answer:
    """The first true answer of `condition`; fails if it takes too long, with the stacks of all other threads, or if
    work in the background of the test ends.

    every_s: between two questions; a condition that takes long is asked less often, since what is awaited needs the
    processor.
    """
    __tracebackhide__ = True  # the message comes right below the line of the test: what shows it may cut it soon
    deadline = time.monotonic() + timeout_s
    while True:
        began = time.monotonic()
        if answer := condition():
            return answer
        check_background()
        now = time.monotonic()
        assert now < deadline, f"{what}: not within {timeout_s:g} s{stacks()}"
        time.sleep(max(every_s, min(4 * (now - began), PAUSE_S)))
