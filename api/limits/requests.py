"""The limits of requests, and how much one reads at once of records that may be large."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

MAX_PAGE_BYTES: Final = 8 * 1024 * 1024
"""Of the events or rows of one answer: a page ends with the one that reaches it."""


@dataclass(frozen=True)
class Limits:
    """The limits of requests.

    body_bytes, body_values: of a body, or of a line of NDJSON. body_s: how long a JSON body may take to arrive, and the
    next bytes of NDJSON.
    in_flight: lines of one request that are in progress at once.
    in_flight_in_all: commands of all such requests that wait for their receipts; more would only wait in the log.
    in_flight_bytes: of their records; a larger one waits until it is alone.
    stall_s: how long a client may read nothing of an answer.
    idle_s: how long it may take to send the head of a request, after it connected or had the answer to the one before.
    heartbeat_s: time between comments to a follower.
    followers: clients that follow changes at once.
    """

    body_bytes: int = 512 * 1024
    body_values: int = 20_000
    body_s: float = 60.0
    answer_timeout_s: float = 10.0
    wait_ms: int = 5_000
    max_wait_ms: int = 30_000
    in_flight: int = 1_000
    in_flight_in_all: int = 4_000
    in_flight_bytes: int = 64 * 1024 * 1024
    stall_s: float = 60.0
    idle_s: float = 10.0
    heartbeat_s: float = 15.0
    followers: int = 1_000


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
