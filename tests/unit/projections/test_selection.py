"""Selections of events: what is understood, what is refused, and which offsets are read."""

from __future__ import annotations

import pytest

from projections.selection import ALL, Point, Selection

ENDS = {0: 100, 1: 50}


def test_positions_and_times() -> None:
    assert Point.parse("0:10,1:20", 2).offsets == {0: 10, 1: 20}
    assert Point.parse("2026-01-31T12:00:00Z", 2).time_ms == 1_769_860_800_000
    assert Point.parse("2026-01-31T13:00:00+01:00", 2).time_ms == Point.parse("2026-01-31T12:00:00", 2).time_ms


@pytest.mark.parametrize("text", ["0:10", "0:10,0:11", "0:1,1:2,2:3", "0:1,2:2", "yesterday", "", "1:x", "12"])
def test_what_names_no_point_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match=r"each of the partitions 0 to 1|neither positions"):
        Point.parse(text, 2)


def test_offsets_bound_what_is_read_and_the_last_is_included() -> None:
    since, until = Point.parse("0:10,1:60", 2), Point.parse("0:19,1:70", 2)
    assert ALL.ranges(ENDS) == {0: (0, 100), 1: (0, 50)}
    assert Selection(until=until).ranges(ENDS) == {0: (0, 20), 1: (0, 50)}
    assert Selection(since, until).ranges(ENDS) == {0: (10, 20), 1: (50, 50)}
    assert Selection(since=Point.parse("2026-01-31", 2)).ranges(ENDS) == ALL.ranges(ENDS)


def test_a_selection_says_what_it_is() -> None:
    assert ALL.is_all
    told = Selection(Point.parse("2026-01-31", 2), Point.parse("0:1,1:2", 2), "type = 'a'")
    assert (str(told), told.is_all) == ("from 2026-01-31 until 0:1,1:2 where type = 'a'", False)
