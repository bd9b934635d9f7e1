"""Views compiled to Spark mean what the reference means: schema, patches, rows, and what becomes of bad records."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec import structs
from pyspark.sql import Row

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.registry import CommandRegistry
from headwater.eventlog.envelope import Envelope, Position, encode, partition_of
from headwater.eventlog.limits import MAX_ENTRY_BYTES, MAX_RECORD_BYTES
from headwater.eventlog.settings import LogSettings
from headwater.projections.loading.decoding import NotAPatch, read_into
from headwater.projections.spark.events import LogSchema
from headwater.projections.spark.live import checkpoint_directory
from headwater.projections.spark.patch_sql import live_sql, patch_records, sendable
from headwater.projections.stores.declared import Postgres, Topic
from headwater.projections.stores.names import patch_partition
from headwater.projections.stores.store import Batch
from headwater.projections.table.computations import envelope, minus, negative, point, value, when
from headwater.projections.table.event_data import problem
from headwater.projections.table.expressions import Source
from headwater.projections.table.folds import EVERY, add, count, last, maximum, members, minimum
from headwater.projections.table.folds import lowest as lowest_of
from headwater.projections.table.monoids import State
from headwater.projections.table.types import ColumnType
from headwater.projections.table.view import TableView
from headwater.projections.testing.contracts import history as random_history
from tests.contracts.fold_views import FOLD_VIEWS, odd_moves
from tests.contracts.view_histories import BY_GROUP, BY_THING, Put, Removed, Restored, Taken
from tests.support.bad_records import BAD
from tests.support.domains import SHIPPED
from tests.support.numbered import NUMBERS, balances, days, issued, numbers, references
from tests.support.numbered import sources as numbered_sources
from tests.support.seeds import examples, seed_of
from tests.support.spark_histories import history
from tests.support.spark_rows import SETTINGS, expected_patches, frame, made_of, patches, record, records_of, session
from tests.support.states import differences, expected_states, touched
from tests.support.table_views import table_views
from tests.support.wrong_values import each_value, in_nullable_fields_and_items

pytestmark = pytest.mark.jvm

VIEWS = list(table_views(SHIPPED).values())
SOME_VIEWS = [view for view in VIEWS if view.name in ("city_market", "listing_search", "customer_360")]
"""Two read listings, one does not: a query over all views takes Spark long to compile."""
AGGREGATES = list(CommandRegistry.load(SHIPPED).aggregates.values())


class Measured(Event, type="probe.measured"):
    probe: str
    amount: int
    other: int
    size: float
    note: str | None
    moment: datetime
    good: bool
    latitude: float | None
    longitude: float | None
    tags: list[str]


class Renamed(Event, type="probe.renamed"):
    probe: str
    amount: str
    size: int


PRICES = members({Measured: [(1, "amount"), (-1, "other")]})
measured = TableView(
    name="measured",
    key="probe",
    columns={
        "amount": last({Measured: "amount", Renamed: value(7)}),
        "label": last({Renamed: "amount"}),
        "whole": last({Renamed: "size"}),
        "size": maximum({Measured: "size"}),
        "sum": last({Measured: minus("amount", "other")}),
        "events": count(Measured, Renamed),
        "chosen": last({Measured: when("good", "amount", "other")}),
        "note": last({Measured: "note"}),
        "moment": minimum({Measured: "moment"}),
        "place": last({Measured: point("latitude", "longitude")}),
        "tags": last({Measured: "tags"}),
        "odd": last({Measured: value('it\'s ${not} a \\ "var"\n€')}),
        "lowest": lowest_of(PRICES),
    },
    stores=(Postgres(),),
)
whole = st.integers(-(2**63), 2**63 - 1)
number = st.floats(allow_nan=False, allow_infinity=False)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
any_measured = st.builds(
    Measured,
    probe=st.sampled_from(["a", "b/c", "it's"]),
    amount=whole,
    other=whole,
    size=number,
    note=st.none() | words,
    moment=st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),
    good=st.booleans(),
    latitude=st.none() | number,
    longitude=st.none() | number,
    tags=st.lists(words, max_size=3),
)
any_renamed = st.builds(Renamed, probe=st.sampled_from(["a", "b/c"]), amount=words, size=st.integers(-(2**53), 2**53))


def sources_of(events: list[Event]) -> list[Source]:
    found = []
    for at, event in enumerate(events):
        stream = f"probe/{event.probe}"  # type: ignore[attr-defined]
        made = Envelope(f"{stream}/{at + 1}", event.type, stream, datetime(2026, 1, 1, tzinfo=UTC), _body(event))
        made = Envelope(made.id, made.type, made.stream, made.time, made.data, sequence=at + 1)
        place = Position(partition_of(stream, 3), at)
        found.append(Source(made, place, 1_767_323_045_000 + at // 2, encode(made).decode()))
    return found


def _body(event: Event) -> dict[str, Any]:
    return event.model_dump(mode="json")


@settings(
    max_examples=examples(3),
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(any_measured | any_renamed, min_size=20, max_size=60))
def test_expressions_mean_the_same_in_spark_and_in_python(events: list[Event]) -> None:
    sources = sources_of(events)
    made = made_of(records_of(sources), [measured], SETTINGS)
    found, expected = patches((row.key, row.value) for row in made), expected_patches([measured], sources)
    for patch in (*found.values(), *expected.values()):
        if "tags" in patch:  # one text may be escaped in two ways
            patch["tags"] = json.loads(patch["tags"])
    assert differences(found, expected) == []


def test_fields_that_events_declare_differently_are_parsed_as_text() -> None:
    schema = LogSchema.of([measured])
    assert schema.parsed["amount"] is ColumnType.TEXT
    assert schema.parsed["size"] is ColumnType.TEXT
    assert schema.parsed["other"] is ColumnType.INTEGER


def test_only_what_views_read_is_parsed() -> None:
    per_city = TableView("per_city", "city", {"listed": count(_event("listing.listed"))}, (Postgres(),))
    assert LogSchema.of([per_city]).ddl.endswith("data struct<`city`: string>")
    every = TableView(
        "every", envelope("id"), {"type": last({EVERY: envelope("type")})}, (Postgres(),), key_name="event"
    )
    assert "data" not in LogSchema.of([every]).ddl


@pytest.mark.complete
@pytest.mark.soak
@pytest.mark.parametrize("number", range(examples(1)))
def test_patches_and_rows_of_random_histories_are_the_references(number: int) -> None:
    _check(VIEWS, history(AGGREGATES, seed_of(number), 150, SETTINGS.partitions))


BY_EVENT = TableView(
    name="by_event",
    key=envelope("id"),
    key_name="id",
    columns={
        "text": last({Put: "text", Restored: "text"}),
        "place": last({Put: point("latitude", "longitude")}),
        "small": add({Put: "small", Taken: negative("small")}),
        "most": maximum({Put: "real"}),
    },
    deleted_by=(Removed,),
    stores=(Postgres(),),
)


@pytest.mark.parametrize(
    "view",
    [BY_GROUP, *(pytest.param(view, marks=pytest.mark.complete) for view in (BY_THING, BY_EVENT))],
    ids=lambda view: view.name,
)
def test_every_fold_over_every_type_is_the_references(view: TableView) -> None:
    sources = random_history(view, [Put, Taken, Removed, Restored], 1).sources
    _check([view], sources)


ONE_OF_EACH_KIND = ("lists_by_group", "between_groups")
OF_LISTS = ("by_sku", "by_packed_group", "items_and_moves", "with_own_fold")
OF_KEYS = ("moves_of_small", "by_group_and_small")
EXACT = ("exact_by_group", "exact_by_sku", "exact_by_due", "exact_by_number", "exact_by_day")
OTHERS = (pytest.param(name, marks=pytest.mark.complete) for name in OF_LISTS + OF_KEYS + EXACT)


@pytest.mark.parametrize("name", [*ONE_OF_EACH_KIND, *OTHERS])
def test_every_list_where_each_and_key_are_the_references(name: str) -> None:
    view = FOLD_VIEWS[name]
    sources = random_history(view, list(view.plan.events.values()), 2, length=150).sources
    _check([view], sources)


@pytest.mark.complete
def test_an_event_that_is_odd_changes_all_of_its_rows_or_none() -> None:
    views, sources = [FOLD_VIEWS["between_groups"], FOLD_VIEWS["moves_of_small"]], odd_moves()
    rows = made_of(records_of(sources), views, SETTINGS)
    letters = {row.key: json.loads(row.value)["reason"] for row in rows if row.topic.endswith("dead-letters")}
    told = {
        f"events/0/{source.position.offset}": problem([view.plan for view in views], source.envelope)
        for source in sources
    }
    assert letters == {key: reason for key, reason in told.items() if reason is not None}
    assert 0 < len(letters) < len(sources)
    found = patches((row.key, row.value) for row in rows if row.topic.endswith("patches"))
    assert differences(found, expected_patches(views, sources)) == []


def test_keys_that_are_numbers_days_and_uuids_have_one_text_and_other_values_are_dead_letters() -> None:
    wrong: list[Any] = [True, 1.0, 1.5, "1", None, [1], 2**63, -(2**63) - 1]
    given = [issued(each) for each in (*NUMBERS, -0, *wrong)]
    given += [issued(1, day=each) for each in ("0001-01-01", "9999-12-31", "2026-02-29", "20260301", None)]
    given += [issued(1, reference=each) for each in ("ABCDEF00-0000-0000-0000-000000000000", "x", None)]
    given += [{"from_number": each, "to_number": -5, "cents": 1} for each in (-5, 2**53 + 1, True, None)]
    views, found = [numbers, days, references, balances], numbered_sources(given)
    rows = made_of(records_of(found), views, SETTINGS)
    letters = {row.key: json.loads(row.value)["reason"] for row in rows if row.topic.endswith("dead-letters")}
    plans = [view.plan for view in views]
    told = {
        f"events/{source.position.partition}/{source.position.offset}": problem(plans, source.envelope)
        for source in found
    }
    assert letters == {place: reason for place, reason in told.items() if reason is not None}
    assert 0 < len(letters) < len(found)
    patched = patches((row.key, row.value) for row in rows if row.topic.endswith("patches"))
    assert differences(patched, expected_patches(views, found)) == []


def _check(views: Sequence[TableView], sources: Sequence[Source]) -> None:
    made = made_of(records_of(sources), views, SETTINGS)
    assert differences(patches((row.key, row.value) for row in made), expected_patches(views, sources)) == []
    for row in made:
        assert row.topic == "t_unit.patches"
        assert row.partition == partition_of(row.key, SETTINGS.patch_partitions), "as earlier versions have it"
    for view in views:
        assert differences(_recombined(view, made), expected_states(view, sources)) == [], view.name


def _recombined(view: TableView, made: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """The states of a view's rows from its live patches, combined in another order and in parts of any size."""
    chance = random.Random(len(made))
    parts: dict[str, list[State]] = {}
    for (key, *_), change in patches((row.key, row.value) for row in made if row.topic.endswith("patches")).items():
        tag, _, row = key.partition("/")
        if tag == view.tag:
            parts.setdefault(row, []).append(change)
    found: dict[str, dict[str, Any]] = {}
    for key, changes in parts.items():
        chance.shuffle(changes)
        while len(changes) > 1:
            at = chance.randrange(len(changes) - 1)
            left: State = {}
            for each in changes[at : at + 2]:
                view.layout.combine(left, each)
            changes[at : at + 2] = [left]
        whole: State = {}
        view.layout.combine(whole, changes[0])
        found[key] = touched(whole)
    return found


