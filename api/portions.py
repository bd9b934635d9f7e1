"""How much a request reads at once of records that may be large, so that it never has all of them in memory."""

from __future__ import annotations

from typing import Final

MAX_PAGE_BYTES: Final = 8 * 1024 * 1024
"""Of the events of one answer: a page ends with the event that reaches it."""


def next_portion(count: int, size_bytes: int, budget_bytes: int, maximum: int) -> int:
    """How many to read after `count` that had `size_bytes`: twice as many, if they will need half of the budget."""
    return max(1, min(2 * count, maximum, count * budget_bytes // (2 * size_bytes + 1)))
