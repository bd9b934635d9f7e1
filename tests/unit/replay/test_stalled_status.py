"""A view that stands still is told from one that is only behind."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest

from headwater.eventlog.source_positions import sources_of
from headwater.eventlog.topics import EVENTS
from headwater.projections.errors import StoreUnavailable
from headwater.projections.generations.upkeep.lag import STALLED_S, Lag
from headwater.replay.parts import Checks
from tests.unit.replay.played import Stage, lag

VIEWS = {"listings": 0.0, "streams": 0.0}
SOURCES = sources_of(EVENTS, 4)


@dataclass
class Moving:
    """Two views and a clock: `listings` moves by `pace` a second, `streams` does not. The log ends at 100."""

    pace: float
    at: float = 0.0
    slept: list[float] = field(default_factory=list)

    def look(self) -> list[Lag]:
        position = min(100, int(self.at * self.pace))
        moving = "caught up" if position == 100 else "behind"
        return [
            lag("listings", standing=moving, position=dict.fromkeys(SOURCES, position)),
            lag("streams", standing="caught up", position=dict.fromkeys(SOURCES, 100)),
        ]

    def ends(self) -> dict[str, int]:
        return dict.fromkeys(SOURCES, 100)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at += seconds


def standings(pace: float) -> tuple[list[str], float]:
    world = Moving(pace)
    found = Checks(world, VIEWS, lambda: world.at).settled(world.sleep)
    return [each.standing for each in found], world.at


def test_what_is_caught_up_needs_one_look() -> None:
    world = Moving(1.0, at=1_000.0)
    assert [each.standing for each in Checks(world, VIEWS, lambda: world.at).settled(world.sleep)] == ["caught up"] * 2
    assert world.slept == []


def test_what_moves_is_behind_as_soon_as_it_was_seen_to() -> None:
    found, seconds = standings(pace=1.0)
    assert found == ["behind", "caught up"]
    assert seconds < STALLED_S / 2


def test_what_does_not_move_is_stalled_after_a_while() -> None:
    found, seconds = standings(pace=0.0)
    assert found == ["stalled", "caught up"]
    assert STALLED_S <= seconds < 2 * STALLED_S


def test_a_view_with_rare_batches_is_stalled_later() -> None:
    world = Moving(0.0)
    found = Checks(world, VIEWS | {"listings": 30.0}, lambda: world.at).settled(world.sleep)
    assert [each.standing for each in found] == ["stalled", "caught up"]
    assert 30 + STALLED_S <= world.at < 30 + 2 * STALLED_S


def test_nothing_is_waited_for_that_nobody_asked_about() -> None:
    world = Moving(pace=0.0)
    assert [
        generation.view for generation in Checks(world, {"streams": 0.0}, lambda: world.at).settled(world.sleep)
    ] == ["streams"]
    assert world.slept == []


@dataclass
class InTurn(Moving):
    """Records keep coming, and the views have batches in turn: at each look another one has moved."""

    looks: int = 0

    def look(self) -> list[Lag]:
        self.looks += 1
        turns = zip(VIEWS, (self.looks // 2, (self.looks + 1) // 2), strict=True)
        return [lag(view, standing="behind", position=dict.fromkeys(SOURCES, turn)) for view, turn in turns]

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        assert self.at < 2 * STALLED_S, "it looks for ever"


def test_views_that_move_in_turn_under_traffic_are_behind_once_each_has_moved() -> None:
    world = InTurn(1.0)
    found = Checks(world, VIEWS, lambda: world.at).settled(world.sleep)
    assert [each.standing for each in found] == ["behind", "behind"]
    assert world.looks == 3


def test_a_watch_sees_it_stand_still_and_move_again() -> None:
    world = Moving(pace=1.0)
    checks = Checks(world, VIEWS, lambda: world.at)
    seen = []
    for pace, seconds in ((1.0, 4), (1.0, 4), (0.0, 4), (0.0, 4), (0.0, 4), (0.0, 4)):
        here = world.at * world.pace
        world.at += seconds
        world.pace = (here + pace * seconds) / world.at
        seen.append(checks.look()[0].standing)
    assert seen == ["behind"] * 4 + ["stalled"] * 2, "12 s without a move, which is more than STALLED_S"
    world.sleep(4)
    world.pace = 50 / world.at
    assert checks.look()[0].standing == "behind"


@pytest.fixture
def looks(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A view catches up from look to look, PostgreSQL is away at the third, and after the last comes Ctrl-C."""
    left = [1, 2, 3, 4]

    def look() -> list[Lag]:
        number = left.pop(0)
        if number == 3:
            raise StoreUnavailable("PostgreSQL", "connection refused")
        standing = "lost" if number == 4 else "behind"
        return [lag("listings", standing=standing, position={"0": number}, lag_events=4 - number)]

    def sleep(seconds: float) -> None:
        assert seconds == 0.5
        if not left:
            raise KeyboardInterrupt

    monkeypatch.setattr(stage, "look", look)
    monkeypatch.setattr("headwater.replay.status.time", SimpleNamespace(sleep=sleep))  # other threads go on sleeping


