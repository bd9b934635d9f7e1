"""When a view is behind, stalled, or too far behind for patches."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from headwater.projections.errors import RebuildFailed, StoreUnavailable
from headwater.projections.generations.rebuild.rebuild import Rebuilt
from headwater.projections.generations.registry.generation import Generation
from headwater.projections.generations.upkeep.lag import Lag
from headwater.projections.generations.upkeep.rates import Rates
from headwater.projections.generations.upkeep.upkeep import (
    FIRST_RETRY_S,
    LOOK_S,
    RETRY_S,
    Replay,
    Upkeep,
    live_positions,
    to_replay,
)
from headwater.projections.registry import ViewRegistry
from headwater.projections.running_parts import STREAMS
from headwater.projections.table.view import TableView
from headwater.projections.view import View
from tests.contracts.view_histories import BY_GROUP
from tests.support.captured_things import by_id
from tests.support.observed import gate_view

HERE = Lag("listings", "postgres", 1, 3, "caught up", {"0": 10, "1": 20}, 0, 0, 0.0)
ENDS = {"0": 12, "1": 20}


def test_a_view_that_moves_is_not_stalled_and_one_that_has_nothing_before_it_is_not_either() -> None:
    assert replace(HERE, position={"0": 11, "1": 20}).since(HERE, ENDS).standing == "caught up"
    assert HERE.since(HERE, {"0": 10, "1": 20}).standing == "caught up"


@pytest.mark.parametrize(("patches", "part"), [(0, "the live query"), (7, "the loader of postgres")])
def test_a_view_that_does_not_move_is_stalled_and_the_part_that_holds_it_is_named(patches: int, part: str) -> None:
    # heartbeats came, which are no events: it looks as if nothing was missing
    found = replace(HERE, lag_patches=patches).since(HERE, ENDS)
    assert (found.standing, found.problem) == ("stalled", f"{part} makes no progress: see its log")


def test_a_new_generation_or_a_store_that_is_away_is_not_called_stalled() -> None:
    assert replace(HERE, generation=4).since(HERE, ENDS).standing == "caught up"
    assert replace(HERE, standing="away", position={}).since(HERE, ENDS).standing == "away"


def test_a_view_in_several_stores_is_replayed_once_if_any_of_them_needs_it() -> None:
    lost = replace(HERE, store="valkey", standing="lost", lag_events=None)
    far = replace(HERE, view="streams", lag_events=5_000_000)
    away = replace(HERE, view="city_market", standing="away", lag_events=None)
    assert to_replay([HERE, lost, lost, far, away], lambda lag: lag is far) == ["listings", "streams"]


@dataclass
class FakeGenerations:
    """A registry that notes pauses: the view, its replays in a row, and seconds."""

    pauses: list[tuple[str, int, float]] = field(default_factory=list)
    noted: list[tuple[str, int, str, float]] = field(default_factory=list)

    def all(self) -> list[Generation]:
        return []

    def note_kept(self, view: str, generation: int, store: str, age_s: float) -> None:
        self.noted.append((view, generation, store, age_s))

    def note_replays(self, view: TableView, replays: int, pause_s: float) -> None:
        self.pauses.append((view.name, replays, pause_s))


@dataclass
class FakeLags:
    """Looks that are given beforehand, at a log that goes on."""

    looks: list[list[Lag]]
    views: ViewRegistry = field(default_factory=lambda: ViewRegistry.load(["listings"]))
    generations: FakeGenerations = field(default_factory=FakeGenerations)
    seen: int = 0

    def ends(self) -> dict[str, int]:
        self.seen += 1
        return {each: end + self.seen for each, end in ENDS.items()}

    def look(self) -> list[Lag]:
        return self.looks.pop(0)

    def note_topics(self, found: Sequence[Lag]) -> None: ...


class Replays:
    """Replays that are noted, by pass; those of `listings` fail."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    @contextmanager
    def __call__(self) -> Iterator[Replay]:
        yield self._replay

    def _replay(self, views: Sequence[View]) -> Iterator[tuple[View, object]]:
        self.asked.append([view.name for view in views])
        for view in views:
            failed = view.name == "listings"
            yield view, RebuildFailed("listings", "bulk", "no room") if failed else Rebuilt(view.name, 2)


