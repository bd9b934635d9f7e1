"""A connector that runs and sends no heartbeats is named, but not one that has just begun to run again."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from headwater.eventlog.capturing import source_status
from headwater.eventlog.capturing.control_topics import ControlTopics, Snapshot
from headwater.eventlog.capturing.source_status import LATE_S, SourceStatus, look_at_log
from tests.unit.capturing.captured_world import PEOPLE, world_in_memory


def looked_at(
    monkeypatch: pytest.MonkeyPatch, ages_s: Sequence[float | None], state: str, snapshot: Snapshot | None = None
) -> tuple[SourceStatus, int]:
    """The status, and how often the last heartbeat was read. ages_s: how old it is at each look; the last one stays."""
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
    look_at_log(world_in_memory(monkeypatch).operator(PEOPLE), status)
    return status, looks


def test_a_connector_without_heartbeats_is_named_after_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_status, "AWAITED_S", 0.02)
    status, looks = looked_at(monkeypatch, [LATE_S + 10], "RUNNING")
    (problem,) = status.problems
    assert problem.startswith("nothing has been captured for 70 s, not even a heartbeat: ")
    assert looks > 1
    assert status.lag_s == pytest.approx(LATE_S + 10, abs=1)


@pytest.mark.parametrize(
    ("ages_s", "looks"), [([LATE_S + 10, LATE_S + 10, 0.5], 3), ([0.5], 1), ([None], 1)], ids=["late", "early", "none"]
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
