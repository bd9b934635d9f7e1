"""A connector that runs and sends no heartbeats is named, but not one that has just begun to run again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from headwater.eventlog.capturing import Source, source_status
from headwater.eventlog.capturing.control_topics import ControlTopics, Snapshot
from headwater.eventlog.capturing.source_status import LATE_S, SourceStatus, look_at_log
from headwater.eventlog.ports import Entry
from tests.unit.capturing.captured_world import PEOPLE, world_in_memory

AFTER: dict[str, Any] | None = {"lsn": 1}
"""Where a connector is that has made its first snapshot."""


def looked_at(
    monkeypatch: pytest.MonkeyPatch,
    ages_s: Sequence[float | None],
    state: str,
    snapshot: Snapshot | None = None,
    *,
    offset: dict[str, Any] | None = AFTER,
    written_s: float | None = None,
    ahead_s: float = 0.0,
    source: Source = PEOPLE,
) -> tuple[SourceStatus, int]:
    """The status, and how often the last heartbeat was read. ages_s: how old it is at each look; the last one stays.

    offset: of the connector. written_s: how long ago it has written a row. ahead_s: of the clock of the database.
    """
    looks = 0

    def last_heartbeat_s(*_: object) -> float | None:
        nonlocal looks
        age_s = ages_s[min(looks, len(ages_s) - 1)]
        looks += 1
        return None if age_s is None else time.time() - age_s

    monkeypatch.setattr(ControlTopics, "last_heartbeat_s", last_heartbeat_s)
    monkeypatch.setattr(ControlTopics, "last_snapshot", lambda *_: snapshot)
    monkeypatch.setattr(source_status, "LOOK_S", 0.001)
    status = SourceStatus("crm", state)
    world = world_in_memory(monkeypatch)
    world.stored_offset = offset
    if written_s is not None:
        entry = Entry("cdc.crm.public.people", "1", b"{}", int((time.time() - written_s) * 1000))
        world.log.submit(entry, 0).result()
    operator = world.operator(source)
    operator.ahead_s = ahead_s
    look_at_log(operator, status)
    return status, looks


def test_a_connector_without_heartbeats_is_named_after_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_status, "AWAITED_S", 0.02)
    status, looks = looked_at(monkeypatch, [LATE_S + 10], "RUNNING")
    (problem,) = status.problems
    assert problem.startswith("nothing has been captured for 70 s, not even a heartbeat: ")
    assert looks > 1
    assert status.lag_s == pytest.approx(LATE_S + 10, abs=1)


@pytest.mark.parametrize(
    ("ages_s", "looks"),
    [([LATE_S + 10, LATE_S + 10, 0.5], 3), ([0.5], 1), ([None, 0.5], 2)],
    ids=["late", "early", "none"],
)
def test_a_connector_whose_heartbeat_comes_is_not(
    monkeypatch: pytest.MonkeyPatch, ages_s: Sequence[float | None], looks: int
) -> None:
    status, found = looked_at(monkeypatch, ages_s, "RUNNING")
    assert (status.problems, found) == ([], looks)
    assert status.lag_s is None or status.lag_s < LATE_S


@pytest.mark.parametrize("state", ["PAUSED", "STOPPED", "FAILED", source_status.UNKNOWN])
def test_a_connector_that_does_not_run_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    status, looks = looked_at(monkeypatch, [LATE_S + 10], state)
    assert (status.problems, looks) == ([], 1)
    assert status.lag_s == pytest.approx(LATE_S + 10, abs=1)


def test_a_connector_that_reads_a_snapshot_sends_none(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Snapshot("initial", "IN_PROGRESS")
    status, looks = looked_at(monkeypatch, [LATE_S + 10], "RUNNING", reading)
    assert (status.problems, looks) == ([], 1)


def test_a_connector_of_which_no_heartbeat_is_left_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_status, "AWAITED_S", 0.02)
    status, looks = looked_at(monkeypatch, [None], "RUNNING")
    (problem,) = status.problems
    assert problem.startswith("nothing has been captured for a day or more, not even a heartbeat: ")
    assert looks > 1


def test_a_first_snapshot_that_reads_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Snapshot("initial", "IN_PROGRESS")
    status, _ = looked_at(monkeypatch, [None], "RUNNING", reading, offset={"snapshot": "INITIAL", "lsn": 1})
    (problem,) = status.problems
    assert problem.startswith("its first snapshot has read nothing for 600 s: ")
    status, _ = looked_at(monkeypatch, [None], "RUNNING", reading, offset=None, written_s=30.0)
    assert status.problems == []


@pytest.mark.parametrize("ahead_s", [-300.0, 300.0])
def test_the_clock_of_the_database_counts(monkeypatch: pytest.MonkeyPatch, ahead_s: float) -> None:
    monkeypatch.setattr(source_status, "AWAITED_S", 0.02)
    status, _ = looked_at(monkeypatch, [1.0 - ahead_s], "RUNNING", ahead_s=ahead_s)
    assert status.problems == []
    status, _ = looked_at(monkeypatch, [LATE_S + 10 - ahead_s], "RUNNING", ahead_s=ahead_s)
    assert len(status.problems) == 1


def test_a_source_with_slow_heartbeats_is_not_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_status, "AWAITED_S", 0.02)
    slow = replace(PEOPLE, heartbeat_ms=60_000)
    assert looked_at(monkeypatch, [LATE_S + 30], "RUNNING", source=slow)[0].problems == []
    assert len(looked_at(monkeypatch, [4 * LATE_S], "RUNNING", source=slow)[0].problems) == 1
