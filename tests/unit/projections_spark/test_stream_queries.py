"""The query of a stream view, on Spark: which rows it sends, whatever the batches, and which records count."""

from __future__ import annotations

import os
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import orjson
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import Row
from pyspark.sql import functions as f

from headwater import DATE, DECIMAL, FLOAT, INTEGER, POINT, TEXT, TIME, StreamView, observations
from headwater.commands.declaring.observation import ObservationRegistry, to_entry
from headwater.eventlog.settings import LogSettings
from headwater.projections.errors import ViewDeclarationError
from headwater.projections.spark.stream_queries.failures import reason
from headwater.projections.spark.stream_queries.frames import AMENDING, DROPPED, TAKEN, UNREADABLE, source_frame
from headwater.projections.spark.stream_queries.output import check_output, numbered, row_texts
from headwater.projections.spark.stream_queries.query import READERS_PER_CORE, computed, kafka_records
from headwater.projections.spark.stream_queries.query_checks import analysed, nodes
from headwater.samples.listings.views import hourly_views
from tests.support.observed import (
    LATE_AFTER,
    START,
    Closed,
    Passed,
    Report,
    beat,
    by_minute,
    compacted,
    cut,
    gate_view,
    raw,
    record_of,
    reports,
    rows_in_python,
)
from tests.support.seeds import batches
from tests.support.spark_rows import session
from tests.support.stream_queries import Ran, run
from tests.unit.projections.test_stream_declarations import documented, imported

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = pytest.mark.jvm
DAY = timedelta(days=1)
AMENDED: dict[str, Any] = {"late": "amend", "keep_state": "1d"}


def numbers(ran: Ran) -> dict[str, tuple[int, int]]:
    return {key: (row["number"], row["weight"]) for key, row in ran.rows.items()}


def windows_kept_open(seed: int) -> list[Report]:
    """Reports of some minutes in the order of their acceptance, then one that is hours later."""
    found = reports(seed, 150)
    after = found[-1].recorded + timedelta(hours=3)
    return [*found, Report(len(found), "z", 1, after, after)]


@pytest.mark.parametrize(
    "changes",
    [pytest.param({}, id="drop", marks=pytest.mark.complete), pytest.param(AMENDED, id="amend")],
)
def test_rows_do_not_depend_on_batches_and_late_is_what_the_rule_says(tmp_path: Path, changes: dict[str, Any]) -> None:
    found, chance = windows_kept_open(7), random.Random(3)
    admitted = DAY if changes else LATE_AFTER
    records = [record_of(each) for each in found]
    late = sum(report.lateness > LATE_AFTER for report in found)
    assert 20 < late < 100, "the reports must include late ones"
    for partitions, parts in ((1, [records]), (2, cut(records, chance, batches(9)))):
        ran = run(gate_view(**changes), parts, tmp_path / str(partitions), partitions)
        assert numbers(ran) == rows_in_python(found, admitted)
        assert ran.counts == Counter({TAKEN: len(found) - late, (AMENDING if changes else DROPPED): late})
        assert ran.dropped_by_watermark == 0, "Spark dropped what the rule admits"
        assert {row["gate"] for row in ran.rows.values()} == {"a", "b", "/", "%", "z"}


@pytest.mark.complete
def test_what_is_amended_for_too_long_is_dropped_by_the_same_rule(tmp_path: Path) -> None:
    at = START
    edge = [
        Report(number, "a", 1, at - before, at)
        for number, before in enumerate(
            (LATE_AFTER, LATE_AFTER + timedelta(milliseconds=1), DAY, DAY + timedelta(milliseconds=1))
        )
    ]
    ran = run(gate_view(**AMENDED), [[record_of(each)] for each in edge], tmp_path)
    assert ran.counts == Counter({TAKEN: 1, AMENDING: 2, DROPPED: 1})
    assert numbers(ran) == rows_in_python(edge, DAY)
    assert ran.dropped_by_watermark == 0


