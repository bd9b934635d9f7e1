"""How much one caller may ask of a process: requests per second, and requests at once."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from headwater.api.errors import TooManyRequests

REMEMBERED: Final = 10_000
"""Callers; one that has not called for a second is as good as a new one."""


@dataclass(slots=True)
class _Usage:
    """What a caller has used. left: of its requests, as of `at_s`. running: requests."""

    left: float
    at_s: float
    running: int = 0


class CallerLimits:
    """The limits of each caller, by its name; for one event loop. 0: no limit.

    A caller saves up the requests of one second at most (a token bucket).
    """

    def __init__(self, per_second: int = 0, at_once: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: returns the time in seconds."""
        self._per_second, self._at_once, self._clock = per_second, at_once, clock
        self._used = OrderedDict[str, _Usage]()

    @property
    def has_any(self) -> bool:
        """Whether there is a limit."""
        return bool(self._per_second or self._at_once)

    @contextmanager
    def admitted(self, name: str) -> Iterator[None]:
        """Run a request of this caller; raises TooManyRequests."""
        usage = self._usage(name)
        if self._at_once and usage.running >= self._at_once:
            raise TooManyRequests(f"at once: {self._at_once}", self._at_once)
        if self._per_second:
            if usage.left < 1:
                raise TooManyRequests(f"per second: {self._per_second}", self._per_second)
            usage.left -= 1
        usage.running += 1
        try:
            yield
        finally:
            usage.running -= 1

    def _usage(self, name: str) -> _Usage:
        now_s = self._clock()
        usage = self._used.pop(name, None) or _Usage(float(self._per_second), now_s)
        usage.left = min(float(self._per_second), usage.left + (now_s - usage.at_s) * self._per_second)
        usage.at_s = now_s
        self._used[name] = usage
        self._forget(now_s)
        return usage

    def _forget(self, now_s: float) -> None:
        """Forget who has not called for a second, from the one that called first."""
        while len(self._used) > REMEMBERED:
            name, usage = next(iter(self._used.items()))
            if now_s - usage.at_s < 1:
                return
            if usage.running:  # of a caller that follows changes: what is running counts
                self._used.move_to_end(name)
                return
            del self._used[name]