def test_a_record_that_is_no_event_is_a_dead_letter_with_its_reason_and_bytes() -> None:
    given = [record(1, at, "bad", body) for at, body in enumerate(BAD)]
    made = {row.key: row for row in made_of(given, SOME_VIEWS, SETTINGS)}
    assert len(made) == len(BAD)
    for at, (body, reason) in enumerate(BAD.items()):
        row = made[f"events/1/{at}"]
        letter = json.loads(row.value)
        assert (row.topic, row.partition) == ("t_unit.dead-letters", 0)
        assert reason in letter["reason"], body
        assert (letter["topic"], letter["partition"], letter["offset"]) == ("events", 1, at)
        assert base64.b64decode(letter["value"], validate=True) == body
        assert base64.b64decode(letter["key"], validate=True) == b"bad"


def test_a_patch_that_kafka_would_not_take_is_named_in_its_place() -> None:
    most = MAX_ENTRY_BYTES - len("v@1/é".encode())
    rows = [("t", "v@1/é", "x" * most, 3), ("t", "v@1/é", "x" * (most + 1), 2), ("t", "é" * MAX_RECORD_BYTES, "{}", 1)]
    given = session().createDataFrame(rows, "topic string, key string, value string, `partition` int")
    whole, large, endless = (tuple(row) for row in sendable(given).collect())
    assert whole == rows[0]
    assert large == ("t", "v@1/é", f'{{"too_large":{MAX_ENTRY_BYTES + 1}}}', 2)
    assert endless == ("t", "é" * 1_000, f'{{"too_large":{2 * MAX_RECORD_BYTES + 2}}}', 1)
    with pytest.raises(NotAPatch, match=f"{MAX_ENTRY_BYTES + 1} bytes"):
        read_into(Batch(0), large[1].encode(), large[2].encode())