def test_final_rows_are_sent_once_when_heartbeats_close_their_windows(tmp_path: Path) -> None:
    at = START
    found = [
        Report(number, "a", 1, at + timedelta(seconds=25 * number), at + timedelta(seconds=25 * number))
        for number in range(4)
    ]
    end = at + timedelta(minutes=2) + LATE_AFTER + timedelta(minutes=2)
    quiet = [[beat(end + timedelta(seconds=second))] for second in (-2, -1, 0, 1)]
    ran = run(gate_view(final=True), [[record_of(each) for each in found], *quiet], tmp_path)
    last = "a/2026-03-01T12:01:00.000Z"
    assert ran.batch_of[last] == len(quiet), "the window is open until late_after and the skew have passed"
    assert numbers(ran) == rows_in_python(found, LATE_AFTER)
    assert len(ran.sent) == len(set(ran.sent)) == 2
    compiled = [after - before for before, after in pairwise(ran.compiled)]
    assert compiled[-1] <= 1, f"a batch compiles more than its watermark: {compiled}"


@pytest.mark.complete
def test_no_filter_passes_the_watermark(tmp_path: Path) -> None:
    """What a query filters out must have moved the watermark before."""
    plan = run(gate_view(query=only_gate_a), [[record_of(Report(1, "a", 4, START, START))]], tmp_path).plan
    watermark = plan.index("EventTimeWatermark")
    assert "Filter" in plan[:watermark]
    assert "Filter" not in plan[watermark:], plan


def only_gate_a(passed: DataFrame) -> DataFrame:
    from tests.support.observed import by_minute

    return by_minute(passed.where("gate = 'a' and weight > 3"))


def test_records_that_are_no_observation_of_the_view(tmp_path: Path) -> None:
    good = record_of(Report(1, "a", 2, START, START))
    text = value_of(good).decode()
    others = [
        beat(START),
        raw("passed/s1/2", None),
        raw("passed/s1/3", b"nothing"),
        raw("passed/s1/4", text.replace('"gate":"a",', "").encode()),
        raw("passed/s1/5", text.replace('"dataversion":1', '"dataversion":2').encode()),
        raw("passed/s1/6", text.replace('"weight":2', '"weight":"heavy"').encode()),
        raw("closed/s1/7", text.replace('"type":"passed"', '"type":"closed"').encode()),
        raw("passed/s1/8", text.replace("1.0", "2.0").encode()),
        raw("passed/s1/9", b"\xff\xfe"),
        raw("passed/s1/10", text.replace("2026-03-01T12:00:00.000000Z", "soon").encode()),
    ]
    ran = run(gate_view(), [[good, *others]], tmp_path)
    assert ran.counts[UNREADABLE] == 5
    assert ran.counts[TAKEN] == 3, "weight may be null, and a record without a known time of recording is not late"
    assert numbers_of_one(ran) == (3, 4)


def numbers_of_one(ran: Ran) -> tuple[int, int]:
    (row,) = ran.rows.values()
    return row["number"], row["weight"]


@pytest.mark.complete
def test_a_time_in_the_future_of_its_recording_does_not_move_the_watermark_there(tmp_path: Path) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    good = [record_of(Report(number, "a", 1, now, now)) for number in range(3)]
    ahead = raw("passed/s1/8", value_of(good[0]), now + timedelta(days=400))
    never_recorded = value_of(good[0]).replace(b'"recordedtime"', b'"unknown"')
    ran = run(
        gate_view(),
        [[good[0], ahead, raw("passed/s1/9", never_recorded, now + timedelta(days=300_000))], good[1:]],
        tmp_path,
    )
    assert ran.dropped_by_watermark == 0
    assert sum(row["number"] for row in ran.rows.values()) == 5


def value_of(record: Row) -> bytes:
    return bytes(record.value)


def viewed(number: int, time: datetime, listing: str, recorded: datetime = START + timedelta(hours=2)) -> Row:
    report = {"id": str(number), "source": "web", "time": time.isoformat(), "data": {"listing_id": listing}}
    read = ObservationRegistry.load(["listings"]).read("listing_viewed", orjson.dumps(report))
    entry = to_entry(read, recorded, None, None)
    return raw(entry.key, entry.value, time)


