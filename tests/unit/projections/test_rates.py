"""How fast a deployment is, learned from its looks and its replays, decides between patches and a replay."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headwater.projections.generations.registry.generation import Generation
from headwater.projections.generations.upkeep.lag import Lag
from headwater.projections.generations.upkeep.rates import (
    LIVE_EVENTS_PER_S,
    LOCAL,
    SPARK,
    Bulk,
    Rates,
    bulk_rate,
    quicker_in_bulk,
)

BEHIND = Lag("listings", "postgres", 1, 3, "behind", {"0": 0, "1": 0}, 900_000, 0, 60.0)


def at(offset: int, **changes: object) -> Lag:
    return replace(BEHIND, position={"0": offset, "1": offset}, **changes)  # type: ignore[arg-type]


def replayed(view: str, events: int | None, seconds: float | None, day: int) -> Generation:
    created = datetime(2026, 1, day, tzinfo=UTC)
    return Generation(
        view,
        day,
        1,
        f"{view}@1",
        "",
        "retired",
        {},
        {},
        created,
        None,
        [],
        [],
        True,
        events,
        seconds,
        None,
        None,
        created,
        [],
        {},
    )


@pytest.mark.parametrize(("behind", "log_size", "engine", "bulk"), [
    (1_000_000, 1_000_000, SPARK, True),
    (500_000, 500_000, SPARK, False),
    (500_000, 500_000, LOCAL, True),
    (100_000, 100_000, LOCAL, False),
    (1_000_000, 100_000_000, SPARK, False),
    (50_000_000, 100_000_000, SPARK, True),
])  # fmt: skip
def test_bulk_is_chosen_where_it_is_quicker_and_only_there(
    behind: int, log_size: int, engine: Bulk, bulk: bool
) -> None:
    assert quicker_in_bulk(behind, log_size, LIVE_EVENTS_PER_S, engine) is bulk


@pytest.mark.parametrize(("arriving", "bulk"), [(0.0, True), (10_000.0, True), (40_000.0, False)])
def test_a_replay_waits_while_so_much_arrives_that_it_would_not_help(arriving: float, bulk: bool) -> None:
    assert quicker_in_bulk(500_000, 500_000, LIVE_EVENTS_PER_S, LOCAL, arriving) is bulk


def test_the_live_rate_is_what_busy_looks_show_and_outlives_the_process(tmp_path: Path) -> None:
    rates = Rates(tmp_path / "folder" / "rates.json")
    assert rates.live("listings", "postgres") == LIVE_EVENTS_PER_S
    rates.note(at(0), at(10_000), 10.0)
    assert rates.live("listings", "postgres") == LIVE_EVENTS_PER_S, "it may just have started"
    rates.note(at(10_000), at(60_000), 10.0)
    assert rates.live("listings", "postgres") == 10_000
    rates.note(at(60_000), at(160_000), 10.0)
    assert rates.live("listings", "postgres") == 15_000, "half way to the 20,000 that were seen"
    again = Rates(tmp_path / "folder" / "rates.json")
    assert (again.live("listings", "postgres"), again.live("listings", "valkey")) == (15_000, LIVE_EVENTS_PER_S)


@pytest.mark.parametrize("idle", [
    at(20_000, lag_events=100), at(10_000), at(5_000), at(20_000, generation=4),
    at(20_000, standing="away", lag_events=None),
])  # fmt: skip
def test_who_has_nothing_to_do_or_stands_still_or_is_replaced_shows_no_rate(idle: Lag, tmp_path: Path) -> None:
    rates = Rates(tmp_path / "rates.json")
    rates.note(at(0), at(10_000), 10.0)
    rates.note(at(10_000), idle, 10.0)
    rates.note(replace(idle, generation=3), at(90_000), 10.0)
    assert rates.live("listings", "postgres") == LIVE_EVENTS_PER_S


@pytest.mark.parametrize("kept", ["", "[]", '{"listings/postgres": 0}', '{"listings/postgres": "x"}', "{"])
def test_rates_that_cannot_be_read_are_measured_again(kept: str, tmp_path: Path) -> None:
    (tmp_path / "rates.json").write_text(kept)
    assert Rates(tmp_path / "rates.json").live("listings", "postgres") == LIVE_EVENTS_PER_S


def test_a_folder_that_cannot_be_written_loses_the_rate_for_the_next_start_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    rates = Rates(tmp_path / "file" / "rates.json")
    for start in (0, 1):
        rates.note(at(start * 40_000), at(start * 40_000 + 40_000), 10.0)
    assert rates.live("listings", "postgres") == 8_000
    assert "cannot store the measured rates for the next start" in caplog.text


def test_the_bulk_rate_is_that_of_the_views_last_replay_or_of_any() -> None:
    assert bulk_rate("listings", [], 3.0) == 3.0
    few, none = replayed("listings", 2_000, 1.0, 9), replayed("listings", None, None, 10)
    assert bulk_rate("listings", [few, none], 3.0) == 3.0
    other = replayed("streams", 1_000_000, 4.0, 3)
    assert bulk_rate("listings", [few, other, none], 3.0) == 250_000
    own = [replayed("listings", 1_000_000, seconds, day) for seconds, day in ((10.0, 1), (8.0, 2))]
    assert bulk_rate("listings", [*own, other], 3.0) == 125_000