def test_an_event_that_some_views_cannot_read_makes_the_others_patches_and_a_dead_letter() -> None:
    made = Envelope("listing/L1/1", "listing.withdrawn", "listing/L1", datetime(2026, 1, 1, tzinfo=UTC), {}, sequence=1)
    body = {"listing_id": "L1", "city": "C", "price": "much", "square_feet": 1, "under_offer": False}
    given = Envelope(made.id, made.type, made.stream, made.time, body, sequence=1)
    rows = made_of([record(0, 5, given.id, encode(given))], SOME_VIEWS, SETTINGS)
    letters = [json.loads(row.value) for row in rows if row.topic.endswith("dead-letters")]
    tags = {row.key.partition("@")[0] for row in rows if row.topic.endswith("patches")}
    assert [letter["reason"] for letter in letters] == [
        '"listing.withdrawn" lacks a field, or has it with another type: price'
    ]
    # the market alone reads the price of a withdrawal
    reading = {view.name for view in SOME_VIEWS if view.plan.handles_every or given.type in view.plan.events}
    assert tags == reading - {"city_market"}


def test_a_value_that_is_no_decimal_date_or_uuid_is_a_dead_letter_and_is_not_rounded() -> None:
    view = FOLD_VIEWS["exact_by_group"]
    sources = [source for source, _, _ in each_value()] + [source for source, _ in in_nullable_fields_and_items()]
    made = made_of(records_of(sources), [view], SETTINGS)
    letters = {row.key: json.loads(row.value)["reason"] for row in made if row.topic.endswith("dead-letters")}
    told = {f"events/0/{source.position.offset}": problem([view.plan], source.envelope) for source in sources}
    assert letters == {key: reason for key, reason in told.items() if reason is not None}
    found = patches((row.key, row.value) for row in made if row.topic.endswith("patches"))
    assert differences(found, expected_patches([view], sources)) == []


