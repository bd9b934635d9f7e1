"""What `replay status` says of a stream view's query, and what its process writes of its batches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from headwater.eventlog.settings import LogSettings
from headwater.projections.generations.registry.state_files import StreamReport, note_start, read_report, write_report
from headwater.projections.generations.upkeep.lag import Lag
from headwater.projections.running_parts import STREAMS
from headwater.projections.spark.stream_queries.running_query import HELD_S, RunningQuery

TAG = "gates@1.g2"


class Query:
    """Spark's, with these batches. reads: how often all of them were read."""

    isActive = True  # noqa: N815 - Spark's name

    def __init__(self, *batches: dict[str, Any]) -> None:
        self.batches, self.reads = list(batches), 0
        self.looks = self.stopped_at = 0

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        return self.batches[-1] if self.batches else None

    @property
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802 - Spark's name
        self.reads += 1
        return self.batches

    @property
    def status(self) -> dict[str, bool]:
        """Every third look is between two batches."""
        self.looks += 1
        return {"isTriggerActive": self.looks % 3 > 0}

    def exception(self) -> None: ...

    def stop(self) -> None:
        self.stopped_at = self.looks


def progress(batch: int, **changes: Any) -> dict[str, Any]:
    counts = {"taken": 5, "amending": 2, "dropped": 1, "unreadable": 0}
    operator = {"numRowsDroppedByWatermark": 0, "numRowsTotal": 7 + batch, "memoryUsedBytes": 1_500_000}
    return {
        "batchId": batch,
        "numInputRows": 10,
        "durationMs": {"triggerExecution": 1234},
        "observedMetrics": {"passed": counts},
        "stateOperators": [operator],
        "eventTime": {"watermark": "2026-03-01T11:58:00.000Z"},
    } | changes


@pytest.fixture
def settings(tmp_path: Path) -> LogSettings:
    return LogSettings(state=tmp_path)


def test_batches_are_counted_once_and_go_on_after_a_restart(
    settings: LogSettings, caplog: pytest.LogCaptureFixture
) -> None:
    query: Any = Query()
    watched = RunningQuery(query, settings, TAG)

    def records() -> int:
        watched.look()
        report = read_report(settings, TAG)
        assert report is not None
        return report.records

    assert (records(), read_report(settings, TAG)) == (0, StreamReport(starting=True))
    query.batches = [progress(0)]
    assert (records(), records(), query.reads) == (10, 10, 0)
    query.batches += [progress(1), progress(2)]
    assert (records(), records(), query.reads) == (30, 30, 1)
    again: Any = Query(progress(3, observedMetrics={}, stateOperators=[], eventTime={}))
    RunningQuery(again, settings, TAG).look()
    report = read_report(settings, TAG)
    assert report == StreamReport(3, 1.234, 40, amending=6, dropped=3)
    write_report(settings, TAG, StreamReport(1, 1.234, 20, 4, 2, 3, 0, 8, 1_500_000, "2026-03-01T11:58:00.000Z"))
    shown = read_report(settings, TAG)
    assert shown is not None
    assert shown.text() == (
        "batch 1 took 1.2 s; 20 records, 4 late and taken in, 2 late and dropped, 3 unreadable; "
        "state of 8 rows, 1.5 MB; watermark 2026-03-01T11:58:00.000Z"
    )
    assert "lost" not in caplog.text.lower()


def test_a_query_without_batches_has_started_when_spark_has_begun(settings: LogSettings) -> None:
    query: Any = Query()
    watched = RunningQuery(query, settings, TAG, has_batches=False)
    query.looks = 2  # the next look is between two batches
    watched.look()
    assert read_report(settings, TAG) == StreamReport(starting=True)
    watched.look()
    assert read_report(settings, TAG) == StreamReport()


@pytest.mark.parametrize(("pause_s", "has_batches"), [(0.0, True), (300.0, True), (0.0, False)])
def test_why_a_query_stopped_is_shown_until_another_attempt_has_held(
    settings: LogSettings, pause_s: float, has_batches: bool
) -> None:
    now, query = 0.0, cast("Any", Query())

    def attempt() -> RunningQuery:
        return RunningQuery(query, settings, TAG, pause_s=pause_s, has_batches=has_batches, now=lambda: now)

    def shown(watched: RunningQuery) -> str:
        watched.look()
        report = read_report(settings, TAG)
        assert report is not None
        assert watched.has_held is not bool(report.failure)
        return report.failure

    failed = attempt()
    query.isActive = False
    assert failed.failure() == "it has stopped"
    query.isActive = True
    for batch in range(3):  # each attempt ends a batch, and fails in the next one
        again = attempt()
        query.batches = [progress(batch)]
        now += pause_s
        assert shown(again) == "it has stopped"
        query.isActive = False
        assert again.failure() == "it has stopped"
        query.isActive = True
    last = attempt()
    query.batches = [progress(3)]
    now += HELD_S + pause_s - 1
    assert shown(last) == "it has stopped"
    now += 1
    assert shown(last) == "", "without another batch as well"


