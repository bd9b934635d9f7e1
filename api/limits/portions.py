"""How much a request reads at once of records that may be large, so that it never has all of them in memory."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate
from typing import Any, Final

MAX_PAGE_BYTES: Final = 8 * 1024 * 1024
"""Of the events or rows of one answer: a page ends with the one that reaches it."""


def next_portion(count: int, size_bytes: int, budget_bytes: int, maximum: int) -> int:
    """How many to read after `count` that had `size_bytes`: twice as many, if they will need half of the budget."""
    return max(1, min(2 * count, maximum, count * budget_bytes // (2 * size_bytes + 1)))


def fitting_rows(sizes_bytes: Iterable[int], budget_bytes: int) -> int:
    """How many of the first rows, with these sizes, there are up to the one that reaches the budget."""
    total_bytes = list(accumulate(sizes_bytes))
    return min(bisect_left(total_bytes, budget_bytes) + 1, len(total_bytes))


def stored_bytes(values: Iterable[Any]) -> int:
    """About how much memory the values of a row take; only texts and lists may be large."""
    size_bytes = 0
    for value in values:
        if isinstance(value, str):
            size_bytes += sys.getsizeof(value)
        elif isinstance(value, list):
            size_bytes += stored_bytes(value)
        else:
            size_bytes += 8
    return size_bytes