@pytest.mark.complete
def test_an_id_that_comes_again_days_later_is_counted_alike_in_one_batch_and_in_several(tmp_path: Path) -> None:
    later = START + timedelta(days=3)
    batches = [
        [viewed(1, START, "L1")],
        [beat(START + timedelta(days=2))],
        [viewed(1, START, "L1", later), viewed(1, later, "L1", later)],
    ]
    live = run(hourly_views, batches, tmp_path / "live")
    assert run(hourly_views, [[each for batch in batches for each in batch]], tmp_path / "replay").rows == live.rows
    assert {key: row["views"] for key, row in live.rows.items()} == {
        "L1/2026-03-01T12:00:00.000Z": 1,
        "L1/2026-03-04T12:00:00.000Z": 1,
    }


def test_a_replay_has_what_was_in_time_although_it_was_sent_again_later(tmp_path: Path) -> None:
    """A compacted topic keeps the last record of each key: a late or a corrected copy has a key of its own."""
    first = Report(1, "a", 4, START, START)
    late, corrected = first._replace(recorded=START + DAY), first._replace(weight=9)
    records = [record_of(each) for each in (first, corrected, late)]
    live = run(gate_view(), [[record] for record in records], tmp_path / "live")
    replayed = run(gate_view(), [compacted(records)], tmp_path / "replay")
    assert numbers(live) == numbers(replayed) == rows_in_python([first, corrected], LATE_AFTER)
    assert live.counts == replayed.counts == Counter({TAKEN: 2, DROPPED: 1})


@pytest.mark.complete
def test_the_shipped_view_counts_a_report_that_was_sent_twice_once(tmp_path: Path) -> None:
    first = [viewed(number, START + timedelta(minutes=17 * number), "L1") for number in range(6)]
    other = viewed(9, START, "L/2")
    ran = run(
        hourly_views, [[*first, first[1], other], [first[1], first[5]], [beat(START + timedelta(hours=3))]], tmp_path
    )
    assert {key: row["views"] for key, row in ran.rows.items()} == {
        "L1/2026-03-01T12:00:00.000Z": 4,
        "L1/2026-03-01T13:00:00.000Z": 2,
        "L%2F2/2026-03-01T12:00:00.000Z": 1,
    }


@pytest.mark.complete
def test_the_columns_of_several_classes(tmp_path: Path) -> None:
    view = gate_view(
        key="id",
        columns={
            "id": TEXT,
            "type": TEXT,
            "source": TEXT,
            "gate": TEXT,
            "weight": INTEGER,
            "time": TIME,
            "recorded": TIME,
        },
        sources={"passed": observations(Passed, Closed, late_after="10m")},
        query=as_they_are,
    )
    ran = run(view, [[record_of(Report(4, "a", 2, START, START + timedelta(seconds=3)))]], tmp_path)
    assert ran.rows == {
        "passed/s1/4": {
            "type": "passed",
            "source": "s1",
            "gate": "a",
            "weight": 2,
            "time": "2026-03-01T12:00:00.000Z",
            "recorded": "2026-03-01T12:00:03.000Z",
        }
    }


def as_they_are(passed: DataFrame) -> DataFrame:
    return passed.withColumnRenamed("recordedtime", "recorded")


def last_of_gate(passed: DataFrame) -> DataFrame:
    """A gate is gone while its last report weighs 0; without a weight, nobody knows."""
    last = f.max(f.struct("time", "id", "weight")).alias("last")
    return passed.groupBy("gate").agg(f.count("*").alias("number"), last).selectExpr(
        "gate", "number", "last.weight = 0 as gone"
    )  # fmt: skip


DELETING: dict[str, Any] = {
    "key": "gate",
    "columns": {"gate": TEXT, "number": INTEGER},
    "query": last_of_gate,
    "deleted_by": "gone",
}


def weighed(number: int, gate: str, weight: Any) -> Row:
    at = START + timedelta(seconds=number)
    return record_of(Report(number, gate, weight, at, at))


def test_a_row_that_is_gone_is_deleted_until_a_later_batch_brings_it_back(tmp_path: Path) -> None:
    gone = {"number": 2, "_deleted": True}
    found = [weighed(0, "a", 3), weighed(1, "b", None), weighed(2, "a", 0), weighed(3, "c", 0), weighed(4, "a", 2)]
    deleted = run(gate_view(**DELETING), [[each] for each in found[:4]], tmp_path / "deleted")
    assert deleted.rows == {"a": gone, "b": {"number": 1}, "c": {"number": 1, "_deleted": True}}
    assert run(gate_view(**DELETING), [found[:4]], tmp_path / "replayed").rows == deleted.rows
    back = run(gate_view(**DELETING), [[each] for each in found], tmp_path / "back")
    assert back.rows == {**deleted.rows, "a": {"number": 3}}
    assert (back.batch_of["a"], back.sent.count("a")) == (4, 3)


