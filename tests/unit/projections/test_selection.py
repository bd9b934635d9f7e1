"""Selections of events: what is understood, what is refused, and which offsets are read."""

from __future__ import annotations

import re

import pytest

from headwater.api.errors import BadParameter
from headwater.api.requests.parameters import read_time
from headwater.projections.generations.registry.sources import ALL, Point, Selection

ENDS = {"0": 100, "1": 50}


def test_positions_and_times() -> None:
    assert Point.parse("0:10,1:20", 2).offsets == {"0": 10, "1": 20}
    assert Point.parse("2026-01-31T12:00:00Z", 2).time_ms == 1_769_860_800_000
    assert Point.parse("2026-01-31T13:00:00+01:00", 2).time_ms == Point.parse("2026-01-31T12:00:00Z", 2).time_ms
    # floating-point seconds would be a millisecond short
    assert Point.parse("2026-01-31T12:00:00.001Z", 2).time_ms == 1_769_860_800_001
    assert [Point.parse(f"2026-01-31T12:00:00.{number:03}Z", 2).time_ms for number in range(1000)] == [
        1_769_860_800_000 + number for number in range(1000)
    ]
    assert Point.parse("2026-01-31T12:00:00.0005Z", 2).time_ms == 1_769_860_800_001


@pytest.mark.parametrize("text", ["0:10", "0:10,0:11", "0:1,1:2,2:3", "0:1,2:2", "yesterday", "", "1:x", "12"])
def test_what_names_no_point_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match=r"each of the partitions 0 to 1|or positions, such as"):
        Point.parse(text, 2)


@pytest.mark.parametrize(
    ("text", "lacks"),
    [("2026-01-31T12:00:00", "zone"), ("2026-01-31", "time of day"), ("20260131T12", "zone")],
)
def test_a_time_without_its_zone_is_refused_as_the_api_does(text: str, lacks: str) -> None:
    said = f'"{text}" has no {lacks}: write it like 2026-01-31T12:00:00Z, with Z for UTC'
    with pytest.raises(ValueError, match=re.escape(said)):
        Point.parse(text, 2)
    with pytest.raises(BadParameter, match=re.escape(said)):
        read_time("until", text)


def test_offsets_bound_what_is_read_and_the_end_is_left_out() -> None:
    since, until = Point.parse("0:10,1:60", 2), Point.parse("0:20,1:70", 2)
    assert ALL.ranges(ENDS) == {"0": (0, 100), "1": (0, 50)}
    assert Selection(until=until).ranges(ENDS) == {"0": (0, 20), "1": (0, 50)}
    assert Selection(since, until).ranges(ENDS) == {"0": (10, 20), "1": (50, 50)}
    assert Selection(since=Point.parse("2026-01-31T00:00:00Z", 2)).ranges(ENDS) == ALL.ranges(ENDS)
    middle = Point.parse("0:20,1:0", 2)
    before, after = Selection(until=middle).ranges(ENDS), Selection(since=middle).ranges(ENDS)
    assert {source: (before[source][0], after[source][1]) for source in ENDS} == ALL.ranges(ENDS)
    assert all(before[source][1] == after[source][0] for source in ENDS)


def test_a_selection_says_what_it_is() -> None:
    assert ALL.is_all
    told = Selection(Point.parse("2026-01-31T00:00:00Z", 2), Point.parse("0:1,1:2", 2))
    assert (str(told), told.is_all) == ("from 2026-01-31T00:00:00Z until 0:1,1:2", False)
