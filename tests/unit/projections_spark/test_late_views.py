"""Late observations that are kept, on Spark: which they are, and that batches do not matter."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headwater import events, observations
from headwater.projections.spark.stream_queries.frames import AMENDING, DROPPED, TAKEN, UNREADABLE
from tests.support.gate_events import Entered, Locked, document, event_of, owner_s_beat, raw_event
from tests.support.observed import (
    LATE_AFTER,
    START,
    Closed,
    Passed,
    Report,
    Weighed,
    beat,
    cut,
    gate_view,
    kept,
    raw,
    record_of,
    reports,
)
from tests.support.seeds import batches
from tests.support.stream_queries import run

pytestmark = pytest.mark.jvm
MILLISECOND = timedelta(milliseconds=1)
WEIGHED = '{"weight":"1 kg","data":"{}","late_s":"é\\n"}'


def of_three(passed: Any, others: Any, weighed: Any) -> Any:
    """Never runs."""
    return passed, others, weighed


def row(report: Report) -> dict[str, Any]:
    return {
        "source": f"s{report.number % 3}",
        "type": "passed",
        "time": f"{report.time:%Y-%m-%dT%H:%M:%S}.{report.time.microsecond // 1000:03}Z",
        "recordedtime": f"{report.recorded:%Y-%m-%dT%H:%M:%S}.{report.recorded.microsecond // 1000:03}Z",
        "late_s": report.lateness / timedelta(seconds=1),
        "data": f'{{"gate":"{report.gate}","weight":{report.weight}}}',
    }


def key(report: Report) -> str:
    return f"passed/s{report.number % 3}/{report.number}"


def test_rows_are_the_late_observations_whatever_the_batches(tmp_path: Path) -> None:
    found, chance = reports(7, 150), random.Random(3)
    late = {key(report): row(report) for report in found if report.lateness > LATE_AFTER}
    assert 20 < len(late) < 100
    assert {report.lateness for report in found} >= {LATE_AFTER, LATE_AFTER + MILLISECOND}
    records = [record_of(each) for each in found]
    for name, parts in (("one", [records]), ("many", cut(records, chance, batches(9)))):
        ran = run(kept(), parts, tmp_path / name)
        assert ran.rows == late
        assert ran.counts == Counter({AMENDING: len(late)})
    view = run(gate_view(late="keep"), [records], tmp_path / "view")
    assert view.counts == Counter({TAKEN: len(found) - len(late), DROPPED: len(late)})
    assert sum(each["number"] for each in view.rows.values()) == len(found) - len(late)


@pytest.mark.complete
def test_several_sources_and_records_that_are_not_late(tmp_path: Path) -> None:
    at, hours = START, timedelta(hours=3)
    sources = {
        "passed": observations(Passed, late_after="2h"),
        "others": observations(Closed, Passed, late_after="1h"),
        "weighed": observations(Weighed, late_after="1h"),
    }
    late = [Report(number, "a", 1, at, at + timedelta(hours=number)) for number in (1, 2, 3)]
    text = bytes(record_of(late[2]).value).decode()
    closed = text.replace('"type":"passed"', '"type":"closed"').replace("passed/s0/3", "closed/s0/3")
    closed = closed.replace("passed/s0", "closed/s0")
    weighed = text.replace('"type":"passed"', '"type":"weighed"').replace("passed/s0", "weighed/s0")
    records = [
        *(record_of(each) for each in late),
        beat(at + hours),
        raw("passed/s1/5", text.replace('"dataversion":1', '"dataversion":2').encode(), at),
        raw("passed/s1/6", b"nothing", at),
        raw("passed/s1/7", text.replace('"recordedtime"', '"unknown"').encode(), at),
        raw("passed/s1/8", None, at),
        raw("closed/s0/3", closed.encode(), at),
        raw("weighed/s0/3", weighed.replace('{"gate":"a","weight":1}', WEIGHED).encode(), at),
    ]
    ran = run(kept(sources=sources, query=of_three), [records], tmp_path)
    assert {each: found["late_s"] for each, found in ran.rows.items()} == {
        "passed/s2/2": 7200.0,
        "passed/s0/3": 10800.0,
        "closed/s0/3": 10800.0,
        "weighed/s0/3": 10800.0,
    }
    assert ran.rows["weighed/s0/3"]["data"] == WEIGHED
    assert ran.counts[AMENDING] == 4
    assert ran.counts[UNREADABLE] > 0


@pytest.mark.complete
def test_late_events_are_rows_too(tmp_path: Path) -> None:
    found = reports(11, 120)
    late = [report for report in found if report.lateness > LATE_AFTER]
    records = [event_of(each) for each in found]
    at, after = START, timedelta(hours=2)
    locked = Report(0, "a", 1, at, at + after)
    others = [
        raw_event("gate/a/900", document(locked, 900, Locked, gate="a", verdict="é/storm"), at),
        raw_event("gate/a/901", document(locked, 901, Locked, gate="a"), at),
        raw_event("gate/a/902", None, at),
        owner_s_beat(at + after),
        record_of(Report(500, "b", 2, at, at + after)),
    ]
    sources = {"events": events(Entered, Locked, late_after="10m"), "passed": observations(Passed, late_after="1h")}
    expected = {f"gate/{report.gate}/{report.number + 1}": event_row(report) for report in late}
    expected["gate/a/900"] = event_row(locked) | {"type": "gate.locked", "data": '{"gate":"a","verdict":"é/storm"}'}
    expected["passed/s2/500"] = row(Report(500, "b", 2, at, at + after))
    view = kept(sources=sources, query=of_two)
    for name, parts in (
        ("one", [[*records, *others]]),
        ("many", cut([*records, *others], random.Random(3), batches(9))),
    ):
        ran = run(view, parts, tmp_path / name)
        assert ran.rows == expected
        assert (ran.counts[AMENDING], ran.counts[UNREADABLE], ran.dropped_by_watermark) == (len(late) + 2, 1, 0)


def event_row(report: Report) -> dict[str, Any]:
    """Every other one has the first version, as it was recorded."""
    name = "weight" if report.number % 2 else "load"
    data = f'{{"gate":"{report.gate}","{name}":{report.weight}}}'
    return row(report) | {"source": f"gate/{report.gate}", "type": "gate.entered", "data": data}


def of_two(events: Any, passed: Any) -> Any:
    """Never runs."""
    return events, passed


@pytest.mark.complete
def test_the_last_report_of_several_with_one_id_is_the_row(tmp_path: Path) -> None:
    again = [Report(3, "a", weight, START, START + timedelta(hours=weight)) for weight in (3, 1, 2)]
    for name, parts in (("one", [again]), ("many", [[each] for each in again])):
        ran = run(kept(), [[record_of(each) for each in part] for part in parts], tmp_path / name)
        assert ran.rows == {"passed/s0/3": row(again[-1])}