@pytest.mark.complete
def test_an_event_with_a_bad_item_is_a_dead_letter_as_a_whole() -> None:
    good = {"sku": "A", "pieces": 2, "price": 5, "weight": None, "at": None}
    lists: list[Any] = [
        [good],
        [],
        [good, {"sku": "B"}],
        [good, {**good, "pieces": "two"}],
        [good, {**good, "sku": 12, "price": "five", "weight": "heavy"}],
        [good, 5],
        [None],
        {**good},
        "[]",
        7,
        None,
    ]
    views = [FOLD_VIEWS["by_sku"], FOLD_VIEWS["lists_by_group"]]
    sources = []
    for at, lines in enumerate(lists):
        data = {"thing_id": "T", "group": "g", "text": None, "flag": True, "lines": lines}
        time = datetime(2026, 1, 1, tzinfo=UTC)
        made = Envelope(f"thing/T/{at + 1}", "thing.packed", "thing/T", time, data, sequence=at + 1)
        sources.append(Source(made, Position(0, at), 1_767_323_045_000, encode(made).decode()))
    rows = made_of(records_of(sources), views, SETTINGS)
    letters = {row.key: json.loads(row.value)["reason"] for row in rows if row.topic.endswith("dead-letters")}
    plans = [view.plan for view in views]
    told = {f"events/0/{at}": problem(plans, source.envelope) for at, source in enumerate(sources)}
    assert letters == {key: reason for key, reason in told.items() if reason is not None}
    assert len(letters) == 7
    found = patches((row.key, row.value) for row in rows if row.topic.endswith("patches"))
    assert differences(found, expected_patches(views, sources)) == []


