"""The process of all stream views, with queries that only pretend: which run, which wait, and for whom."""

from __future__ import annotations

import errno
import json
import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.settings import LogSettings
from headwater.projections.errors import LiveQueryFailed, StoreUnavailable, StreamQueryFailed, ViewDeclarationError
from headwater.projections.generations.registry.state_files import note_start, read_report
from headwater.projections.spark.stream_queries import process
from headwater.projections.spark.stream_queries.checkpoint import Checkpoint, sweep, why_lost
from headwater.projections.spark.stream_queries.process import (
    LOGGED_FAILURES,
    REFUSALS,
    RESTARTS,
    Streams,
    run_streams,
    starter,
)
from headwater.projections.spark.stream_queries.query import StreamQuery
from headwater.projections.spark.stream_queries.realtime import RealtimeQuery
from headwater.projections.stores.memory import Memory, MemoryStore
from headwater.projections.stores.store import Target
from tests.support.checkpoints import begin_batch, disk
from tests.support.observed import gate_view

GATES, DOORS = gate_view(), gate_view(name="doors")
AT_ONCE = gate_view(name="at_once", realtime=True)


class Query:
    def __init__(self, tag: str) -> None:
        self.tag, self.error, self.has_held, self.stopped = tag, "", False, False
        self.raised: Exception | None = None
        self.refuses_state = False

    def look(self) -> None:
        if self.raised is not None:
            raise self.raised

    def failure(self) -> str | None:
        return self.error or None

    def stop(self) -> None:
        self.stopped = True
        if self.error == "no JVM":
            raise ConnectionRefusedError("no JVM")


class Locks:
    """Who holds a query elsewhere, by tag. away: whether PostgreSQL is."""

    def __init__(self) -> None:
        self.others: dict[str, str] = {}
        self.held: list[str] = []
        self.away = False

    def hold(self, tag: str) -> str | None:
        self._answer()
        if tag not in self.others:
            self.held.append(tag)
        return self.others.get(tag)

    def release(self, tag: str) -> None:
        self.held.remove(tag)

    def taken(self) -> Mapping[str, str]:
        self._answer()
        return {tag: self.others[tag] for tag in self.held if tag in self.others}

    def _answer(self) -> None:
        if self.away:
            raise StoreUnavailable("PostgreSQL", "gone")


class Scene:
    """A process over the generations in `live`. refused: why a view's query cannot start."""

    def __init__(self, state: Path) -> None:
        self.settings = LogSettings(state=state)
        self.live: list[Target] = []
        self.error: Exception | None = None
        self.refused: dict[str, Exception] = {}
        self.started: list[Query] = []
        self.now = 0.0
        self.store = MemoryStore(Memory())
        start: Any = self._start
        self.elsewhere: str | None = None
        self.locks = Locks()
        locks: Any = self.locks
        self.streams = Streams(
            self.settings, self._live, start, self._why_lost, lambda: self.elsewhere, locks, lambda: self.now
        )

    def serve(self, *targets: Target) -> None:
        self.live = list(targets)
        for target in targets:
            if not self.checkpoint(target).exists:
                self.checkpoint(target).create()
        self.streams.step()

    def checkpoint(self, target: Target) -> Checkpoint:
        return Checkpoint.of(self.settings, target.tag)

    def _why_lost(self, target: Target) -> str | None:
        return why_lost(target, [self.store.ledgers(target)], self.settings, MemoryLog())

    def _live(self) -> list[Target]:
        if self.error is not None:
            raise self.error
        return self.live

    def _start(self, target: Target, checkpoint: Checkpoint) -> Query:
        if target.view.name in self.refused:
            raise self.refused[target.view.name]
        self.started.append(Query(target.tag))
        return self.started[-1]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_query_for_each_live_generation_and_none_for_others(scene: Scene) -> None:
    scene.serve(Target(GATES, 1), Target(DOORS, 4))
    assert list(scene.streams.running) == ["gates@1.g1", "doors@1.g4"]
    first = scene.started[0]
    scene.serve(Target(GATES, 2), Target(DOORS, 4))
    assert (first.stopped, list(scene.streams.running)) == (True, ["doors@1.g4", "gates@1.g2"])
    scene.error = StoreUnavailable("PostgreSQL", "gone")
    scene.streams.step()
    assert list(scene.streams.running) == ["doors@1.g4", "gates@1.g2"], "what is known goes on without the registry"
    scene.streams.stop()
    assert [each.stopped for each in scene.started] == [True, True, True]
    with scene.checkpoint(Target(DOORS, 4)).held() as free:
        assert free


