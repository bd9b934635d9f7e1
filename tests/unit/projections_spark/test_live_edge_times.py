"""Times at the edges of the calendar: the live query's SQL reads them as Python does."""

from __future__ import annotations

import json
from datetime import datetime

import orjson
import pytest
from pyspark.sql import Row

from headwater import Observation, events, observations
from headwater.projections.spark.stream_queries.frames import TAKEN, UNREADABLE, judged
from headwater.projections.stream.sources import StreamSource
from headwater.projections.table.event_data import problem
from tests.support.edge_times import INSIDE, OUTSIDE, VIEWS, Travelled, every_edge, travelled
from tests.support.observed import raw
from tests.support.spark_rows import SETTINGS, expected_patches, frame, made_of, patches, records_of
from tests.support.states import differences

pytestmark = pytest.mark.jvm


def test_the_live_query_reads_every_edge_as_defined() -> None:
    sources = every_edge()
    rows = made_of(records_of(sources), VIEWS, SETTINGS)
    letters = {row.key: json.loads(row.value)["reason"] for row in rows if row.topic.endswith("dead-letters")}
    plans = [view.plan for view in VIEWS]
    reasons = {f"events/0/{at}": problem(plans, source.envelope) for at, source in enumerate(sources)}
    assert letters == {key: reason for key, reason in reasons.items() if reason is not None}
    assert len(letters) == 2 * len(OUTSIDE)
    found = patches((row.key, row.value) for row in rows if row.topic.endswith("patches"))
    assert differences(found, expected_patches(VIEWS, sources)) == []


class Sighted(Observation, type="sighted"):
    """A train was seen."""

    began: datetime
    ended: datetime | None = None


def sighted(began: str, ended: str) -> Row:
    """The record of an observation."""
    document = {
        "specversion": "1.0",
        "id": "sighted/s/1",
        "type": "sighted",
        "subject": "sighted/s",
        "dataversion": 1,
        "data": {"began": began, "ended": ended},
    }
    return raw("sighted/s/1", orjson.dumps(document))


@pytest.mark.parametrize(
    "source", [events(Travelled, late_after="10m"), observations(Sighted, late_after="10m")], ids=["events", "observed"]
)
def test_a_stream_view_gets_no_time_that_python_does_not_have(source: StreamSource) -> None:
    good, given = "2026-01-02T03:04:05Z", [*OUTSIDE, *INSIDE]
    began, ended = [(text, good) for text in given], [(good, text) for text in given]
    if source.topic == "events":
        both = [travelled(at, began=each[0], ended=each[1]) for at, each in enumerate([*began, *ended])]
        records = records_of(both)
    else:
        records = [sighted(*each) for each in [*began, *ended]]
    columns = ("_headwater_verdict as verdict", "cast(began as string) as began", "cast(ended as string) as ended")
    rows = judged(frame(records), source, source.late_by).selectExpr(*columns).collect()
    verdicts = [row.verdict for row in rows]
    assert verdicts == [UNREADABLE] * len(OUTSIDE) + [TAKEN] * (len(rows) - len(OUTSIDE))
    assert [row.ended is None for row in rows[len(given) :]] == [text in OUTSIDE for text in given]
    assert {text[:4] for row in rows for text in (row.began, row.ended) if text} == {"0001", "2026", "9999"}
