"""When a view is behind, stalled, or too far behind for patches."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pytest

from projections.errors import RebuildFailed, StoreUnavailable
from projections.lag import Lag
from projections.registry import ViewRegistry
from projections.upkeep import Upkeep, quicker_in_bulk, to_replay
from projections.view import TableView

HERE = Lag("listings", "postgres", 1, 3, "caught up", {0: 10, 1: 20}, 0, 0, 0.0)
ENDS = {0: 12, 1: 20}


def test_a_view_that_moves_is_not_stalled_and_one_that_has_nothing_before_it_is_not_either() -> None:
    assert replace(HERE, position={0: 11, 1: 20}).since(HERE, ENDS).standing == "caught up"
    assert HERE.since(HERE, {0: 10, 1: 20}).standing == "caught up"


@pytest.mark.parametrize(("patches", "part"), [(0, "the live query"), (7, "the loader of postgres")])
def test_a_view_that_does_not_move_is_stalled_and_the_part_that_holds_it_is_named(patches: int, part: str) -> None:
    # heartbeats came, which are no events: it looks as if nothing was missing
    found = replace(HERE, lag_patches=patches).since(HERE, ENDS)
    assert (found.standing, found.problem) == ("stalled", f"{part} takes in nothing: see its log")


def test_a_new_generation_or_a_store_that_is_away_is_not_called_stalled() -> None:
    assert replace(HERE, generation=4).since(HERE, ENDS).standing == "caught up"
    assert replace(HERE, standing="away", position={}).since(HERE, ENDS).standing == "away"


def test_bulk_is_chosen_where_it_is_quicker_and_only_there() -> None:
    assert quicker_in_bulk(1_000_000, 1_000_000)
    assert not quicker_in_bulk(100_000, 100_000)
    assert not quicker_in_bulk(1_000_000, 100_000_000)
    assert quicker_in_bulk(50_000_000, 100_000_000)


def test_a_view_in_several_stores_is_replayed_once_if_any_of_them_needs_it() -> None:
    lost = replace(HERE, store="valkey", standing="lost", lag_events=None)
    far = replace(HERE, view="streams", lag_events=5_000_000)
    away = replace(HERE, view="city_market", standing="away", lag_events=None)
    assert to_replay([HERE, lost, lost, far, away], 5_000_000) == ["listings", "streams"]


@dataclass
class FakeLags:
    """Looks that are given beforehand."""

    looks: list[list[Lag]]
    views: ViewRegistry = field(default_factory=ViewRegistry.load)

    def ends(self) -> dict[int, int]:
        return ENDS

    def look(self) -> list[Lag]:
        return self.looks.pop(0)


class Replays:
    """Replays that are noted; those of `listings` fail."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    @contextmanager
    def __call__(self) -> Iterator[Callable[[TableView], None]]:
        self.asked.append([])
        yield self._replay

    def _replay(self, view: TableView) -> None:
        self.asked[-1].append(view.name)
        if view.name == "listings":
            raise RebuildFailed("listings", "bulk", "no room")


def test_a_replay_that_fails_is_told_and_not_tried_again_at_once(caplog: pytest.LogCaptureFixture) -> None:
    lost, replays = replace(HERE, standing="lost", problem="its ledger is gone"), Replays()
    with caplog.at_level(logging.INFO, "projections.upkeep"):
        upkeep = Upkeep(FakeLags([[lost], [lost]]), replays)  # type: ignore[arg-type]
        upkeep.look()
        upkeep.look()
    assert replays.asked == [["listings"]]
    assert caplog.text.count("is lost: its ledger is gone") == 1
    assert "no room" in caplog.text


def test_all_that_is_lost_is_replayed_together_though_one_of_them_fails() -> None:
    lost, replays = replace(HERE, standing="lost", problem="its ledger is gone"), Replays()
    others = [replace(lost, view=name) for name in ("streams", "city_market")]
    upkeep = Upkeep(FakeLags([[lost, *others], [lost, others[0]], [HERE]]), replays)  # type: ignore[arg-type]
    for _ in range(3):
        upkeep.look()
    assert replays.asked == [["listings", "streams", "city_market"], ["streams"]]


def test_whatever_goes_wrong_is_told_and_the_next_look_is_taken(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("projections.upkeep.LOOK_S", 0.0)
    stop, looks = threading.Event(), iter([StoreUnavailable("PostgreSQL", "gone"), ZeroDivisionError("a bug"), None])

    class Failing(FakeLags):
        def look(self) -> list[Lag]:
            if (error := next(looks)) is not None:
                raise error
            stop.set()
            return [HERE]

    Upkeep(Failing([]), Replays()).run(stop)  # type: ignore[arg-type]
    assert next(looks, "all were taken") == "all were taken"
    assert "gone" in caplog.text
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["a bug"]


def test_what_recovers_is_told_as_well_as_what_breaks(caplog: pytest.LogCaptureFixture) -> None:
    away = replace(HERE, standing="away", position={}, lag_events=None, problem="postgres is away")
    with caplog.at_level(logging.INFO, "projections.upkeep"):
        upkeep = Upkeep(FakeLags([[HERE], [away], [away], [HERE]]), Replays())  # type: ignore[arg-type]
        for _ in range(4):
            upkeep.look()
    told = [record.getMessage() for record in caplog.records]
    assert [each.split(":")[0] for each in told] == [
        "listings g3 in postgres at 0", "listings in postgres is away", "listings g3 in postgres at 0",
    ]  # fmt: skip