def test_generations_of_a_real_time_view_share_a_query_that_needs_no_checkpoint(scene: Scene) -> None:
    scene.live = [Target(AT_ONCE, 1), Target(GATES, 1)]
    scene.streams.step()
    assert list(scene.streams.running) == ["at_once@1"], "the other one has lost its state"
    (query,) = scene.started
    scene.live = [Target(AT_ONCE, 2)]
    scene.streams.step()
    assert (query.stopped, len(scene.started)) == (False, 1)


def test_a_generation_that_another_process_still_runs_is_left_to_it(scene: Scene) -> None:
    target = Target(GATES, 1)
    with scene.checkpoint(target).held() as held:
        assert held
        scene.serve(target)
        assert not scene.streams.running
    scene.streams.step()
    assert list(scene.streams.running) == ["gates@1.g1"]


def test_one_that_fails_stops_no_other_and_is_started_again_later_and_later(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.serve(Target(GATES, 1), Target(DOORS, 1))
    broken, fine = scene.started
    broken.error = "no space left"
    scene.streams.step()
    assert broken.stopped
    assert list(scene.streams.running) == ["doors@1.g1"]
    scene.now += 0.5
    scene.streams.step()
    assert len(scene.started) == 2
    scene.now += 0.6
    scene.streams.step()
    assert (len(scene.started), fine.stopped) == (3, False)
    scene.streams.step()
    scene.started[2].error = "again"
    scene.streams.step()
    scene.now += 2
    scene.streams.step()
    scene.started[3].has_held = True
    scene.streams.step()
    scene.started[3].error = "later"
    scene.streams.step()
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR] == [
        "the query of gates@1.g1 failed (1 in a row), trying again in 1 s: no space left",
        "the query of gates@1.g1 failed (2 in a row), trying again in 2 s: again",
        "the query of gates@1.g1 failed (1 in a row), trying again in 1 s: later",
    ]