def raises(passed: DataFrame) -> DataFrame:
    raise KeyError("gates")


def lacks_a_column(passed: DataFrame) -> DataFrame:
    return passed.select("gate", "weight")


def has_another_type(passed: DataFrame) -> DataFrame:
    return passed.selectExpr("gate", "time as minute", "1.5 as number", "weight")


def unknown_column(passed: DataFrame) -> DataFrame:
    return passed.select("colour")


def no_stream(passed: DataFrame) -> DataFrame:
    return passed.sparkSession.range(1).selectExpr("'a' as gate", "now() as minute", "1 as number", "1 as weight")


def sorts(passed: DataFrame) -> DataFrame:
    return (
        lacks_a_column(passed)
        .selectExpr("gate", "timestamp'2026-03-01' as minute", "1 as number", "weight")
        .orderBy("weight")
    )


def of_today(passed: DataFrame) -> DataFrame:
    return by_minute(passed.where("time > current_timestamp() - interval 1 day"))


def with_the_time(passed: DataFrame) -> DataFrame:
    return by_minute(passed).withColumn("minute", f.greatest("minute", f.now()))


def of_this_month(passed: DataFrame) -> DataFrame:
    return by_minute(passed).where(f.month("minute") == f.month(f.current_date()))


def since_a_query(passed: DataFrame) -> DataFrame:
    return by_minute(passed.where("time > (select localtimestamp())"))


def of_gates_of_this_hour(passed: DataFrame) -> DataFrame:
    return by_minute(passed.where("weight in (select hour(now()))"))


def by_chance(passed: DataFrame) -> DataFrame:
    return by_minute(passed.where("rand(7) < 0.5"))


def named_by_chance(passed: DataFrame) -> DataFrame:
    return by_minute(passed.withColumn("gate", f.concat("gate", f.lit("/"), f.expr("uuid()"))))


def by_a_table_of_chance(passed: DataFrame) -> DataFrame:
    table = passed.sparkSession.range(3).selectExpr("id as weight", "randn() as chance")
    return by_minute(passed.join(table, "weight").where("chance > 0"))


def by_a_sampled_table(passed: DataFrame) -> DataFrame:
    return by_minute(passed.join(passed.sparkSession.range(9).toDF("weight").sample(0.5), "weight"))


def by_an_unsure_function(passed: DataFrame) -> DataFrame:
    return by_minute(passed.withColumn("gate", f.udf(lambda gate: gate, "string").asNondeterministic()("gate")))


def first_five(passed: DataFrame) -> DataFrame:
    return by_minute(passed).limit(5)


def without_the_first(passed: DataFrame) -> DataFrame:
    return by_minute(passed.offset(1))


def by_a_short_table(passed: DataFrame) -> DataFrame:
    """No row of a stream is left out by chance, and lists and hashes are no chance either."""
    table = passed.sparkSession.createDataFrame([(1,), (2,)], ["weight"]).orderBy("weight").limit(1)
    found = passed.where("crc32(id) % 100 < 5 and gate in (select lower('A'))").join(table, "weight")
    grouped = found.groupBy("gate", f.window("time", "1 minute").alias("minutes"))
    rows = grouped.agg(f.collect_list("weight").alias("all"), f.first("weight").alias("weight"))
    return rows.select("gate", f.col("minutes.start").alias("minute"), f.size("all").alias("number"), "weight")


def gone_is_a_text(passed: DataFrame) -> DataFrame:
    return passed.groupBy("gate").count().selectExpr("gate", "count as number", "'true' as gone")


def endless() -> DataFrame:
    """A stream of records that nobody reads."""
    from tests.support.spark_rows import session

    stream = session().readStream.format("rate").load()
    return stream.selectExpr(
        "'t' as topic", "cast('k' as binary) as key", "cast('v' as binary) as value",
        "0 as partition", "0L as offset", "timestamp",
    )  # fmt: skip


