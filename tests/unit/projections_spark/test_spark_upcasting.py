"""Spark hands older versions of events on, to be upcast in Python, and only they pay for it."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from headwater.commands.declaring.aggregate import Event
from headwater.projections.loading.older_events import OlderEvent
from headwater.projections.spark.events import LogSchema, parse
from headwater.projections.spark.patch_sql import patch_records
from headwater.projections.stores.declared import Postgres
from headwater.projections.table.computations import envelope
from headwater.projections.table.event_data import problem
from headwater.projections.table.folds import EVERY, count, last
from headwater.projections.table.view import TableView
from tests.support.event_histories import ANNOTATIONS, events, recorded
from tests.support.nested_histories import in_rows, nested_event, nested_source, nested_views
from tests.support.seeds import examples, seed_of
from tests.support.spark_rows import SETTINGS, expected_patches, frame, made_of, patches, records_of
from tests.support.states import differences
from tests.support.versioned import REASONS, Weighed, readable, unreadable, versioned, weighed

pytestmark = pytest.mark.jvm

together = settings(
    max_examples=2,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    database=None,
    suppress_health_check=list(HealthCheck),
)


def view_of(event: type[Event]) -> TableView:
    columns = {name: last({event: name}) for name in ANNOTATIONS}
    return TableView("probed", "probe", {**columns, "events": count(event)}, (Postgres(),))


def some_of_all(number: int) -> list[Any]:
    """So many parts of a test: the first one decides, since each new event takes Spark seconds to compile."""
    return [0, *(pytest.param(part, marks=pytest.mark.complete) for part in range(1, number))]


@pytest.mark.parametrize("part", some_of_all(3))
@given(st.data())
@together
def test_every_version_reads_the_same_in_spark_and_in_python(part: int, data: st.DataObject) -> None:
    event = data.draw(events())
    version = st.integers(0, event.version + 1)
    oddness = st.sampled_from([0, 4, 12])
    rows = st.tuples(version, oddness).flatmap(
        lambda each: st.tuples(st.just(each[0]), recorded(event, max(each[0], 1), each[1]))
    )
    drawn = data.draw(st.lists(rows, min_size=60, max_size=60))
    sources = [versioned(number, event, *row) for number, row in enumerate(drawn)]
    view = view_of(event)
    made = made_of(records_of(sources), [view], SETTINGS)
    found = patches((row.key, row.value) for row in made if row.topic.endswith("patches"))
    assert differences(_plain(found), _plain(expected_patches([view], sources))) == []
    letters = [json.loads(row.value) for row in made if row.topic.endswith("dead-letters")]
    problems = {source.position.offset: problem([view.plan], source.envelope) for source in sources}
    assert {letter["offset"]: letter["reason"] for letter in letters} == {
        offset: reason for offset, reason in problems.items() if reason is not None
    }


@pytest.mark.complete
@pytest.mark.parametrize("number", some_of_all(examples(4)))
def test_nested_fields_of_every_version_are_the_same_in_spark_and_in_python(number: int) -> None:
    chance = random.Random(seed_of(number))
    event = nested_event(chance)
    sources = [nested_source(at, event, chance) for at in range(120)]
    views = nested_views(event)
    made = made_of(records_of(sources), views, SETTINGS)
    found = patches((row.key, row.value) for row in made if row.topic.endswith("patches"))
    for view in views:
        expected = in_rows(view, expected_patches([view], sources))
        assert differences(in_rows(view, found), expected) == [], (view.name, event.history)


def _plain(rows: dict[Any, dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    """One text of JSON may be written in two ways."""
    return {
        key: row | {"tags": json.loads(row["tags"])} if row.get("tags", "")[:1] in ("[", "{") else row
        for key, row in rows.items()
    }


def _weighed(name: str) -> TableView:
    return TableView("weighed", "probe", {name: last({Weighed: name})}, (Postgres(),))


def test_a_view_that_reads_no_changed_field_compiles_as_if_there_were_one_version() -> None:
    schema = LogSchema.of([_weighed("note")])
    assert schema.older == {}
    records = frame([])
    assert parse(records, schema, SETTINGS).columns[-2:] == ["data_version", "data"]
    plan = parse(records, schema, SETTINGS)._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("from_json") == 1


def test_only_events_of_versions_that_differ_are_handed_on() -> None:
    views = [_weighed("weight"), TableView("all", envelope("id"), {"seen": count(EVERY)}, (Postgres(),), key_name="id")]
    schema = LogSchema.of(views)
    assert schema.older == {"probe.probed": {1, 2}}
    plan = parse(frame([]), schema, SETTINGS)._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("from_json") == 1
    made = patch_records(frame(records_of(readable())), views, SETTINGS).collect()
    assert Counter((row.key.partition("/")[0], json.loads(row.value)["o"]) for row in made) == {
        ("older", 0): 3, ("older", 1): 3, ("weighed@1", 2): 1,
        ("all@1", 0): 1, ("all@1", 1): 1, ("all@1", 2): 1,
    }  # fmt: skip
    handed = [(row, OlderEvent.of(row.value.encode())) for row in made if row.key.startswith("older/")]
    assert {row.partition for row, _ in handed} == {0, 1, 2}
    for (_, event), source in zip(handed[::3], readable()[:2], strict=True):
        assert (event.source, event.tags) == ("0", ("weighed@1",))
        assert event.record == (
            source.position.offset, source.timestamp_ms, source.envelope.id.encode(), source.record.encode()
        )  # fmt: skip


def test_one_field_may_have_had_another_type_or_unit_in_each_version() -> None:
    sources = [*readable(), *unreadable()]
    made = made_of(records_of(sources), [weighed], SETTINGS)
    found = patches((row.key, row.value) for row in made if row.topic.endswith("patches"))
    assert differences(found, expected_patches([weighed], sources)) == []
    letters = [json.loads(row.value)["reason"] for row in made if row.topic.endswith("dead-letters")]
    assert letters == list(REASONS)
    assert [problem([weighed.plan], source.envelope) for source in unreadable()] == list(REASONS)


def test_an_event_s_past_is_part_of_what_a_view_means_where_the_view_reads_it() -> None:
    assert _weighed("note").fingerprint == _plain_weighed("note").fingerprint
    assert _weighed("weight").fingerprint != _plain_weighed("weight").fingerprint


def _plain_weighed(name: str) -> TableView:
    class Plain(Event, type="probe.probed"):
        probe: str
        note: str
        weight: int
        scale: str

    return TableView("weighed", "probe", {name: last({Plain: name})}, (Postgres(),))
