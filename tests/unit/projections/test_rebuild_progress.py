"""How far a rebuild is, in the registry, and as Prometheus reads it."""

from __future__ import annotations

import logging

import pytest

from headwater.projections.errors import StoreUnavailable
from headwater.projections.generations.registry.registry import NOTE_S, ProgressNotes, RebuildProgress
from headwater.projections.generations.upkeep.view_metrics import RebuildMetrics


class Noted:
    """What is noted, by a clock that a test moves."""

    def __init__(self) -> None:
        self.now_s, self.steps, self.fails = 0.0, list[tuple[str, int, int]](), False
        self.notes = ProgressNotes("listings", self.note, lambda: self.now_s)

    def note(self, phase: str, done: int, total: int) -> None:
        if self.fails:
            raise StoreUnavailable("PostgreSQL", "away")
        self.steps.append((phase, done, total))


def test_progress_is_noted_from_time_to_time_and_a_new_phase_at_once() -> None:
    noted = Noted()
    for done in range(100):
        noted.notes.take("bulk", done, 100)
    assert noted.steps == [("bulk", 0, 100)]
    noted.now_s = NOTE_S
    noted.notes.take("bulk", 100, 100)
    noted.notes.take("index", 0, 0)
    assert noted.steps == [("bulk", 0, 100), ("bulk", 100, 100), ("index", 0, 0)]


def test_what_stands_still_is_not_noted_again() -> None:
    noted = Noted()
    for now_s in range(100):
        noted.now_s = float(now_s)
        noted.notes.take("bulk", 7, 100)
    assert noted.steps == [("bulk", 7, 100)]


def test_a_registry_that_does_not_answer_stops_no_rebuild_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    noted = Noted()
    noted.fails = True
    with caplog.at_level(logging.WARNING):
        for phase in ("create", "bulk", "index"):
            noted.notes.take(phase, 0, 0)
    (line,) = caplog.messages
    assert "cannot note the progress of the rebuild of listings" in line


def test_rebuilds_are_measured_by_view_and_phase_until_they_end() -> None:
    running = [RebuildProgress("listings", "bulk", 7, 100, 50.5)]
    metrics = RebuildMetrics(lambda: list(running))
    metrics.look()
    found = {metric.name: [(s.labels, s.value) for s in metric.samples] for metric in metrics.collect()}
    place = {"view": "listings", "phase": "bulk"}
    assert found == {
        "headwater_rebuild_done": [(place, 7)],
        "headwater_rebuild_total": [(place, 100)],
        "headwater_rebuild_changed_timestamp_seconds": [(place, 50.5)],
    }
    running.clear()
    metrics.look()
    assert all(not metric.samples for metric in metrics.collect())