def test_only_time_is_never_null() -> None:
    """Spark refuses to continue with state whose columns may be null and were not."""
    view = gate_view()
    frame = source_frame(endless(), "passed", view.sources["passed"], LATE_AFTER)
    assert [field.name for field in frame.schema if not field.nullable] == ["time"]


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        (by_minute, "must return the columns gate, number, gone, but lacks gone and also has minute, weight"),
        (gone_is_a_text, 'column "gone" deletes rows (deleted_by), so it must be BOOLEAN, but'),
    ],
)
def test_the_column_that_deletes_rows_is_a_boolean_of_the_query(query: Any, problem: str) -> None:
    with pytest.raises(ViewDeclarationError) as refused:
        computed(gate_view(**DELETING | {"query": query}), lambda *_: endless())
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        (raises, "its query fails: KeyError: 'gates'"),
        (lacks_a_column, "must return the columns gate, minute, number, weight, but lacks minute, number"),
        (
            has_another_type,
            'column "number" is declared INTEGER, but its query returns decimal(2,1): add .cast("bigint")',
        ),
        (unknown_column, "its query fails: [UNRESOLVED_COLUMN.WITH_SUGGESTION] A column"),
        (no_stream, "its query returns no stream"),
        (sorts, "Spark cannot run its query as a stream"),
    ],
)
def test_a_query_that_cannot_work_is_named_before_anything_runs(query: Any, problem: str) -> None:
    view = gate_view(query=query)
    with pytest.raises(ViewDeclarationError) as refused:
        computed(view, lambda *_: endless())
    assert problem in str(refused.value)
    assert 'view "gates"' in str(refused.value)


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        (of_today, "reads the clock (current_timestamp()), which is another time in a replay: use the columns time"),
        (with_the_time, "reads the clock (now())"),
        (of_this_month, "reads the clock (current_date())"),
        (since_a_query, "reads the clock (localtimestamp())"),
        (of_gates_of_this_hour, "reads the clock (now())"),
        (by_chance, "uses rand(), which differs each time that it is computed: use what depends on the columns only"),
        (named_by_chance, "uses uuid()"),
        (by_a_table_of_chance, "uses randn()"),
        (by_a_sampled_table, "takes a sample by chance"),
        (by_an_unsure_function, "uses <lambda>()"),
        (first_five, "takes only some rows of a stream (limit or offset), which depends on the order of their arrival"),
        (without_the_first, "takes only some rows of a stream"),
    ],
)
@pytest.mark.parametrize("final", [False, pytest.param(True, marks=pytest.mark.complete)])
def test_a_query_that_would_give_other_rows_in_a_replay_is_refused(query: Any, problem: str, *, final: bool) -> None:
    with pytest.raises(ViewDeclarationError) as refused:
        computed(gate_view(query=query, final=final), lambda *_: endless())
    assert str(refused.value).startswith(f'view "gates": its query {problem}')


def numbered_gates(passed: DataFrame) -> DataFrame:
    return passed.select("id", f.col("gate").cast("bigint").alias("number"))


def divided_weights(passed: DataFrame) -> DataFrame:
    return passed.selectExpr("id", "weight div 0 as number")


@pytest.mark.complete
@pytest.mark.parametrize(
    ("query", "said", "place"),
    [
        (
            numbered_gates,
            '[CAST_INVALID_INPUT] The value \'a\' of the type "STRING" cannot be cast to "BIGINT"',
            f"{__file__}:{numbered_gates.__code__.co_firstlineno + 1}",
        ),
        (divided_weights, "[DIVIDE_BY_ZERO] Division by zero.", 'in "weight div 0"'),
    ],
)
def test_an_expression_that_fails_for_a_row_is_named_with_its_place(
    tmp_path: Path, query: Any, said: str, place: str
) -> None:
    """What is around it must not take its place."""
    view = gate_view(key="id", columns={"id": TEXT, "number": INTEGER}, query=query)
    with pytest.raises(StreamingQueryException) as failed:
        run(view, [[record_of(Report(1, "a", 1, START, START))]], tmp_path)
    found = reason(failed.value)
    assert found.startswith(said)
    assert found.endswith(f"({place})")


