"""Events as a source of a stream view, on Spark: their versions, what is no event of the view, and which are late."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headwater import INTEGER, TEXT, TIME, events, observations
from headwater.projections.spark.stream_queries.frames import AMENDING, DROPPED, TAKEN, UNREADABLE
from tests.support.gate_events import Entered, Locked, document, entered_view, event_of, owner_s_beat, raw_event
from tests.support.observed import LATE_AFTER, START, Passed, Report, beat, cut, record_of, reports, rows_in_python
from tests.support.stream_queries import Ran, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = pytest.mark.jvm
DAY = timedelta(days=1)
AMENDED: dict[str, Any] = {"late": "amend", "keep_state": "1d"}


def numbers(ran: Ran) -> dict[str, tuple[int, int]]:
    return {key: (row["number"], row["weight"]) for key, row in ran.rows.items()}


def closed_later(found: list[Report]) -> list[Report]:
    """The reports, then one that is hours later."""
    after = found[-1].recorded + timedelta(hours=3)
    return [*found, Report(found[-1].number + 1, "z", 1, after, after)]


@pytest.mark.parametrize(
    "changes", [pytest.param({}, marks=pytest.mark.complete, id="drop"), pytest.param(AMENDED, id="amend")]
)
def test_rows_do_not_depend_on_batches_or_versions_and_late_is_what_the_rule_says(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    found, chance = closed_later(reports(11, 120)), random.Random(3)
    late = sum(report.lateness > LATE_AFTER for report in found)
    assert 15 < late < 80, "the events must include late ones"
    records = [event_of(each) for each in found]
    for partitions, parts in ((1, [records]), (2, cut(records, chance, 5))):
        ran = run(entered_view(**changes), parts, tmp_path / str(partitions), partitions)
        assert numbers(ran) == rows_in_python(found, DAY if changes else LATE_AFTER)
        assert ran.counts == Counter({TAKEN: len(found) - late, (AMENDING if changes else DROPPED): late})
        assert ran.dropped_by_watermark == 0, "Spark dropped what the rule admits"


def test_records_that_are_no_event_of_the_view(tmp_path: Path) -> None:
    good = Report(1, "a", 2, START, START)
    text = document(good, 2).decode()
    assert '"dataversion":2' in text
    others = {
        "gate/a/3": None,
        "gate/a/4": b"nothing",
        "gate/a/5": text.replace('"gate":"a",', "").encode(),
        "gate/a/6": text.replace('"dataversion":2', '"dataversion":3').encode(),
        "gate/a/7": text.replace('"dataversion":2', '"dataversion":1').encode(),
        "gate/a/8": document(good, 8, Locked, gate="a", verdict="storm"),
        "gate/a/9": text.replace('"sequence":2,', "").encode(),
        "gate/a/10": b"\xff\xfe",
        "gate/a/11": text.replace('"recordedtime"', '"unknown"').encode(),
        "gate/a/12": text.replace('"weight":2', '"weight":"heavy"').encode(),
        "heartbeat/9": text.encode(),
    }
    records = [event_of(good), owner_s_beat(START), *(raw_event(key, other, START) for key, other in others.items())]
    ran = run(entered_view(), [records], tmp_path)
    assert ran.counts[UNREADABLE] == 5
    assert ran.counts[TAKEN] == 5, "an event without a time of recording is not late, and a weight may be null"
    assert numbers(ran) == {"a/2026-03-01T12:00:00.000Z": (5, 8)}, "a rename leaves what already has the new name"


def test_what_follows_an_erased_event_is_read(tmp_path: Path) -> None:
    """An event that a replay reads before compaction removes it counts, as it did live."""
    found = [Report(number, "a", 1, START, START) for number in range(3)]
    erased = raw_event("gate/a/1", None, START + timedelta(minutes=5))
    records = [event_of(found[0]), erased, *(event_of(each) for each in found[1:])]
    for name, parts in (("live", [[record] for record in records]), ("replay", [records])):
        ran = run(entered_view(), parts, tmp_path / name)
        assert numbers(ran) == {"a/2026-03-01T12:00:00.000Z": (3, 3)}
        assert ran.dropped_by_watermark == 0


@pytest.mark.complete
def test_heartbeats_of_owners_close_the_windows_of_final_views(tmp_path: Path) -> None:
    found = [Report(number, "a", 1, START, START) for number in range(2)]
    end = START + timedelta(minutes=1) + LATE_AFTER + timedelta(minutes=2)
    beats = [[owner_s_beat(end + timedelta(seconds=second), 1)] for second in (-1, 0, 1)]
    ran = run(entered_view(final=True), [[event_of(each) for each in found], *beats], tmp_path)
    assert ran.batch_of == {"a/2026-03-01T12:00:00.000Z": 3}
    assert numbers(ran) == rows_in_python(found, LATE_AFTER)


def test_a_rebuild_without_heartbeats_ends_when_its_final_rows_are_sent(tmp_path: Path) -> None:
    found = closed_later(reports(2, 20))
    ran = run(entered_view(final=True), [[event_of(each) for each in found]], tmp_path, until_idle=True)
    complete = rows_in_python(found[:-1], LATE_AFTER)
    assert numbers(ran) == complete
    assert set(ran.batch_of.values()) == {1}, "in a batch without records"


@pytest.mark.complete
def test_the_columns_of_several_classes(tmp_path: Path) -> None:
    columns = {"id": TEXT, "type": TEXT, "stream": TEXT, "sequence": INTEGER, "gate": TEXT, "weight": INTEGER}
    view = entered_view(
        key="id",
        columns=columns | {"verdict": TEXT, "time": TIME, "recorded": TIME},
        sources={"passed": events(Entered, Locked, late_after="10m")},
        query=as_they_are,
    )
    report = Report(4, "a", 2, START, START + timedelta(seconds=3))
    locked = raw_event("gate/a/6", document(report, 6, Locked, gate="a", verdict="storm"), START)
    ran = run(view, [[event_of(report), locked]], tmp_path)
    times = {"time": "2026-03-01T12:00:00.000Z", "recorded": "2026-03-01T12:00:03.000Z"}
    common = {"stream": "gate/a", "gate": "a", **times}
    assert ran.rows == {
        "gate/a/5": {"type": "gate.entered", "sequence": 5, "weight": 2, **common},
        "gate/a/6": {"type": "gate.locked", "sequence": 6, "verdict": "storm", **common},
    }


def as_they_are(passed: DataFrame) -> DataFrame:
    return passed.withColumnRenamed("recordedtime", "recorded")


def both_by_minute(entered: DataFrame, passed: DataFrame) -> DataFrame:
    from tests.support.observed import by_minute

    return by_minute(entered.select("gate", "weight", "time").union(passed.select("gate", "weight", "time")))


@pytest.mark.complete
def test_events_and_observations_together(tmp_path: Path) -> None:
    """Spark's watermark is that of the slower source, so that one may stop while the other goes on."""
    found, chance = closed_later(reports(5, 80)), random.Random(1)
    records = [event_of(each) if each.number % 3 else record_of(each) for each in found]
    quiet = [owner_s_beat(found[-1].recorded), beat(found[-1].recorded)]
    sources = {
        "entered": events(Entered, late_after="10m"),
        "passed": observations(Passed, late_after="10m"),
    }
    view = entered_view(sources=sources, query=both_by_minute)
    for name, parts in (("one", [[*records, *quiet]]), ("several", [*cut(records, chance, 4), quiet])):
        ran = run(view, parts, tmp_path / name, 2)
        assert numbers(ran) == rows_in_python(found, LATE_AFTER)
        assert ran.dropped_by_watermark == 0
