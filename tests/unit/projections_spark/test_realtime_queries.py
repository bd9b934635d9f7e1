"""The query of a real-time view, on Spark: what it sends of each record, what passes it, and which are refused."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Row

from headwater import TEXT, events
from headwater.commands.declaring.observation import to_entry
from headwater.eventlog.envelope import partition_of
from headwater.eventlog.letters import VALUE_BYTES
from headwater.eventlog.source_positions import source_id
from headwater.eventlog.topics import EVENTS, OBSERVATIONS
from headwater.projections.errors import ViewDeclarationError
from headwater.projections.loading.decoding import read_into
from headwater.projections.spark.stream_queries import realtime
from headwater.projections.spark.stream_queries.realtime import RealtimeQuery, realtime_records
from headwater.projections.stores.memory import Memory, MemoryStore
from headwater.projections.stores.store import LAST_NUMBER, Batch, Target
from headwater.projections.stream.view import BATCH, StreamView
from headwater.projections.table.patch import WHOLE, Place
from headwater.projections.testing.streams import KAFKA_RECORD_DDL
from headwater.samples.orders.views import large_order_lines
from tests.samples.orders import ORDERS, CheckedOrders
from tests.samples.orders import large_order_lines as expected_lines
from tests.samples.stored_rows import differences
from tests.support.carts import LATE_AFTER, Move, cart_view, carts, rows_in_python
from tests.support.gate_events import Entered, event_of, owner_s_beat
from tests.support.observed import START, Report, beat, raw
from tests.support.process_world import World
from tests.support.spark_rows import SETTINGS, frame, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = pytest.mark.jvm


def at(record: Row, partition: int, offset: int) -> Row:
    """The same record at another place."""
    return Row(**(record.asDict() | {"partition": partition, "offset": offset}))


def moved(move: Move, offset: int, partition: int = 0, now: datetime = START) -> Row:
    """The record that the API would have appended."""
    entry = to_entry(move.report(now), now, None, None)
    time = now - move.late
    return raw(entry.key, entry.value, time, partition, offset)


def made(view: StreamView, records: Sequence[Row]) -> list[Row]:
    """The output of these records, in one partition of Spark, so that it is in their order."""
    frame_of = session().createDataFrame(session().sparkContext.parallelize(records, 1), KAFKA_RECORD_DDL)
    return realtime_records(frame_of, view, SETTINGS).collect()


def some_moves(seed: int, number: int) -> list[Move]:
    chance = random.Random(seed)
    lateness = (timedelta(), LATE_AFTER, LATE_AFTER + timedelta(milliseconds=1))
    return [
        Move(chance.choice("123"), chance.choice("abc"), step, chance.randrange(3), chance.choice(lateness))
        for step in range(1, number + 1)
    ]


def applied(target: Target, batches: Sequence[Sequence[Row]], memory: Memory) -> None:
    """Load what each batch made, as one record of `patches` after another."""
    store = MemoryStore(memory)
    for rows in batches:
        loaded: dict[int, Batch] = {}
        for row in rows:
            batch = loaded.setdefault(row.partition, Batch(0))
            read_into(batch, row.key.encode(), row.value.encode())
        store.apply([target], loaded)


def created(view: StreamView) -> tuple[Target, Memory]:
    target, memory = Target(view, 1), Memory()
    MemoryStore(memory).create(target, {}, dict.fromkeys(range(SETTINGS.patch_partitions), 0))
    return target, memory


def test_rows_are_those_of_python_however_often_records_are_read_again() -> None:
    moves, chance = some_moves(1, 60), random.Random(2)
    out = made(carts, [moved(move, offset) for offset, move in enumerate(moves)])
    target, memory = created(carts)
    batches: list[Sequence[Row]] = []
    position = 0
    while position < len(out):
        start, position = max(0, position - chance.randrange(6)), min(len(out), position + chance.randrange(1, 9))
        batches.append(out[start:position])
        if chance.random() < 0.2:
            position = chance.randrange(position)  # the query was killed, and begins earlier
    applied(target, batches, memory)
    shown = {key: row["step"] for key, row in MemoryStore(memory).rows(target).items()}
    assert shown == rows_in_python(moves)
    assert len(shown) > 2


def test_one_record_at_a_time_gives_the_same_as_all_at_once() -> None:
    """A query is planned for each, so there are few: one is late, one deletes, and one is a heartbeat."""
    moves = [move for move in some_moves(3, 7) if move.step in {2, 3, 4, 7}]
    records = [moved(move, offset) for offset, move in enumerate(moves)]
    records.insert(2, at(beat(START), 0, 99))
    assert [each for record in records for each in made(carts, [record])] == made(carts, records)


def test_a_patch_has_the_place_of_its_record_and_the_partition_of_its_row() -> None:
    (first, second) = made(carts, [moved(Move("1", "a", 3, 2), 41, partition=2)])
    assert first.topic == SETTINGS.topic("patches")
    assert (first.key, second.key) == tuple(f"carts@1/cart_moved%2Fyard%2F1/{place}" for place in (0, 1))
    assert [record.partition for record in (first, second)] == [
        partition_of(record.key.removeprefix("carts@1/"), SETTINGS.patch_partitions) for record in (first, second)
    ]
    document = json.loads(first.value)
    assert {name: document[name] for name in "poi"} == {"p": "observations/2", "o": 41, "i": WHOLE}
    assert document["t"] == int(START.timestamp() * 1000)
    assert document["c"] == {BATCH: 41, "id": "cart_moved/yard/1", "place": 0, "name": "hand cart", "step": 3}


def test_events_are_in_the_source_of_their_partition_and_may_be_keyed_by_their_stream() -> None:
    now = START + timedelta(minutes=1)
    records = [at(event_of(Report(3, "b", 5, START, now)), 1, 7), at(owner_s_beat(now, 1), 1, 8)]
    view = cart_view(
        key="stream",
        columns={"stream": TEXT, "gate": TEXT},
        sources={"entered": events(Entered, late_after="10m")},
        query=last_gate,
        deleted_by="",
    )
    patch, *progress = made(view, records)
    assert (patch.key, json.loads(patch.value)["p"]) == ("carts@1/gate/b", 1)
    assert json.loads(patch.value)["c"] == {BATCH: 7, "gate": "b"}
    assert [json.loads(record.value)["o"] for record in progress] == [8] * SETTINGS.patch_partitions
    assert {record.key for record in progress} == {"progress/1"}


def last_gate(entered: DataFrame) -> DataFrame:
    return entered.select("stream", "gate")


def test_a_heartbeat_passes_filters_lists_and_joins_in_its_place_and_says_how_far_it_is_read() -> None:
    records = [
        moved(Move("1", "a", 3, 1), 4),
        at(beat(START), 0, 5),
        moved(Move("1", "c", 5, 0), 6),
        at(beat(START), 0, 7),
    ]
    first, *rest = made(carts, records)
    assert first.key.startswith("carts@1/")
    assert [(record.key, record.partition, json.loads(record.value)["o"]) for record in rest] == [
        ("progress/observations/0", partition, offset)
        for offset in (5, 7)
        for partition in range(SETTINGS.patch_partitions)
    ]
    assert all(json.loads(record.value)["v"] == ["carts@1"] for record in rest)
    target, memory = created(carts)
    applied(target, [[first, *rest]], memory)
    for ledger in MemoryStore(memory).ledgers(target).values():
        assert ledger.applied[source_id(OBSERVATIONS, 0)] == Place(7, LAST_NUMBER)


def test_what_cannot_be_read_sends_nothing() -> None:
    unreadable = [
        raw("cart_moved/yard/1", b"{", offset=0),
        raw("cart_moved/yard/1", None, offset=1),
        raw("other/yard/1", b'{"specversion":"1.0","type":"other","id":"other/yard/1"}', offset=2),
        raw("cart_moved/yard/1", b"\xff\xfe", offset=3),
    ]
    assert made(carts, unreadable) == []


def test_a_row_that_is_too_large_for_kafka_is_sent_as_its_size_and_whole_in_a_rebuild(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large, record, sent = cart_view(query=repeated, columns=carts.columns), moved(Move("1", "a", 3, 1), 4), list[Row]()
    monkeypatch.setattr(realtime, "read_live", lambda *_: frame([record]))
    monkeypatch.setattr(realtime, "start_realtime", lambda rows, *_: sent.extend(rows.collect()))
    checkpoint: Any = SimpleNamespace(create=lambda: None, location="")
    RealtimeQuery(session(), large, SETTINGS, checkpoint).start({})
    assert "too_large" in json.loads(sent[0].value)
    assert len(sent[0].value) < VALUE_BYTES
    (whole,) = made(large, [record])
    assert json.loads(whole.value)["c"]["name"] == "cart_moved/yard/1" * 999_999


def repeated(moved: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return moved.selectExpr("id", "0 as place", "step", "false as gone").withColumn(
        "name", f.repeat(f.col("id"), 999_999)
    )


def select(*texts: str) -> Callable[[DataFrame], DataFrame]:
    return lambda moved: moved.selectExpr("id", *texts)


def table(moved: DataFrame) -> DataFrame:
    return moved.sparkSession.createDataFrame([("a", 1)], "kind string, more int")


def python_function(moved: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return moved.select("id", f.udf(lambda kind: kind)("kind"))


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        (lambda moved: moved.groupBy("id").count(), "Aggregate"),
        (lambda moved: moved.dropDuplicates(["id"]), "Deduplicate"),
        (lambda moved: moved.distinct(), "Deduplicate"),
        (lambda moved: moved.orderBy("id"), "Sort"),
        (lambda moved: moved.limit(5), "GlobalLimit"),
        (lambda moved: moved.union(moved), "Union"),
        (lambda moved: moved.repartition(3), "Repartition"),
        (select("row_number() over (partition by kind order by step) as n"), "Window"),
        (lambda moved: moved.mapInArrow(lambda batches: batches, "id string"), "Python"),
        (python_function, "a function of Python"),
        (select("stack(2, step, boxes) as either"), "no explode of an array"),
        (select("explode(map(kind, step)) as (name, other)"), "explode of map"),
        (lambda moved: moved.where("exists (select 1)"), "a query within a query"),
        (lambda moved: moved.where("kind in (select lower('A'))"), "a query within a query"),
        (lambda moved: moved.join(moved.select("id"), "id"), "joins two streams"),
        (lambda moved: moved.join(table(moved), "kind", "left_semi"), "LEFT SEMI"),
        (lambda moved: moved.join(table(moved), "kind", "full"), "FULL OUTER"),
        (lambda moved: moved.join(table(moved), "kind", "right"), "RIGHT OUTER"),
        (lambda moved: moved.crossJoin(table(moved).select("more")), "CROSS"),
        (lambda moved: moved.join(table(moved).select("more"), moved.step > 3), "equal on both sides"),
        (table, "LogicalRDD"),
    ],
)  # fmt: skip
def test_a_query_whose_rows_do_not_come_from_one_record_each_is_refused(
    monkeypatch: pytest.MonkeyPatch, query: Any, problem: str
) -> None:
    monkeypatch.setattr("headwater.projections.spark.stream_queries.output.check_output", lambda *_, **__: None)
    with pytest.raises(ViewDeclarationError, match="cannot run in real-time mode") as refused:
        made(replaced(query), [])
    assert problem in str(refused.value)
    assert "leave out realtime" in str(refused.value)


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        (lambda moved: moved.sample(0.5), "takes a sample by chance"),
        (select("rand() as chance"), "uses rand()"),
        (select("uuid() as name"), "uses uuid()"),
        (select("current_timestamp() as now"), "reads the clock (current_timestamp())"),
        (lambda moved: moved.join(table(moved).selectExpr("kind", "now() as now"), "kind"), "reads the clock (now())"),
    ],
)
def test_a_query_that_would_give_other_rows_in_a_replay_is_refused(
    monkeypatch: pytest.MonkeyPatch, query: Any, problem: str
) -> None:
    monkeypatch.setattr("headwater.projections.spark.stream_queries.output.check_output", lambda *_, **__: None)
    with pytest.raises(ViewDeclarationError) as refused:
        made(replaced(query), [])
    assert f": its query {problem}" in str(refused.value)
    assert "realtime" not in str(refused.value), "leaving it out would not help"


def replaced(query: Any, **changes: Any) -> StreamView:
    """A view with this query, which need not be declared in a module."""
    view = cart_view(**changes)
    object.__setattr__(view, "query", query)
    return view


WAYS = (
    lambda moved: moved.alias("m").select("m.id", "m.kind"),
    lambda moved: moved.join(table(moved), "kind", "left").select("id", "more"),
    lambda moved: table(moved).join(moved, "kind").select("id", "more"),
    lambda moved: table(moved).join(moved, "kind", "right").select("id", "more"),
    lambda moved: moved.join(table(moved).groupBy("kind").count().hint("merge"), "kind").select("id", "count"),
    lambda moved: moved.selectExpr("id", "inline(array(struct(step as number), struct(boxes as number)))"),
    lambda moved: moved.selectExpr("id", "explode_outer(array(step)) as step").where("step is not null"),
    lambda moved: moved.fillna(0).dropna().select("id", "kind"),
)


@pytest.mark.parametrize(
    "query",
    [
        pytest.param(query, marks=() if number in (1, 5) else (pytest.mark.complete,))
        for number, query in enumerate(WAYS)
    ],
)
def test_a_query_may_be_written_in_several_ways_and_heartbeats_pass(
    monkeypatch: pytest.MonkeyPatch, query: Any
) -> None:
    monkeypatch.setattr("headwater.projections.spark.stream_queries.output.check_output", lambda *_, **__: None)
    view = replaced(query, key="id", columns={"id": TEXT}, deleted_by="")
    out = made(view, [moved(Move("1", "a", 3, 1), 0), at(beat(START), 0, 1), moved(Move("2", "a", 3, 1), 2)])
    keys = [record.key for record in out]
    first, last = keys.index("progress/observations/0"), len(keys) - keys[::-1].index("progress/observations/0")
    assert (set(keys[:first]), set(keys[last:])) == (
        {"carts@1/cart_moved/yard/1"}, {"carts@1/cart_moved/yard/2"}
    )  # fmt: skip
    assert last - first == SETTINGS.patch_partitions


@pytest.mark.parametrize(
    "query", [select("concat(id, '!') as name"), select("upper(id) as name"), select("kind as name")]
)
def test_the_key_has_the_id_of_the_record(monkeypatch: pytest.MonkeyPatch, query: Any) -> None:
    monkeypatch.setattr("headwater.projections.spark.stream_queries.output.check_output", lambda *_, **__: None)
    view = replaced(query, key="name", columns={"name": TEXT}, deleted_by="")
    with pytest.raises(ViewDeclarationError, match="must contain a column with the id of the record"):
        realtime_records(frame([]), view, SETTINGS)
    realtime_records(frame([]), replaced(query, key="id", columns={"id": TEXT}, deleted_by=""), SETTINGS)


@pytest.mark.complete
def test_the_large_orders_of_the_demo_have_the_lines_that_python_expects() -> None:
    world, sample = World(random.Random(1)), CheckedOrders()
    world.now = datetime.now(UTC)  # handlers note when they decide, and events of long ago would be late
    for requests in sample.rounds():
        for request in requests:
            world.send(request.type, **request.body)
        world.settle()
    target, memory = created(large_order_lines)
    for partition in range(world.log.partitions):
        records = [
            Row(
                topic=SETTINGS.topic(EVENTS),
                key=record.key.encode(),
                value=record.value,
                partition=partition,
                offset=record.offset,
                timestamp=datetime.fromtimestamp(record.timestamp_ms / 1000, UTC),
            )
            for record in world.log.read(EVENTS, partition, 0)
        ]
        applied(target, [made(large_order_lines, records)], memory)
    rows, expected = MemoryStore(memory).rows(target), expected_lines(sample.wishes)
    assert list(differences("large_order_lines", expected, rows, "Python")) == []
    assert len(expected) == 2 * ORDERS // 4


def test_what_a_query_returns_is_checked_as_that_of_other_views() -> None:
    with pytest.raises(ViewDeclarationError, match="must return the columns"):
        made(cart_view(columns={**carts.columns, "more": TEXT}), [])