def test_a_query_in_a_long_first_batch_has_not_held(settings: LogSettings) -> None:
    now, query = 0.0, cast("Any", Query())
    watched = RunningQuery(query, settings, TAG, now=lambda: now)
    now += 10 * HELD_S
    watched.look()
    assert not watched.has_held
    query.batches = [progress(0)]
    watched.look()
    assert watched.has_held


def test_numbers_that_the_query_of_a_user_observes_are_left_out(settings: LogSettings) -> None:
    counts = progress(0)["observedMetrics"] | {"mine": {"rows": 7}}
    query: Any = Query(progress(0, observedMetrics=counts))
    RunningQuery(query, settings, TAG).look()
    report = read_report(settings, TAG)
    assert report is not None
    assert (report.amending, report.dropped) == (2, 1)


def test_a_view_whose_query_starts_is_not_stalled(settings: LogSettings) -> None:
    def look() -> Lag:
        report = read_report(settings, TAG)
        return Lag("gates", "postgres", 1, 2, "behind", {"observations/0": 3}, 7, 0, 1.0, stream=report)

    note_start(settings, TAG)
    before = look()
    assert look().since(before, {"observations/0": 9}).standing == "behind"
    query: Any = Query(progress(0))
    watched = RunningQuery(query, settings, TAG)
    watched.look()
    assert look().since(before, {"observations/0": 9}).standing == "stalled"
    again = RunningQuery(query, settings, TAG)
    assert (again.failure(), look().since(before, {"observations/0": 9}).standing) == (None, "behind")
    query.isActive = False
    assert (again.failure(), look().since(before, {"observations/0": 9}).standing) == ("it has stopped", "stalled")
    assert look().since(before, {"observations/0": 9}).problem == "its query failed: it has stopped"
    slow = replace(look(), lag_patches=3).since(before, {"observations/0": 9})
    assert slow.problem == "the loader of postgres makes no progress: see its log"
    RunningQuery(query, settings, TAG)
    assert look().since(before, {"observations/0": 9}).standing == "stalled", "its next attempt may fail as well"
    note_start(settings, TAG)
    report = read_report(settings, TAG)
    assert report is not None
    assert (report.starting, report.records) == (True, 10), "what was counted stays"


def test_a_view_without_anything_to_read_waits_for_its_query() -> None:
    """In `events` there are heartbeats, which nobody reads before."""
    quiet = Lag("gates", "postgres", 1, 2, "caught up", {"0": 3}, 0, 0, 0.0, query=STREAMS)
    assert quiet.since(quiet, {"0": 9}).standing == "caught up"
    has_come = replace(quiet, standing="behind", lag_events=1)
    assert has_come.since(quiet, {"0": 9}).standing == "stalled"
    assert replace(quiet, stream=StreamReport(batch=3)).since(quiet, {"0": 9}).standing == "stalled"


@pytest.mark.parametrize(("within_s", "at"), [(60.0, 3), (0.0, 0)])
def test_a_query_is_stopped_between_two_batches_if_there_is_time(
    settings: LogSettings, within_s: float, at: int
) -> None:
    query: Any = Query()
    RunningQuery(query, settings, TAG).stop(within_s)
    assert query.stopped_at == at


def test_rows_that_spark_drops_are_an_error(settings: LogSettings, caplog: pytest.LogCaptureFixture) -> None:
    operator = {"numRowsDroppedByWatermark": 3, "numRowsTotal": 1, "memoryUsedBytes": 1}
    query: Any = Query(progress(0, stateOperators=[operator, operator]))
    RunningQuery(query, settings, TAG).look()
    assert "Spark dropped 6 rows that the rule of lateness admits" in caplog.text
    report = read_report(settings, TAG)
    assert report is not None
    assert report.text().endswith("; 6 rows LOST behind the watermark")


def test_a_report_that_is_broken_or_gone_is_none(settings: LogSettings, caplog: pytest.LogCaptureFixture) -> None:
    write_report(settings, TAG, StreamReport())
    (file,) = settings.state.rglob("*.json")
    for text in ("", "[]", "{}", '{"batch": 1}'):
        file.write_text(text)
        assert read_report(settings, TAG) is None
    assert caplog.text.count("cannot read the report of gates@1.g2") == 4
    write_report(settings, TAG, None)
    write_report(settings, TAG, None)
    assert not file.exists()
