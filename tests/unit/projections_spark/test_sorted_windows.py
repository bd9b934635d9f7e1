"""The windows of a key are sorted within a budget of memory, however many a rebuild passes on together."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator

import pytest

from headwater.projections.stream.ordered_state import Window, sorted_windows

NUMBER, CHARACTERS = 20_000, 500


def windows() -> Iterator[Window]:
    starts = list(range(NUMBER))
    random.shuffle(starts)
    return ((start, f'{{"id": "{start}", "text": "' + "ü\\n" * (CHARACTERS // 3) + '"}') for start in starts)


@pytest.mark.parametrize("most", [0, 1_000_000, 10**12], ids=["each apart", "in runs", "in memory"])
def test_windows_come_in_the_order_of_their_start(most: int) -> None:
    number = NUMBER if most else 300
    some = [window for window, _ in zip(windows(), range(number), strict=False)]
    assert list(sorted_windows(iter(some), most)) == [records for _, records in sorted(some)]


def test_the_windows_of_years_do_not_fill_memory() -> None:
    tracemalloc.start()
    assert sum(1 for _ in sorted_windows(windows(), 1_000_000)) == NUMBER
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 6 * 2**20, "all are 10 MB as text, and more with what Python adds"