def next_of_gate(first: DataFrame, second: DataFrame) -> DataFrame:
    """Each report with the later ones of its gate in the next 10 s."""
    second = second.selectExpr("id as next", "gate as at", "time as later", "weight as heavier")
    pairs = first.join(second, f.expr("gate = at and later > time and later <= time + interval 10 seconds"))
    return pairs.selectExpr("id", "next", "heavier - weight as rise")


def next_of_itself(passed: DataFrame) -> DataFrame:
    return next_of_gate(passed, passed)


@pytest.mark.complete
@pytest.mark.parametrize(("query", "names"), [(next_of_gate, ("first", "second")), (next_of_itself, ("passed",))])
def test_a_stream_is_joined_with_itself(tmp_path: Path, query: Any, names: tuple[str, ...]) -> None:
    """As two sources, and as one that the query uses twice."""
    seconds = (0, 4, 5, 10, 15, 30)
    found = [
        Report(number, "ab"[number % 2], number**2, at, at)
        for number, at in enumerate(START + timedelta(seconds=each) for each in seconds)
    ]
    expected = {
        f"passed%2Fs{one.number % 3}%2F{one.number}/passed%2Fs{other.number % 3}%2F{other.number}": other.weight
        - one.weight
        for one in found
        for other in found
        if one.gate == other.gate and timedelta() < other.time - one.time <= timedelta(seconds=10)
    }
    assert len(expected) == 3
    view = gate_view(
        key=("id", "next"),
        columns={"id": TEXT, "next": TEXT, "rise": INTEGER},
        sources={name: observations(Passed, late_after="10m") for name in names},
        query=query,
        final=True,
    )
    for name, parts in (("once", [found]), ("each", [[each] for each in found])):
        ran = run(view, [[record_of(each) for each in part] for part in parts], tmp_path / name, 2)
        assert {key: row["rise"] for key, row in ran.rows.items()} == expected
        assert len(ran.sent) == len(expected)


def test_a_topic_of_many_partitions_is_read_by_few_tasks() -> None:
    """A task per partition costs more than the records of a batch."""
    settings = LogSettings(bootstrap="127.0.0.1:1", partitions=64)
    rows = computed(gate_view(), lambda _, source: kafka_records(session(), settings, source))
    (read,) = (node for node in nodes(analysed(rows)) if node.nodeName() == "Repartition")
    assert (read.shuffle(), read.numPartitions()) == (False, READERS_PER_CORE * (os.cpu_count() or 2))


def test_what_depends_on_columns_only_is_taken() -> None:
    assert computed(gate_view(query=by_a_short_table), lambda *_: endless()).isStreaming


def test_the_documented_views_are_taken(tmp_path: Path) -> None:
    _, blocks = documented()
    ordered, _ = (block for block in blocks if "in_order" in block)
    pattern, _ = (block for block in blocks if "pattern(" in block)
    for number, text in enumerate((blocks[0], ordered, pattern)):
        module = imported(f"documented_{number}", text, tmp_path)
        (view,) = (each for each in vars(module).values() if isinstance(each, StreamView))
        assert computed(view, lambda *_: endless()).isStreaming


@pytest.mark.complete
def test_the_documented_days_of_a_zone_have_23_24_or_25_hours_and_are_sent_once(tmp_path: Path) -> None:
    (block,) = (each for each in documented()[1] if "Metered" in each)
    module = imported("documented_days", block, tmp_path)
    registry = ObservationRegistry([("here", module.Metered)])
    zone = ZoneInfo(module.ZONE)

    def metered(number: int, at: datetime) -> Row:
        body = {"id": str(number), "source": "s", "time": at.isoformat(), "data": {"meter": "m", "wh": 1}}
        entry = to_entry(registry.read("metered", orjson.dumps(body)), at, None, None)
        return raw(entry.key, entry.value, at)

    hours, expected = [], Counter[str]()
    for first in (datetime(2026, 3, 28, 20, tzinfo=UTC), datetime(2026, 10, 24, 20, tzinfo=UTC)):
        for hour in range(56):  # a midnight, also to the millisecond, and those of the days around it
            for at in (first + timedelta(hours=hour), first + timedelta(hours=hour + 1, milliseconds=-1)):
                hours.append(at)
                expected[f"m/{at.astimezone(zone):%Y-%m-%d}"] += 1
    rows = [metered(number, at) for number, at in enumerate(hours)]
    last = hours[-1] + 2 * DAY
    ran = run(module.use_per_day, [*cut(rows, random.Random(3), 5), [beat(last)], [beat(last + DAY)]], tmp_path)
    assert {key: row["wh"] for key, row in ran.rows.items()} == expected
    assert (expected["m/2026-03-29"], expected["m/2026-10-25"], expected["m/2026-03-30"]) == (46, 50, 48)
    assert len(ran.sent) == len(ran.rows), "each once"
    assert (ran.counts[DROPPED], ran.dropped_by_watermark) == (0, 0)


