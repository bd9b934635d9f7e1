"""A part that stands still is restarted: not too soon, not too often, and only where something waits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import pytest

from headwater.projections.generations.registry.state_files import StreamReport
from headwater.projections.generations.upkeep.lag import (
    MAX_LOOKS,
    RESTART_LOOKS,
    RESTART_STREAMS_LOOKS,
    Lag,
    Stalls,
)
from headwater.projections.running_parts import STREAMS

STALLED = Lag("listings", "postgres", 1, 3, "stalled", {"0": 10, "1": 20}, 0, 0, 0.0)
MOVING = replace(STALLED, standing="caught up")


@dataclass
class Parts:
    up: set[str] = field(default_factory=lambda: {"live", "streams", "postgres", "valkey"})

    def is_up(self, part: str) -> bool:
        return part in self.up

    def restart(self, part: str) -> None:
        raise AssertionError("only who asks what is due restarts it")


@dataclass
class Looks:
    """Looks at a log that goes on by an offset each time, unless it is quiet."""

    parts: Any = field(default_factory=Parts)
    stalls: Stalls = field(default_factory=Stalls)
    ends: Iterator[int] = field(default_factory=lambda: count(30))
    quiet: bool = False

    def until_due(self, *lags: Lag, most: int = MAX_LOOKS + 1) -> tuple[int, set[str]]:
        """How many looks at these lags it takes until a part is due, and which."""
        for number in range(1, most + 1):
            end = 30 if self.quiet else next(self.ends)
            if due := self.stalls.due(lags, {"0": end, "1": end}, self.parts):
                return number, set(due)
        return most, set()


def test_a_part_is_restarted_after_some_looks_and_then_less_and_less_often() -> None:
    looks = Looks()
    looks.until_due(MOVING, most=1)
    assert [looks.until_due(STALLED) for _ in range(3)] == [(each * RESTART_LOOKS, {"live"}) for each in (1, 2, 4)]
    for _ in range(8):
        last = looks.until_due(STALLED)
    assert last == (MAX_LOOKS, {"live"})
    looks.until_due(MOVING, most=1)
    assert looks.until_due(STALLED) == (RESTART_LOOKS, {"live"}), "it has moved, so all begins anew"


def test_a_movement_in_between_begins_the_count_anew() -> None:
    looks = Looks()
    looks.until_due(MOVING, most=1)
    assert looks.until_due(STALLED, most=RESTART_LOOKS - 1)[1] == set()
    looks.until_due(MOVING, most=1)
    assert looks.until_due(STALLED) == (RESTART_LOOKS, {"live"})


def test_the_part_that_holds_a_view_up_is_restarted_and_no_other() -> None:
    looks, held = Looks(), replace(STALLED, lag_patches=7)
    looks.until_due(MOVING, most=1)
    assert looks.until_due(held, replace(MOVING, store="valkey"))[1] == {"postgres"}
    looks = Looks()
    looks.until_due(MOVING, most=1)
    assert looks.until_due(STALLED, replace(held, store="valkey"))[1] == {"live", "valkey"}


def test_a_part_that_is_starting_or_runs_elsewhere_is_left_alone() -> None:
    looks = Looks(Parts(set()))
    assert looks.until_due(STALLED, most=50)[1] == set()
    looks.parts.up.add("live")
    assert looks.until_due(STALLED) == (RESTART_LOOKS, {"live"})


@pytest.mark.parametrize("standing", ["behind", "away", "lost", "not built"])
def test_what_is_not_stalled_restarts_nothing(standing: str) -> None:
    assert Looks().until_due(replace(STALLED, standing=standing, lag_events=9), most=20)[1] == set()  # type: ignore[arg-type]


def test_without_heartbeats_and_events_nothing_stands_still() -> None:
    # the last offset of the log is the mark of a transaction, which no position reaches
    assert Looks(quiet=True).until_due(STALLED, most=50)[1] == set()
    assert Looks(quiet=True).until_due(replace(STALLED, lag_events=3)) == (RESTART_LOOKS, {"live"})


def test_a_loader_that_reads_what_is_for_other_views_is_at_work() -> None:
    looks = Looks()
    for number in range(100, 50, -1):
        assert looks.until_due(replace(STALLED, lag_patches=number), most=1)[1] == set()


def stream_view(name: str, failure: str = "", standing: str = "stalled") -> Lag:
    report = StreamReport(failure=failure)
    return replace(STALLED, view=name, query=STREAMS, stream=report, standing=standing)  # type: ignore[arg-type]


def test_a_query_that_always_fails_does_not_restart_those_of_other_views() -> None:
    failing, fine = stream_view("gates", "KeyError: 'card'"), stream_view("doors", standing="caught up")
    assert Looks().until_due(failing, fine, most=4 * RESTART_STREAMS_LOOKS)[1] == set()
    assert Looks().until_due(replace(failing, lag_patches=7), fine, most=50)[1] == set(), (
        "its loader has others to read"
    )
    hangs = stream_view("doors")
    assert Looks().until_due(failing, hangs) == (RESTART_STREAMS_LOOKS + 1, {STREAMS})


def test_if_the_queries_of_all_stream_views_fail_their_process_is_restarted() -> None:
    failing = [stream_view(name, "Spark has stopped") for name in ("gates", "doors")]
    assert Looks().until_due(*failing, MOVING) == (RESTART_STREAMS_LOOKS + 1, {STREAMS})
