"""Waiting as tests do, for longer and less often."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tests.support import waiting

LIMIT_S = 180.0

Answer = TypeVar("Answer")


def eventually(
    condition: Callable[[], Answer], what: str, timeout_s: float = LIMIT_S, *, every_s: float = 0.2
) -> Answer:
    """See `tests.support.waiting`."""
    return waiting.eventually(condition, what, timeout_s, every_s=every_s)