def test_decimals_and_dates_of_a_query_are_exact_texts() -> None:
    columns = {"day": DATE, "amount": DECIMAL(38, 10), "small": DECIMAL(5, 2)}
    view = gate_view(key=("day", "amount"), key_name="row", columns=columns)
    rows = ", ".join(
        f"({day}, cast('{amount}' as decimal(38,10)), cast('{small}' as decimal(4,1)))"
        for day, amount, small in [
            ("date'2026-02-28'", "9" * 28 + ".0000000001", "-0.5"),
            ("date'0001-01-01'", "0", "123.4"),
            ("date'9999-12-31' + interval '1' day", "-0.0000000001", "0"),
        ]
    )
    frame = session().sql(f"select * from values {rows} as t(day, amount, small)")
    check_output(view, frame, streaming=False)
    made = numbered(row_texts(frame, view, "gates@1.g1", LogSettings()), 3, LogSettings()).collect()
    assert {row["key"].split("/", 1)[1]: orjson.loads(row["value"])["c"] for row in made} == {
        f"2026-02-28/{'9' * 28}.0000000001": {
            "_batch": 3, "day": "2026-02-28", "amount": "9" * 28 + ".0000000001", "small": "-0.50",
        },
        "0001-01-01/0.0000000000": {"_batch": 3, "day": "0001-01-01", "amount": "0.0000000000", "small": "123.40"},
        "%/-0.0000000001": {"_batch": 3, "amount": "-0.0000000001", "small": "0.00"},
    }  # fmt: skip
    wide = frame.selectExpr("day", "amount", "amount as small")
    with pytest.raises(ViewDeclarationError, match=r'"small" is declared DECIMAL\(5, 2\), .* returns decimal\(38,10\)'):
        check_output(view, wide, streaming=False)


def test_values_that_no_store_could_hold_are_null() -> None:
    columns = {"id": TEXT, "at": TIME, "place": POINT, "share": FLOAT}
    view = gate_view(key=("id", "at"), columns=columns)
    nan, infinity = "double('nan')", "double('-infinity')"
    values = [
        ("fine", "timestamp'9999-12-31 23:59:59.999'", (1, 2), 3),
        ("later", "timestamp_seconds(400000000000)", (nan, 2), nan),
        ("earlier", "timestamp_seconds(-80000000000)", (1, infinity), infinity),
        ("half", "null", ("null", 2), "null"),
        ("nothing", "null", None, "null"),
    ]
    place = "named_struct('lat', cast({} as double), 'lon', cast({} as double))"
    rows = ", ".join(
        f"('{id}', {at}, {'null' if where is None else place.format(*where)}, cast({share} as double))"
        for id, at, where, share in values
    )
    frame = session().sql(f"select * from values {rows} as t(id, at, place, share)")
    made = numbered(row_texts(frame, view, "gates@1.g1", LogSettings()), 3, LogSettings()).collect()
    found = {row["key"].split("/", 1)[1]: orjson.loads(row["value"])["c"] for row in made}
    last = "9999-12-31T23:59:59.999Z"
    assert found.pop(f"fine/{last}") == {
        "_batch": 3, "id": "fine", "at": last, "place": {"lat": 1, "lon": 2}, "share": 3,
    }  # fmt: skip
    assert found == {f"{id}/%": {"_batch": 3, "id": id} for id in ("later", "earlier", "half", "nothing")}
