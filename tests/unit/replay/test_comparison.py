"""Comparing two generations that are written to meanwhile: what is in motion is read again, and nothing is missed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence, Set
from typing import Any

import pytest

from headwater.projections.limits import CHUNK_ROWS
from headwater.projections.stores.backend import Size
from headwater.projections.stores.store import Target
from headwater.replay.comparison import ROUNDS, SAMPLE, Comparison, compare
from headwater.samples.listings.views import listings
from tests.support.captured_things import pairs
from tests.support.observed import gate_view
from tests.support.seeds import seed_of, sweep

LEFT, RIGHT = Target(listings, 1), Target(listings, 2)
Rows = dict[str, dict[str, Any]]


class Stored:
    """Rows in memory that change while they are read. change: called with the rows before each chunk is read."""

    def __init__(self, left: Rows, right: Rows, change: Callable[[dict[int, Rows]], None] = lambda _: None) -> None:
        self.stored, self._change = {1: left, 2: right}, change

    def rows(self, target: Target) -> Iterator[tuple[str, dict[str, Any]]]:
        yield from list(self.stored[target.generation].items())

    def rows_of(self, target: Target, keys: Sequence[str]) -> Rows:
        self._change(self.stored)
        return {key: dict(row) for key in keys if (row := self.stored[target.generation].get(key)) is not None}

    def size(self, target: Target) -> Size:
        return Size(len(self.stored[target.generation]), None)


def still() -> Callable[[], Set[str]]:
    return frozenset


def compared(stored: Stored, moving: Callable[[], Callable[[], Set[str]]] = still) -> Comparison:
    return compare(stored, "memory", LEFT, RIGHT, moving)


def test_equal_rows_and_every_kind_of_difference() -> None:
    rows: Rows = {f"k{number}": {"price": number, "city": "x"} for number in range(2_500)}
    assert (compared(Stored(rows, dict(rows))).differences, compared(Stored(rows, dict(rows))).rows) == (0, 2_500)
    other = {**rows, "k7": {"price": 8, "city": "x", "_deleted": True}, "new": {"price": 1}}
    del other["k9"]
    found = compared(Stored(rows, other))
    assert (found.differences, found.rows) == (3, 2_501)
    told = {difference.key: (difference.left, difference.right) for difference in found.sample}
    assert told == {
        "k7": ({"price": 7, "_deleted": None}, {"price": 8, "_deleted": True}),
        "k9": ({"price": 9, "city": "x"}, None),
        "new": (None, {"price": 1}),
    }


@pytest.mark.parametrize("wrong", ["left", "right", "both"])
def test_a_row_that_a_store_gives_twice_differs_once(wrong: str) -> None:
    class Twice(Stored):
        """SCAN of Valkey does so while its table grows."""

        def rows(self, target: Target) -> Iterator[tuple[str, dict[str, Any]]]:
            yield from [*super().rows(target), *super().rows(target)]

    rows: Rows = {f"k{number}": {"price": number} for number in range(CHUNK_ROWS)}
    changed = {**rows, "k7": {"price": 8}}
    left = {**rows, "only": {}} if wrong == "left" else rows
    right = {**rows, "only": {}} if wrong == "right" else changed if wrong == "both" else rows
    found = compared(Twice(left, right))
    assert found.differences == len(found.sample) == 1


def test_batches_of_a_stream_view_are_no_difference() -> None:
    left: Rows = {"a": {"_batch": 3, "number": 1}, "b": {"_batch": 3, "number": 2}}
    right: Rows = {"a": {"_batch": 0, "number": 1}, "b": {"_batch": 0, "number": 3}}
    view = gate_view()
    found = compare(Stored(left, right), "memory", Target(view, 1), Target(view, 2), still)
    assert [(difference.key, difference.left, difference.right) for difference in found.sample] == [
        ("b", {"number": 2}, {"number": 3})
    ]
    assert compared(Stored(left, right)).differences == 2, "in other views every field counts"


def test_a_deleted_row_of_a_stream_view_is_as_one_that_never_was() -> None:
    gone = {"_batch": 2, "number": 4, "_deleted": True}
    left: Rows = {"a": gone, "b": {"_batch": 1, "number": 2}, "c": gone, "d": gone}
    right: Rows = {"b": {"_batch": 0, "number": 2}, "c": {"_batch": 0, "_deleted": True}, "e": gone, "d": {"number": 1}}
    view = gate_view(deleted_by="gone")
    found = compare(Stored(left, right), "memory", Target(view, 1), Target(view, 2), still)
    assert [(difference.key, difference.left) for difference in found.sample] == [("d", None)]
    assert found.rows == 2


def test_a_deleted_row_of_a_captured_table_may_be_compacted_away() -> None:
    gone = {"value": "x", "_deleted": True}
    left: Rows = {"a": gone, "b": {"value": "x"}, "c": {"value": "x"}, "empty": {}, "f": gone}
    right: Rows = {"b": {"value": "x"}, "d": gone, "e": {"value": "x"}, "f": {"value": "y", "_deleted": True}}
    found = compare(Stored(left, right), "memory", Target(pairs, 1), Target(pairs, 2), still)
    assert {record.key for record in found.sample} == {"c", "e", "empty", "f"}
    assert {record.key for record in compared(Stored(left, right)).sample} >= {"a", "d"}, "the log of events keeps all"


def test_the_sample_is_short_and_the_count_is_not() -> None:
    found = compared(Stored({str(number): {} for number in range(99)}, {}))
    assert (found.differences, len(found.sample)) == (99, SAMPLE)


@pytest.mark.parametrize("number", sweep(5, 2))
def test_rows_in_motion_are_no_difference_and_hide_none(number: int) -> None:
    """Both sides take in the same changes, one later than the other."""
    chance = random.Random(seed_of(number))
    rows: Rows = {str(number): {"n": 0} for number in range(3_000)}
    wrong = str(chance.randrange(3_000))
    right = {key: dict(row) for key, row in rows.items()} | {wrong: {"n": -1_000_000}}
    late: list[str] = []
    touched: list[str] = []

    def change(stored: dict[int, Rows]) -> None:
        for key in late:
            stored[2][key] = {"n": stored[2][key]["n"] + 1}
        late[:] = [str(chance.randrange(3_000)) for _ in range(20)]
        for key in late:
            stored[1][key] = {"n": stored[1][key]["n"] + 1}
        touched.extend(late)

    def moving() -> Callable[[], Set[str]]:
        start = len(touched) - len(late)  # what one side has and the other has not yet
        return lambda: frozenset(touched[start:])

    found = compared(Stored(rows, right, change), moving)
    assert [record.key for record in found.sample] == [wrong]
    assert (found.differences, found.undecided) == (1, 0)


def test_what_is_about_a_row_in_motion_is_no_difference() -> None:
    """Entries of rankings: the row moves on one side before it does on the other."""

    def moved(stored: dict[int, Rows]) -> None:
        if reads:
            stored[2] = dict(stored[1])
        reads.append(1)

    reads = list[int]()
    stored = Stored({"new/a": {}, "stray/b": {}}, {"old/a": {}}, moved)
    found = compare(stored, "memory", LEFT, RIGHT, lambda: lambda: frozenset("a"), lambda key: key.partition("/")[2])
    assert [(difference.key, difference.left, difference.right) for difference in found.sample] == [
        ("stray/b", {}, None)
    ]
    assert (found.differences, found.undecided) == (1, 0)


def test_a_row_that_never_rests_is_undecided() -> None:
    reads = 0

    def change(stored: dict[int, Rows]) -> None:
        nonlocal reads
        reads += 1
        stored[1]["hot"] = {"n": reads}

    found = compared(Stored({"hot": {"n": -1}}, {"hot": {"n": 0}}, change), lambda: lambda: frozenset({"hot"}))
    assert (found.differences, found.undecided) == (0, 1)
    assert reads > ROUNDS