def test_one_that_cannot_be_started_is_tried_forever_and_said_less_and_less_often(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.live, scene.refused["at_once"] = [Target(AT_ONCE, 1)], StoreUnavailable("Elasticsearch", "no route")
    for _ in range(1_100):  # a pause of 1 s that was doubled as often is no number
        scene.streams.step()
        scene.now += RESTARTS.max_s
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == LOGGED_FAILURES + 18, "and then each hour"
    assert errors[-1].startswith(
        "the query of at_once@1 failed (1080 in a row), trying again in 60 s: Elasticsearch is unavailable: no route"
    )
    scene.refused.clear()
    scene.streams.step()
    assert list(scene.streams.running) == ["at_once@1"]


def test_why_a_query_could_not_be_started_is_in_its_report(scene: Scene) -> None:
    note_start(scene.settings, "gates@1.g1")
    scene.refused["gates"] = ViewDeclarationError("gates", "its query fails")
    scene.serve(Target(GATES, 1))
    report = read_report(scene.settings, "gates@1.g1")
    assert report is not None
    assert not report.starting, "or its view would never count as stalled"
    assert report.failure == 'view "gates": its query fails'


def test_a_generation_without_its_state_is_not_continued(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.live = [Target(GATES, 7)]
    scene.streams.step()
    assert not scene.started
    assert "its state is not on this machine: `headwater projections` computes the view again" in caplog.text
    report = read_report(scene.settings, "gates@1.g7")
    assert report is not None
    assert report.state_lost == "is not on this machine"
    scene.now += 2
    scene.serve(Target(GATES, 7))
    assert note_start(scene.settings, "gates@1.g7").state_lost == "", "a disk may have come back"


def test_a_state_that_spark_refuses_again_and_again_is_lost(scene: Scene) -> None:
    scene.serve(Target(GATES, 1))
    for number in range(1, REFUSALS + 1):
        scene.started[-1].error, scene.started[-1].refuses_state = "no state directory", True
        scene.streams.step()
        report = read_report(scene.settings, "gates@1.g1")
        assert report is not None
        assert report.state_lost == ("cannot be read by Spark (no state directory)" if number == REFUSALS else "")
        scene.now += RESTARTS.max_s
        scene.streams.step()


def test_a_state_that_another_read_side_may_have_is_not_computed_again(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.elsewhere = "other:/state"
    scene.live = [Target(GATES, 7)]
    scene.streams.step()
    assert not scene.started
    expected = "its state is not on this machine; another read side runs with other:/state: stop one of the two"
    assert expected in caplog.text
    report = read_report(scene.settings, "gates@1.g7")
    assert report is not None
    assert (report.failure, report.state_lost) == (expected, "")


def test_a_generation_whose_state_is_older_than_its_rows_is_not_continued(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    older, other = Target(GATES, 1), Target(DOORS, 1)
    for target in (older, other):
        begin_batch(scene.checkpoint(target), 90, {"0": 50})
    scene.store.create(older, {"observations/0": 60}, {0: 0})
    scene.store.create(other, {"observations/0": 50}, {0: 0})
    scene.serve(older, other)
    assert list(scene.streams.running) == ["doors@1.g1"]
    assert "its state is older than its rows: `headwater projections` computes the view again" in caplog.text
    with scene.checkpoint(older).held() as free:
        assert free


def test_checkpoints_of_generations_that_are_gone_are_deleted(scene: Scene) -> None:
    old, live, running = (Checkpoint.of(scene.settings, f"gates@1.g{number}") for number in (1, 2, 3))
    for each in (old, live, running):
        each.create()
    with running.held():
        assert sweep(scene.settings, lambda: ["gates@1.g2"]) == ["gates@1.g1", "gates@1.g3"]
    assert [each.exists for each in (old, live, running)] == [False, True, True]
    assert [each.lock.exists() for each in (old, live, running)] == [False, False, True]
    running.remove()
    assert sweep(scene.settings, lambda: ["gates@1.g2"]) == ["gates@1.g3"], "its lock is left"
    assert list(disk(live).parent.iterdir()) == [disk(live)]
    assert sweep(LogSettings("other", state=scene.settings.state), lambda: []) == []


def test_what_a_checkpoint_says(scene: Scene) -> None:
    checkpoint = Checkpoint.of(scene.settings, "gates@1.g1")
    checkpoint.create()
    assert checkpoint.committed() == -1
    assert checkpoint.location == f"file://{disk(checkpoint)}", "Spark takes an escaped character for itself"
    for name in ("commits", "offsets"):
        (disk(checkpoint) / name).mkdir()
    for batch in (0, 9, 10):
        (disk(checkpoint) / "commits" / str(batch)).touch()
    (disk(checkpoint) / "commits" / ".10.crc").touch()
    assert checkpoint.committed() == 10

    def ends(*sources: str) -> dict[str, int]:
        (disk(checkpoint) / "offsets" / "11").write_text("\n".join(sources))
        return checkpoint.ends(11, scene.settings)

    settings = json.dumps({"batchWatermarkMs": 0})
    both = json.dumps({"headwater.observations": {"0": 3, "1": 0}, "headwater.events": {"2": 5}})
    again = json.dumps({"headwater.observations": {"0": 2}})
    assert ends("v1", settings, both, "-", again) == {"observations/0": 2, "observations/1": 0, "2": 5}
    with pytest.raises(StreamQueryFailed, match='unknown format "v7"'):
        ends("v7", settings)


def test_whatever_a_query_raises_stops_no_other(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.refused["gates"] = ZeroDivisionError("a defect")
    scene.serve(Target(GATES, 1), Target(DOORS, 1))
    assert list(scene.streams.running) == ["doors@1.g1"]
    assert "ZeroDivisionError: a defect" in caplog.text
    with scene.checkpoint(Target(GATES, 1)).held() as free:
        assert free


def test_a_look_that_fails_stops_no_other(scene: Scene) -> None:
    scene.serve(Target(GATES, 1), Target(DOORS, 1))
    scene.started[0].raised = KeyError("numbers that nobody expects")
    scene.streams.step()
    assert (scene.started[0].stopped, list(scene.streams.running)) == (True, ["doors@1.g1"])
    report = read_report(scene.settings, "gates@1.g1")
    assert report is not None
    assert report.failure == "KeyError: 'numbers that nobody expects'"


def locked_file(scene: Scene, target: Target) -> Path:
    """The lock file of a checkpoint that cannot be opened."""
    file = scene.checkpoint(target).lock
    file.parent.mkdir(parents=True, exist_ok=True)
    file.mkdir()
    return file


def test_a_lock_file_that_cannot_be_made_fails_only_its_own_view(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    target = Target(GATES, 1)
    file = locked_file(scene, target)
    scene.serve(target, Target(DOORS, 1))
    assert list(scene.streams.running) == ["doors@1.g1"]
    report = read_report(scene.settings, target.tag)
    assert report is not None
    assert report.failure.startswith("IsADirectoryError: ")
    assert str(file) in caplog.text
    file.rmdir()
    scene.now += 2
    scene.streams.step()
    assert sorted(scene.streams.running) == ["doors@1.g1", "gates@1.g1"]


def test_a_disk_that_has_no_locks_fails_only_the_views_on_it(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: Any, __: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refused)
    scene.serve(Target(GATES, 1))
    assert not scene.streams.running
    report = read_report(scene.settings, "gates@1.g1")
    assert report is not None
    assert report.failure == f"OSError: [Errno {errno.ENOLCK}] No locks available"


def test_checkpoints_that_cannot_be_deleted_stop_nothing(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    stays, goes = Target(GATES, 1), Target(DOORS, 1)
    for each in (stays, goes):
        scene.checkpoint(each).create()
    locked_file(scene, stays)
    sweep(scene.settings, lambda: [])
    assert [scene.checkpoint(each).exists for each in (stays, goes)] == [True, False]
    assert "cannot delete the checkpoint of gates@1.g1: " in caplog.text


def test_a_folder_of_checkpoints_that_cannot_be_read_stops_nothing(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    folder = disk(scene.checkpoint(Target(GATES, 1))).parent
    folder.parent.mkdir(parents=True)
    folder.touch()
    assert sweep(scene.settings, lambda: []) == []
    assert "cannot look for checkpoints that are no longer needed: " in caplog.text


def test_a_process_without_spark_ends_and_is_started_again(scene: Scene) -> None:
    scene.serve(Target(GATES, 1), Target(DOORS, 1))
    for each in scene.started:
        each.error = "no JVM"
    running: list[bool] = []
    with pytest.raises(LiveQueryFailed, match="JVM has ended"):
        run_streams(scene.streams, threading.Event(), lambda: bool(running), lambda: running.append(True), nothing)
    assert [each.stopped for each in scene.started] == [True, True]


def test_checkpoints_are_swept_while_queries_run(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "SWEEP_S", 0.0)
    monkeypatch.setattr(process, "LOOK_S", 0.0)
    scene.serve(Target(GATES, 1))
    stop, swept = threading.Event(), list[bool]()

    def note() -> None:
        swept.append(bool(scene.streams.running))
        if len(swept) == 2:
            stop.set()

    run_streams(scene.streams, stop, lambda: False, nothing, note)
    assert swept == [True, True]


@pytest.mark.parametrize(("every", "pause_s"), [("", 0.5), ("30s", 30.0)])
def test_a_view_may_have_batches_less_often(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, every: str, pause_s: float
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(StreamQuery, "start", lambda query, trigger_s: pauses.append(trigger_s))
    target = Target(gate_view(every=every), 1)
    with starter(SPARK, scene.settings, 0.5, nothing_applied) as start:
        start(target, Checkpoint.of(scene.settings, target.tag))
    assert pauses == [pause_s]


def test_all_queries_of_a_process_share_a_session_and_a_sender_also_after_a_failure(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[StreamQuery] = []
    monkeypatch.setattr(StreamQuery, "start", lambda query, trigger_s: started.append(query))
    spark = Spark()
    with starter(cast("Any", spark), scene.settings, 0.5, nothing_applied) as start:
        for target in (Target(GATES, 1), Target(DOORS, 1), Target(GATES, 1)):
            start(target, scene.checkpoint(target))
    assert spark.sessions == 1
    assert len({id(each.progress) for each in started}) == 1


class Spark:
    """A session that counts those that are made from it."""

    def __init__(self) -> None:
        self.sessions, self.conf = 0, SimpleNamespace(set=lambda _name, _value: None)

    def newSession(self) -> Spark:  # noqa: N802 - Spark's name
        self.sessions += 1
        return self


SPARK: Any = Spark()


def nothing() -> None:
    """Nothing is to be done."""


def nothing_applied(_: Target) -> dict[str, int]:
    raise AssertionError("a query with a checkpoint knows where it was")


def test_a_real_time_query_begins_where_all_stores_are(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[Mapping[str, int]] = []
    monkeypatch.setattr(RealtimeQuery, "start", lambda query, starting_offsets: starts.append(starting_offsets))
    target = Target(AT_ONCE, 3)
    with starter(SPARK, scene.settings, 0.5, lambda of: {"observations/0": of.generation}) as start:
        start(target, scene.checkpoint(target))
    assert starts == [{"observations/0": 3}]


def test_what_an_older_spark_has_made_is_continued_or_computed_again(scene: Scene) -> None:
    target = Target(GATES, 1)
    checkpoint = scene.checkpoint(target)
    checkpoint.create()
    note = disk(checkpoint) / "headwater.json"
    mine = checkpoint.spark()
    assert mine is not None
    note.write_text(json.dumps(json.loads(note.read_text()) | {"spark": "4.0.0"}))
    for failures in range(1, REFUSALS + 1):
        scene.serve(target)
        scene.started[-1].error = "something that only an older Spark writes"
        scene.streams.step()
        report = read_report(scene.settings, target.tag)
        assert report is not None
        assert bool(report.state_lost) == (failures == REFUSALS)
        assert checkpoint.spark() == "4.0.0"
        scene.now += 60
    scene.serve(target)
    scene.started[-1].has_held = True
    scene.streams.step()
    assert checkpoint.spark() == mine, "from here on only this Spark continues it"
    for _ in range(REFUSALS):
        scene.started[-1].error = "anything"
        scene.streams.step()
        report = read_report(scene.settings, target.tag)
        assert report is not None
        assert not report.state_lost
        scene.now += 60
        scene.streams.step()


def test_a_query_that_another_machine_runs_waits_and_names_it(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    tag, holder = "gates@1.g1", "the read side, process 7 on other"
    scene.locks.others[tag] = holder
    scene.serve(Target(GATES, 1))
    assert (scene.started, caplog.messages) == ([], []), "a rebuild may just hand it over"
    scene.now += 5
    scene.streams.step()
    assert f"another process runs it ({holder}): let one read side run at a time" in caplog.text
    assert not scene.started
    scene.locks.others.clear()
    scene.now += 60
    scene.streams.step()
    assert list(scene.streams.running) == [tag]
    scene.streams.stop()
    assert scene.locks.held == []


def test_a_query_goes_on_without_postgresql_and_ends_if_another_machine_has_it_then(scene: Scene) -> None:
    tag = "gates@1.g1"
    scene.serve(Target(GATES, 1))
    scene.locks.away = True
    scene.streams.step()
    assert list(scene.streams.running) == [tag]
    scene.locks.away = False
    scene.locks.others[tag] = "the read side, process 7 on other"
    scene.streams.step()
    assert (scene.started[0].stopped, scene.streams.running) == (True, {})


def test_a_query_does_not_begin_without_postgresql(scene: Scene) -> None:
    scene.locks.away = True
    scene.serve(Target(GATES, 1))
    assert not scene.started
    with scene.checkpoint(Target(GATES, 1)).held() as is_free:
        assert is_free