@dataclass
class FakeParts:
    """Parts that note their restarts."""

    up: bool = True
    restarted: list[str] = field(default_factory=list)

    def is_up(self, part: str) -> bool:
        return self.up

    def restart(self, part: str) -> None:
        self.restarted.append(part)


@pytest.fixture
def rates(tmp_path: Path) -> Rates:
    return Rates(tmp_path / "rates")


def test_upkeep_notes_until_when_views_with_deletions_of_captured_rows_are_kept_up(rates: Rates) -> None:
    views = ViewRegistry([("here", by_id), ("here", BY_GROUP)])
    things, others = replace(HERE, view=by_id.name, freshness_s=1.5), replace(HERE, view=BY_GROUP.name)
    lags = FakeLags([[things, others]] * 3, views=views)
    upkeep = Upkeep(lags, Replays(), rates)  # type: ignore[arg-type]
    for _ in range(3):
        upkeep.look()
    assert lags.generations.noted == [(by_id.name, 3, "postgres", 1.5)]


def test_a_replay_that_fails_is_told_and_not_tried_again_at_once(
    caplog: pytest.LogCaptureFixture, rates: Rates
) -> None:
    lost, replays = replace(HERE, standing="lost", problem="its ledger is gone"), Replays()
    with caplog.at_level(logging.INFO, "headwater.projections.generations.upkeep.upkeep"):
        upkeep = Upkeep(FakeLags([[lost], [lost]]), replays, rates)  # type: ignore[arg-type]
        upkeep.look()
        upkeep.look()
    assert replays.asked == [["listings"]]
    assert caplog.text.count("is lost: its ledger is gone") == 1
    assert "no room" in caplog.text


def test_all_that_is_lost_is_replayed_together_though_one_of_them_fails(rates: Rates) -> None:
    lost, replays = replace(HERE, standing="lost", problem="its ledger is gone"), Replays()
    others = [replace(lost, view=name) for name in ("streams", "city_market")]
    upkeep = Upkeep(FakeLags([[lost, *others], [lost, others[0]], [HERE]]), replays, rates)  # type: ignore[arg-type]
    for _ in range(3):
        upkeep.look()
    assert replays.asked == [["listings", "streams", "city_market"], ["streams"]]


