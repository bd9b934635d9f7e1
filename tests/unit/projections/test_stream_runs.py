"""A rebuild waits for the query of a stream view for as long as that takes, but not if nothing happens."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headwater.eventlog.settings import LogSettings
from headwater.projections.errors import StreamQueryFailed
from headwater.projections.spark.stream_queries import running_query
from headwater.projections.spark.stream_queries.checkpoint import Checkpoint
from headwater.projections.spark.stream_queries.running_query import STUCK_S, RunningQuery, _computed, _runs_tasks
from headwater.projections.stores.store import Target
from headwater.projections.view import View
from tests.support.checkpoints import begin_batch
from tests.support.gate_events import entered_view
from tests.support.observed import gate_view


@dataclass
class Query:
    """What is looked at of a query, with a clock. tasks_until: seconds for which Spark runs tasks."""

    is_in_batch: bool = True
    tasks_until: float = 0.0
    now: float = 0.0
    idle: threading.Event = field(default_factory=threading.Event)

    def failure(self) -> str | None:
        return None

    def when_idle(self) -> threading.Event:
        return self.idle

    def runs_tasks(self) -> bool:
        return self.now < self.tasks_until

    def monotonic(self) -> float:
        return self.now


def waited(query: Query, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, view: View, look_s: float) -> float:
    """The seconds until a rebuild has given up waiting."""
    monkeypatch.setattr(running_query, "time", query)
    watched: Any = query
    try:
        for _ in _computed(watched, Target(view, 1), checkpoint, 1, query.runs_tasks):
            query.now += look_s
    except StreamQueryFailed as error:
        assert str(error).startswith(f'the query of the stream view "{view.name}@1.g1" failed: ')
        raise
    return query.now


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    found = Checkpoint.of(LogSettings(state=tmp_path), "gates@1.g1")
    found.create()
    return found


def test_a_batch_may_take_hours_and_has_tasks_or_ends(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query(tasks_until=36_000.0)
    with pytest.raises(StreamQueryFailed, match="Spark has run no task for 5 minutes: see its log; if SPARK_MASTER"):
        waited(query, checkpoint, monkeypatch, gate_view(), 1.0)
    assert query.now == pytest.approx(36_000 + STUCK_S, abs=20)


def test_without_heartbeats_the_topic_is_named(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query(is_in_batch=False)
    with pytest.raises(StreamQueryFailed, match="not even a heartbeat of this process: let it write to the topic obs"):
        waited(query, checkpoint, monkeypatch, gate_view(), 1.0)


def test_a_view_over_events_waits_for_no_heartbeat(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query(is_in_batch=False)
    with pytest.raises(StreamQueryFailed, match="Spark has run no task for 5 minutes"):
        waited(query, checkpoint, monkeypatch, entered_view(), 1.0)
    query = Query()
    query.idle.set()
    assert waited(query, checkpoint, monkeypatch, entered_view(), 1.0) == 0.0


def test_what_comes_between_two_looks_is_no_silence(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query()
    with pytest.raises(StreamQueryFailed):
        waited(query, checkpoint, monkeypatch, gate_view(), 600.0)
    assert query.now > STUCK_S * 600, "another view took the time"


def test_a_batch_that_begins_is_a_sign(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query()
    beginning = query.failure

    def failure() -> str | None:
        if query.now == 200.0:
            begin_batch(checkpoint, 0, {})
        return beginning()

    monkeypatch.setattr(query, "failure", failure)
    with pytest.raises(StreamQueryFailed):
        waited(query, checkpoint, monkeypatch, gate_view(), 1.0)
    assert query.now > 200 + STUCK_S


def test_a_query_is_stopped_if_the_wait_for_the_end_of_its_batch_is_interrupted(tmp_path: Path) -> None:
    class InBatch:
        isActive, lastProgress, stopped = True, None, False  # noqa: N815

        @property
        def status(self) -> Any:
            raise KeyboardInterrupt

        def stop(self) -> None:
            self.stopped = True

    query: Any = InBatch()
    watched = RunningQuery(query, LogSettings(state=tmp_path), "gates@1.g1")
    with pytest.raises(KeyboardInterrupt):
        watched.stop(60.0)
    assert query.stopped, "Spark would run it until this process has ended, without what sends its progress"


def test_tasks_that_wait_for_an_executor_do_not_run() -> None:
    @dataclass
    class Tracker:
        active: int

        def statusTracker(self) -> Tracker:  # noqa: N802
            return self

        def getActiveStageIds(self) -> list[int]:  # noqa: N802
            return [1, 2]

        def getStageInfo(self, stage: int) -> Any:  # noqa: N802
            return None if stage == 1 else type("Stage", (), {"numActiveTasks": self.active})

    for active in (0, 3):
        session: Any = type("Session", (), {"sparkContext": Tracker(active)})
        assert _runs_tasks(session) is bool(active)