def test_tombstones_make_nothing_and_heartbeats_tell_every_partition_of_patches() -> None:
    beat = b'{"specversion":"1.0","type":"headwater.heartbeat"}'
    rows = made_of([record(0, 1, "listing/L1/1", None), record(2, 9, "heartbeat/2", beat, 77)], SOME_VIEWS, SETTINGS)
    assert sorted(row.partition for row in rows) == [0, 1, 2]
    assert {row.key for row in rows} == {"progress/2"}
    assert {json.dumps({"p": 2, "o": 9, "t": 77, "v": [view.tag for view in SOME_VIEWS]}, separators=(",", ":"))} == {
        row.value for row in rows
    }


def test_a_checkpoint_belongs_to_one_cluster_environment_set_of_views_and_layout() -> None:
    several = {
        checkpoint_directory(SETTINGS, VIEWS, "one"),
        checkpoint_directory(SETTINGS, VIEWS, "two"),
        checkpoint_directory(SETTINGS, VIEWS[1:], "one"),
        checkpoint_directory(LogSettings(environment="other", partitions=3, patch_partitions=3), VIEWS, "one"),
        checkpoint_directory(LogSettings(environment="t_unit", partitions=3, patch_partitions=4), VIEWS, "one"),
    }
    assert len(several) == 5
    assert checkpoint_directory(SETTINGS, VIEWS[::-1], "one") in several


def _event(name: str) -> type[Event]:
    return next(aggregate.events[name] for aggregate in AGGREGATES if name in aggregate.events)


def test_patches_of_a_view_in_a_topic_are_in_the_partition_of_their_row_in_every_version() -> None:
    listings = [aggregate for aggregate in AGGREGATES if aggregate.name == "listing"]
    records = records_of(history(listings, 1, 60, SETTINGS.partitions))
    (view,) = [view for view in VIEWS if view.name == "listing_search"]
    found = []
    for version in (1, 2):
        followed = replace(view, version=version, stores=(Postgres(), Topic()))
        made = [(row.key.partition("/")[2], row.partition) for row in made_of(records, [followed], SETTINGS)]
        wanted = [(key, patch_partition(followed, followed.tag, key, SETTINGS.patch_partitions)) for key, _ in made]
        assert made == wanted
        assert made == [(key, partition_of(key, SETTINGS.patch_partitions)) for key, _ in made]
        found.append(sorted(made))
    assert found[0] == found[1]
    assert len(found[0]) > 20


@pytest.mark.complete
def test_the_statement_that_people_see_computes_what_the_live_query_does() -> None:
    listings = [aggregate for aggregate in AGGREGATES if aggregate.name == "listing"]
    records = [*records_of(history(listings, 1, 40, SETTINGS.partitions)), record(1, 70_000, None, b"no event")]
    frame(records).createOrReplaceTempView("records")
    for name in ("city_market", "listing_search", "customer_360"):
        (view,) = [view for view in VIEWS if view.name == name]
        shown = session().sql(live_sql(view, SETTINGS)).collect()
        assert sorted(shown) == sorted(made_of(records, [view], SETTINGS))
        assert len(shown) > (20 if name != "customer_360" else 0), "that one reads no listing"


@pytest.mark.complete
def test_a_patch_carries_the_trace_of_its_event_only_if_that_is_sampled_and_traces_are_on() -> None:
    sampled, unsampled = f"00-{'a' * 32}-{'b' * 16}-01", f"00-{'a' * 32}-{'b' * 16}-00"
    decided = datetime(2026, 1, 2, 3, 4, 5, 678_901, UTC)
    found = {}
    for offset, traceparent in enumerate((sampled, unsampled, None, "1", "")):
        stream, data = f"probe/{offset}", {"probe": f"p{offset}", "amount": "a", "size": 1}
        made = Envelope(f"{stream}/1", "probe.renamed", stream, decided, data, sequence=1)
        made = structs.replace(made, traceparent=traceparent, recorded_time=decided)
        found[f"p{offset}"] = record(0, offset, made.id, encode(made))
    for traced in (True, False):
        rows = patch_records(frame(list(found.values())), [measured], SETTINGS, traced=traced).collect()
        values = {row.key.partition("/")[2]: json.loads(row.value) for row in rows}
        more = {key: {name: value[name] for name in value.keys() - set("poitc")} for key, value in values.items()}
        time = "2026-01-02T03:04:05.678901Z"
        expected = {"p0": {"w": sampled, "r": time}, "p3": {"w": "1", "r": time}} if traced else {}
        assert more == {key: expected.get(key, {}) for key in found}