def test_views_of_a_pass_that_ended_in_an_error_wait_as_well(rates: Rates, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ending(Replays):
        def _replay(self, views: Sequence[View]) -> Iterator[tuple[View, object]]:
            for view, outcome in super()._replay(views):
                if view.name == "city_market":
                    clock.now += 2 * RETRY_S  # so long it has taken
                    raise ZeroDivisionError("a bug")
                yield view, outcome

    clock, replays = Clock(), Ending()
    monkeypatch.setattr("headwater.projections.generations.upkeep.upkeep.time", clock)
    lost = replace(HERE, standing="lost", problem="its ledger is gone")
    far = [replace(lost, view=name) for name in ("streams", "city_market", "listing_card")]
    upkeep = Upkeep(FakeLags([far] * 3), replays, rates)  # type: ignore[arg-type]
    upkeep.try_to_look()
    assert replays.asked == [["streams", "city_market", "listing_card"]]
    clock.now += 10
    upkeep.try_to_look()
    assert replays.asked[1:] == [["streams"]], "the others have no result"
    clock.now += RETRY_S
    upkeep.try_to_look()
    assert replays.asked[2:] == [["streams", "city_market", "listing_card"]]


@dataclass
class Clock:
    """Time that passes on request."""

    now: float = 1000.0

    def monotonic(self) -> float:
        return self.now


@dataclass
class SizedLags(FakeLags):
    """Looks at sources that end where they are said to."""

    sizes: dict[str, int] = field(default_factory=dict)

    def ends(self) -> dict[str, int]:
        return dict(self.sizes)


def upkeep_of(rates: Rates, ends: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> tuple[Upkeep, SizedLags, Clock]:
    clock, lags = Clock(), SizedLags([], sizes=ends)
    monkeypatch.setattr("headwater.projections.generations.upkeep.upkeep.time", clock)
    return Upkeep(lags, Replays(), rates), lags, clock  # type: ignore[arg-type]


def replayed(upkeep: Upkeep) -> list[list[str]]:
    assert isinstance(upkeep.replaying, Replays)
    return upkeep.replaying.asked


def test_the_rates_and_the_sources_of_a_view_decide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rates").write_text('{"streams/postgres": 5000, "city_market/postgres": 5000}')
    ends = {"0": 500_000, "1": 500_000, "2": 50_000_000}
    upkeep, lags, _ = upkeep_of(Rates(tmp_path / "rates"), ends, monkeypatch)
    slow = replace(HERE, view="streams", lag_events=100_000)
    fast = replace(slow, view="listing_card")
    large = replace(slow, view="city_market", position={"2": 0})
    lags.looks.append([slow, fast, large])
    upkeep.look()
    assert replayed(upkeep) == [["streams"]]


@pytest.mark.parametrize("realtime", [False, True])
def test_a_stream_view_that_is_far_behind_is_left_to_its_query_which_reads_only_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, realtime: bool
) -> None:
    (tmp_path / "rates").write_text('{"gates/postgres": 50, "streams/postgres": 50}')
    upkeep, lags, _ = upkeep_of(Rates(tmp_path / "rates"), {"0": 1_000_000, "1": 0}, monkeypatch)
    lags.views = ViewRegistry([("here", gate_view(realtime=realtime)), ("here", lags.views.view("streams"))])
    gates = replace(HERE, view="gates", lag_events=500_000)
    lags.looks.append([gates, replace(gates, view="streams")])
    upkeep.look()
    assert replayed(upkeep) == [["streams"]]
    lags.looks.append([replace(gates, standing="lost")])
    upkeep.look()
    assert replayed(upkeep) == [["streams"], ["gates"]]


def test_a_view_is_replayed_when_a_snapshot_has_ended_and_not_while_it_is_taken(
    rates: Rates, monkeypatch: pytest.MonkeyPatch
) -> None:
    upkeep, lags, clock = upkeep_of(rates, {"0": 0, "1": 0}, monkeypatch)
    for rows in (0, 400_000, 800_000, 800_000):
        lags.sizes = {"0": rows, "1": 0}
        lags.looks.append([replace(HERE, view="streams", position={"0": 0, "1": 0}, lag_events=rows)])
        waited = replayed(upkeep) == []
        upkeep.look()
        clock.now += 10
    assert waited, "40,000 rows per second arrived"
    assert replayed(upkeep) == [["streams"]]


def test_replays_that_do_not_help_are_repeated_less_and_less_often(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, rates: Rates
) -> None:
    clock, replays = Clock(), Replays()
    monkeypatch.setattr("headwater.projections.generations.upkeep.upkeep.time", clock)
    lost = replace(HERE, view="streams", standing="lost", problem="its ledger is gone")
    lags = FakeLags([])
    upkeep = Upkeep(lags, replays, rates)  # type: ignore[arg-type]

    def replayed_in(seconds: int) -> list[int]:
        """Check every ten seconds; returns the seconds after which the view was replayed."""
        began, found = clock.now, []
        for _ in range(seconds // 10):
            lags.looks.append([lost])
            before = len(replays.asked)
            upkeep.look()
            found += [int(clock.now - began)] * (len(replays.asked) - before)
            clock.now += 10
        return found

    assert replayed_in(2000) == [0, 10, 70, 190, 430, 910, 1870]
    assert lags.generations.pauses[:3] == [("streams", 2, 60.0), ("streams", 3, 120.0), ("streams", 4, 240.0)]
    assert "streams has been replayed 3 times in a row" in caplog.text
    replayed_in(10_000)
    assert max(pause for *_, pause in lags.generations.pauses) == 3600
    lags.looks.append([replace(lost, standing="caught up", position={"0": 10_000, "1": 10_000})])
    upkeep.look()
    assert replayed_in(40) == [0, 10], "it was caught up, so a replay helps"
    clock.now += 2000
    assert replayed_in(40) == [0, 10], "it was not needed for long"


def test_whatever_goes_wrong_is_told_and_the_next_look_is_taken(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, rates: Rates
) -> None:
    monkeypatch.setattr("headwater.projections.generations.upkeep.upkeep.LOOK_S", 0.0)
    stop, looks = threading.Event(), iter([StoreUnavailable("PostgreSQL", "gone"), ZeroDivisionError("a bug"), None])

    class Failing(FakeLags):
        def look(self) -> list[Lag]:
            if (error := next(looks)) is not None:
                raise error
            stop.set()
            return [HERE]

    Upkeep(Failing([]), Replays(), rates).run(stop)  # type: ignore[arg-type]
    assert next(looks, "all were taken") == "all were taken"
    assert "gone" in caplog.text
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["a bug"]


def test_what_recovers_is_told_as_well_as_what_breaks(caplog: pytest.LogCaptureFixture, rates: Rates) -> None:
    away = replace(HERE, standing="away", position={}, lag_events=None, problem="postgres is away")
    with caplog.at_level(logging.INFO, "headwater.projections.generations.upkeep.upkeep"):
        upkeep = Upkeep(FakeLags([[HERE], [away], [away], [HERE]]), Replays(), rates)  # type: ignore[arg-type]
        for _ in range(4):
            upkeep.look()
    told = [record.getMessage() for record in caplog.records]
    assert [each.split(":")[0] for each in told] == [
        "listings g3 in postgres at 0", "listings in postgres is away", "listings g3 in postgres at 0",
    ]  # fmt: skip


def test_what_stands_still_is_restarted_and_that_is_told(
    caplog: pytest.LogCaptureFixture, rates: Rates, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr("headwater.projections.generations.upkeep.upkeep.time", clock)
    stands = [replace(HERE, lag_patches=7)]
    parts = FakeParts()
    upkeep = Upkeep(FakeLags([stands] * 7), Replays(), rates, parts)  # type: ignore[arg-type]
    for _ in range(6):
        upkeep.look()
        clock.now += LOOK_S
    assert parts.restarted == []
    upkeep.look()
    assert parts.restarted == ["postgres"]
    assert "restarting the loaders of postgres: listings in postgres has made no progress" in caplog.text
    assert "again in 120 s" in caplog.text


def test_a_view_that_the_start_could_not_build_is_tried_again_until_it_is_built(
    rates: Rates, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, replays = Clock(), Replays()
    monkeypatch.setattr("headwater.projections.generations.upkeep.upkeep.time", clock)
    missing = replace(HERE, generation=None, standing="not built", position={}, lag_events=None)
    unbuilt = [ViewRegistry.load(["listings"]).view("listings")]
    upkeep = Upkeep(FakeLags([[missing]] * 6), replays, rates, unbuilt=lambda: unbuilt)  # type: ignore[arg-type]
    for passed_s, tried in ((0, 0), (10, 0), (FIRST_RETRY_S, 1), (FIRST_RETRY_S, 1), (RETRY_S, 2)):
        clock.now += passed_s
        upkeep.look()
        assert replays.asked == [["listings"]] * tried
    unbuilt.clear()
    clock.now += RETRY_S
    upkeep.look()
    assert replays.asked == [["listings"]] * 2


def test_views_with_a_query_of_their_own_are_replayed_after_the_first_check_if_it_leaves_them_out(
    rates: Rates, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, replays, gates = Clock(), Replays(), gate_view()
    monkeypatch.setattr("headwater.projections.generations.upkeep.upkeep.time", clock)
    views = ViewRegistry([("here", gates), ("here", replace(gates, name="others")), ("here", BY_GROUP)])
    lost = replace(HERE, standing="lost", problem="its ledger is gone")
    looks = [[replace(lost, view=name) for name in ("others", BY_GROUP.name)]] * 2
    upkeep = Upkeep(FakeLags(looks, views), replays, rates, unbuilt=lambda: [gates])  # type: ignore[arg-type]
    upkeep.try_to_look(only_folded=True)
    assert replays.asked == [["by_group"]]
    upkeep.try_to_replay_others()
    assert replays.asked[1:] == [["gates", "others"]], "at once: the start has not tried it"
    upkeep.try_to_replay_others()
    assert len(replays.asked) == 2
    clock.now += 10
    upkeep.try_to_look()
    assert {name for asked in replays.asked[2:] for name in asked} >= {"others", "by_group"}


@pytest.mark.parametrize("only_folded", [False, True])
def test_what_comes_while_a_view_is_replayed_says_nothing_about_the_rates(
    rates: Rates, monkeypatch: pytest.MonkeyPatch, only_folded: bool
) -> None:
    noted: list[str] = []
    monkeypatch.setattr(rates, "note", lambda before, *_: noted.append(before.view))
    gates = gate_view()
    lost = replace(HERE, view=gates.name, standing="lost", problem="its ledger is gone")
    lags = FakeLags([[lost], [replace(HERE, view=gates.name)], [replace(HERE, view=gates.name)]])
    lags.views = ViewRegistry([("here", gates)])
    upkeep = Upkeep(lags, Replays(), rates)  # type: ignore[arg-type]
    upkeep.look(only_folded=only_folded)
    upkeep.try_to_replay_others()
    assert replayed(upkeep) == [["gates"]]
    upkeep.look()
    assert noted == []
    upkeep.look()
    assert noted == ["gates"]


@pytest.mark.parametrize(("every", "stalled_after"), [("5m", 310), ("", 10)])
def test_a_view_with_few_batches_is_not_stalled_between_them(
    rates: Rates, monkeypatch: pytest.MonkeyPatch, every: str, stalled_after: int
) -> None:
    clock, gates = Clock(), gate_view(every=every)
    monkeypatch.setattr("headwater.projections.generations.upkeep.upkeep.time", clock)
    waits = replace(HERE, view=gates.name)
    lags = FakeLags([[waits]] * 200, ViewRegistry([("here", gates)]))
    upkeep = Upkeep(lags, Replays(), rates)  # type: ignore[arg-type]
    upkeep.look()
    passed_s = 0
    while True:
        clock.now += 10
        passed_s += 10
        if upkeep.look()[0].standing == "stalled":
            break
    assert passed_s == stalled_after
    lags.looks.insert(0, [replace(waits, position={"0": 11, "1": 20})])
    clock.now += 10
    assert upkeep.look()[0].standing == "caught up"


def test_a_view_is_not_stalled_because_records_came_right_before_the_check(
    rates: Rates, monkeypatch: pytest.MonkeyPatch
) -> None:
    upkeep, lags, clock = upkeep_of(rates, dict(HERE.position), monkeypatch)
    seen = []
    for _ in range(3):
        lags.looks.append([HERE])
        seen.append(upkeep.look()[0].standing)
        lags.sizes["0"] = 12
        clock.now += LOOK_S
    assert seen == ["caught up", "caught up", "stalled"], "they have waited since the second check, for all we know"


def test_the_live_query_is_as_far_as_the_view_that_is_furthest() -> None:
    here = Lag("a", "postgres", 1, 1, "behind", {"0": 5, "1": 9})
    lags = [
        here,
        replace(here, store="valkey", position={"0": 8, "1": 2}),
        replace(here, view="b", position={"observations/0": 4, "1": 3}),
        replace(here, view="c", query=STREAMS, position={"0": 100}),
    ]
    assert live_positions(lags) == {("events", 0): 8, ("events", 1): 9, ("observations", 0): 4}
    assert live_positions([replace(here, standing="away", position={})]) == {}


class Beside:
    """Work that is done when it is let go."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def __call__(self, work: Callable[[], None]) -> None:
        self.waiting.append(work)

    def let_go(self) -> None:
        self.waiting.pop(0)()


def test_the_checks_go_on_while_a_view_is_computed_for_hours(rates: Rates, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("headwater.projections.generations.upkeep.upkeep.time", clock)
    gates, replays, beside, parts = gate_view(), Replays(), Beside(), FakeParts()
    views = ViewRegistry([("here", gates), *(("here", replace(BY_GROUP, name=name)) for name in ("a", "b"))])
    lost = replace(HERE, standing="lost", problem="its ledger is gone")
    stands = replace(HERE, view="b", lag_patches=7)
    looks = [[replace(lost, view=gates.name), replace(HERE, view="a"), stands] for _ in range(2)]
    looks += [[replace(lost, view=gates.name), replace(lost, view="a"), stands]] * 20
    upkeep = Upkeep(FakeLags(looks, views), replays, rates, parts, beside=beside)  # type: ignore[arg-type]
    upkeep.look()
    assert (len(beside.waiting), upkeep.is_replaying, upkeep.replays_backlog) == (1, True, False)
    upkeep.look()
    assert len(beside.waiting) == 1, "it is replayed already"
    upkeep.look()
    assert len(beside.waiting) == 2
    beside.waiting.reverse()
    beside.let_go()
    assert replays.asked == [["a"]], "another view is replayed meanwhile"
    for _ in range(10):
        clock.now += LOOK_S
        upkeep.look()
    assert parts.restarted == ["postgres"], "and what stands still is restarted"
    beside.waiting = beside.waiting[:1]
    beside.let_go()
    assert replays.asked[1:] == [[gates.name]]


def test_one_pass_over_the_log_runs_at_a_time(rates: Rates, monkeypatch: pytest.MonkeyPatch) -> None:
    replays, beside = Replays(), Beside()
    lost = replace(HERE, view="streams", standing="lost", problem="its ledger is gone")
    other = replace(lost, view="city_market")
    upkeep = Upkeep(FakeLags([[lost], [lost, other], [other]]), replays, rates, beside=beside)  # type: ignore[arg-type]
    upkeep.look()
    upkeep.look()
    assert len(beside.waiting) == 1
    beside.let_go()
    assert not upkeep.is_replaying
    upkeep.look()
    beside.let_go()
    assert replays.asked == [["streams"], ["city_market"]]


@pytest.mark.parametrize(
    ("standing", "others", "waits"),
    [("behind", "caught up", True), ("lost", "caught up", False), ("lost", "lost", True), ("lost", "not built", True)],
)
def test_the_live_query_waits_only_for_what_it_would_make_patches_of(
    standing: Any, others: Any, waits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rates").write_text('{"streams/postgres": 50}')
    upkeep, lags, _ = upkeep_of(Rates(tmp_path / "rates"), {"0": 1_000_000, "1": 0}, monkeypatch)
    beside = upkeep.beside = Beside()
    lags.looks.append(
        [replace(HERE, view="streams", standing=standing, lag_events=900_000), replace(HERE, standing=others)]
    )
    upkeep.look(only_folded=True)
    assert (upkeep.is_replaying, upkeep.replays_backlog) == (True, waits)
    beside.let_go()
    assert not upkeep.replays_backlog