WATCH = ("status", "--watch", "--every", "0.5")


@pytest.mark.usefixtures("looks")
def test_a_watch_ends_with_ctrl_c_and_the_code_of_its_last_look(stage: Stage) -> None:
    done = stage.run(*WATCH, "--json")
    assert [json.loads(line)[0]["lag_events"] for line in done.out.splitlines()] == [3, 2, 0]
    assert "PostgreSQL is unavailable: connection refused" in done.err
    assert done.code == 3


@pytest.mark.usefixtures("looks")
def test_a_watch_in_a_pipe_prints_one_table_after_the_other(stage: Stage) -> None:
    piped = stage.run(*WATCH).out.splitlines()
    assert [line.split("\t")[4] for line in piped if line.startswith("listings")] == ["3", "2", "0"]


@pytest.mark.usefixtures("looks")
def test_a_watch_on_a_terminal_shows_the_last_look_in_place(stage: Stage) -> None:
    done = stage.run(*WATCH, terminal=True)
    shown = [line.rstrip() for line in done.out.splitlines() if line.strip()]
    assert shown[-1] == "listings  postgres  lost        2              0             0.0"
    assert "refreshed every 0.5 s until Ctrl-C" in shown[-3]
    assert max(map(len, shown)) <= 80
    assert done.code == 3


@dataclass
class Ahead:
    """`rebuilt` is at 80, and does not move; `listings` moves by `pace` a second. The log ends at 100."""

    pace: float
    store: str = "postgres"
    start: int = 0
    at: float = 0.0

    def look(self) -> list[Lag]:
        position = self.start + int(self.at * self.pace)
        moving = lag("listings", standing="behind", position=dict.fromkeys(SOURCES, position))
        rebuilt = lag("rebuilt", standing="behind", position=dict.fromkeys(SOURCES, 80))
        return [replace(rebuilt, store="postgres"), replace(moving, store=self.store)]

    def ends(self) -> dict[str, int]:
        return dict.fromkeys(SOURCES, 100)


@pytest.mark.parametrize(
    ("world", "rebuilt"),
    [
        (Ahead(pace=1.0), "behind"),
        (Ahead(pace=0.0), "stalled"),
        (Ahead(pace=1.0, store="valkey"), "stalled"),  # says nothing about the loader of this one
        (Ahead(pace=0.1, start=85), "stalled"),  # the others have passed it
    ],
    ids=["the others come", "nothing moves", "another store", "left behind"],
)
def test_a_view_that_was_rebuilt_ahead_of_the_others_waits_until_they_come(world: Ahead, rebuilt: str) -> None:
    checks = Checks(world, {"listings": 0.0, "rebuilt": 0.0}, lambda: world.at)
    for second in range(0, 60, 5):
        world.at = float(second)
        found = {each.view: each.standing for each in checks.look()}
    assert found["rebuilt"] == rebuilt
