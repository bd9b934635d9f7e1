"""Stream views over personal fields: ciphertexts pass through, live as in a test, and nothing computes with them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from headwater import (
    INTEGER,
    JSON,
    TEXT,
    Claim,
    Elasticsearch,
    Lookup,
    Postgres,
    StreamView,
    events,
    in_order,
    observations,
)
from headwater.projections.errors import ViewDeclarationError
from headwater.projections.spark.stream_queries.frames import source_frame
from headwater.projections.spark.stream_queries.query import computed
from headwater.projections.spark.stream_queries.query_checks import check_sealed
from headwater.projections.spark.stream_queries.realtime import placed_rows
from headwater.projections.testing.streams import KAFKA_RECORD_DDL
from headwater.testing import at, late_rows_of, rows_of
from tests.support.memory_vault import memory_vault
from tests.support.personal_customers import Contact, Paid, Registered
from tests.support.personal_visits import Companion, Rang, Visited, last_visitor, visits_at_once
from tests.support.spark_rows import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = pytest.mark.jvm

START = datetime(2026, 1, 1, tzinfo=UTC)
GRACE = Companion(person_id="V2", phone="+44-1")
FIRST = Visited(visitor_id="V1", room="R1", name="Ada", age=36, companions=[GRACE])
SECOND = Visited(visitor_id="V3", room="R1", name="Alan")


def test_rows_have_the_values_in_clear_in_a_test() -> None:
    with memory_vault():
        rows = rows_of(last_visitor, at(START, FIRST), at(START + timedelta(minutes=1), FIRST))
    assert rows["R1"] | {"companions": None} == {
        "room": "R1",
        "visits": 2,
        "visitor_id": "V1",
        "name": "Ada",
        "age": 36,
        "companions": None,
    }
    assert "+44-1" in str(rows["R1"]["companions"])


def test_late_records_have_their_data_in_clear() -> None:
    with memory_vault():
        rows = late_rows_of(last_visitor, at(START + timedelta(hours=2), SECOND), at(START, FIRST))
    (row,) = rows.values()
    assert "Ada" in str(row["data"])


def mails(registered: DataFrame, paid: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    once = registered.select("customer_id", "email", "contacts")
    each = paid.select(f.col("customer_id").alias("payer"), "id", "payee_name")
    return each.join(once, f.expr("payer = customer_id")).select("id", "email", "contacts", "payee_name")


def test_events_of_two_persons_are_joined_and_all_copied() -> None:
    view = StreamView(
        name="mails",
        key="id",
        columns={"id": TEXT, "email": TEXT, "contacts": JSON, "payee_name": TEXT},
        sealed=("email", "contacts", "payee_name"),
        sources={"registered": events(Registered, late_after="1h"), "paid": events(Paid, late_after="1h")},
        final=True,
        query=mails,
        stores=(Postgres(),),
    )
    ada = Registered(customer_id="C1", email="ada@x", name="Ada", contacts=[Contact(person_id="C3", phone="1")])
    paid = Paid(customer_id="C1", payee_id="C2", payer_name="Ada", payee_name="Grace", cents=3)
    with memory_vault():
        (row,) = rows_of(view, at(START, ada), at(START, paid)).values()
    assert (row["email"], row["payee_name"]) == ("ada@x", "Grace")
    assert '"phone":"1"' in str(row["contacts"]).replace(" ", "").replace("'", '"')


def endless() -> DataFrame:
    """Kafka's records, as a stream that nobody reads."""
    columns = (each.split(" ", 1) for each in KAFKA_RECORD_DDL.split(", "))
    texts = [f"cast(null as {kind}) as {name}" for name, kind in columns]
    return session().readStream.format("rate").load().selectExpr(*texts)


def named(visits: DataFrame) -> DataFrame:
    return visits.select("room", "name")


def declared(**more: Any) -> StreamView:
    given: dict[str, Any] = {
        "name": "declared",
        "key": "room",
        "columns": {"room": TEXT, "name": TEXT},
        "sources": {"visits": observations(Visited, Rang, late_after="1h")},
        "stores": (Postgres(),),
        "query": named,
        "sealed": ("name",),
    }
    return StreamView(**given | more)


def checked(query: Callable[[DataFrame], DataFrame], sealed: tuple[str, ...] = ("name",)) -> None:
    """Check the rows of a query, which may be a lambda here, as those of a view."""
    view = declared(sealed=sealed)
    source = view.sources["visits"]
    check_sealed(view, query(source_frame(endless(), "visits", source, view.admitted(source))))


def f() -> Any:
    from pyspark.sql import functions

    return functions


def chosen(column: Callable[[], Any]) -> Callable[[DataFrame], DataFrame]:
    """A query with a column of all visits in a room."""
    return lambda visits: visits.groupBy("room").agg(column().alias("name"))


COPIES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "select": lambda visits: visits.select("room", "name"),
    "rename": lambda visits: visits.withColumnRenamed("name", "n").selectExpr("room", "n as name"),
    "max of a struct": lambda visits: (
        visits.groupBy("room").agg(f().max(f().struct("time", "id", "name")).alias("last")).select("room", "last.name")
    ),
    "max_by": chosen(lambda: f().max_by("name", f().struct("time", "id"))),
    "min_by": chosen(lambda: f().min_by("name", "time")),
    "first": chosen(lambda: f().first("name")),
    "last": chosen(lambda: f().last("name")),
    "any_value": chosen(lambda: f().any_value("name")),
    "collect_set": chosen(lambda: f().to_json(f().collect_set("name"))),
    "collect_list of structs, sorted": lambda visits: (
        visits.groupBy("room")
        .agg(f().sort_array(f().collect_list(f().struct("time", "id", "name"))).alias("all"))
        .select("room", f().to_json(f().col("all.name")).alias("name"))
    ),
    "windows": lambda visits: (
        visits.groupBy("room", f().window("time", "1 hour", "10 minutes"))
        .agg(f().max_by("name", "time").alias("name"))
        .select("room", "name")
    ),
    "union": lambda visits: visits.select("room", "name").unionByName(visits.select("room", "name")),
    "duplicates": lambda visits: visits.dropDuplicates(["id", "time"]).select("room", "name"),
    "filter": lambda visits: visits.where("room <> 'R9'").select("room", "name"),
    "array": lambda visits: visits.select("room", f().to_json(f().array("name", "name")).alias("name")),
    "a filter within an aggregate": lambda visits: visits.groupBy("room").agg(
        f().expr("max_by(name, time) filter (where room <> 'R9')").alias("name")
    ),
}


@pytest.mark.parametrize("query", COPIES.values(), ids=COPIES)
def test_texts_may_be_copied(query: Callable[[DataFrame], DataFrame]) -> None:
    checked(query)


REFUSED: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "upper": (lambda visits: visits.select("room", f().upper("name").alias("name")), r'computes upper\(\) .* "name"'),
    "length": (chosen(lambda: f().max(f().length("name")).cast("string")), "computes cast"),
    "max": (chosen(lambda: f().max("name")), r"computes max\(\)"),
    "max of a struct that begins with it": (
        chosen(lambda: f().to_json(f().max(f().struct("name", "time")))),
        r"computes max\(\)",
    ),
    "max_by it": (chosen(lambda: f().max_by("room", "name")), r"computes max_by\(\)"),
    "count of it": (chosen(lambda: f().count("name").cast("string")), "computes cast"),
    "count distinct": (chosen(lambda: f().approx_count_distinct("name").cast("string")), "computes cast"),
    "concat": (lambda visits: visits.selectExpr("room", "concat(name, '!') as name"), r"computes concat\(\)"),
    "coalesce": (lambda visits: visits.selectExpr("room", "coalesce(name, 'x') as name"), r"computes coalesce\(\)"),
    "a condition": (lambda visits: visits.where("name = 'Ada'").select("room", "name"), "hold its ciphertext"),
    "a case": (lambda visits: visits.selectExpr("room", "if(name = 'Ada', name, null) as name"), r"computes if\(\)"),
    "a group": (lambda visits: visits.groupBy("name").agg(f().max("room").alias("room")), 'groups by .* "name"'),
    "a join": (
        lambda visits: visits.join(visits.sparkSession.createDataFrame([("Ada",)], ["n"]), f().expr("name = n")).select(
            "room", "name"
        ),
        "keys, conditions, windows and joins must be of plaintext fields",
    ),
    "duplicates": (lambda visits: visits.dropDuplicates(["name"]).select("room", "name"), "calls Deduplicate"),
    "distinct": (lambda visits: visits.select("room", "name").distinct(), "calls Deduplicate"),
    "a filter within an aggregate": (
        chosen(lambda: f().expr("max_by(name, time) filter (where name > '')")),
        "computes",
    ),
    "a query within a query": (
        lambda visits: visits.join(
            visits.select(f().col("room").alias("r"), f().col("name").alias("n")), f().expr("room = r and n < name")
        ).select("room", "name"),
        "plaintext fields",
    ),
    "transform": (
        lambda visits: visits.select("room", f().expr("to_json(transform(array(name), x -> upper(x)))").alias("name")),
        "computes",
    ),
    "a function of Python": (
        lambda visits: visits.mapInPandas(lambda frames: frames, visits.schema).select("room", "name"),
        "hands the personal field .* MapInPandas",
    ),
    "a function of Python for a value": (
        lambda visits: visits.select("room", f().udf(lambda name: name, "string")("name").alias("name")),
        "computes",
    ),
    "not as declared": (lambda visits: visits.selectExpr("room", "room as name"), "copies no personal field to it"),
}


@pytest.mark.parametrize(("query", "problem"), REFUSED.values(), ids=REFUSED)
def test_nothing_computes_with_texts(query: Callable[[DataFrame], DataFrame], problem: str) -> None:
    with pytest.raises(ViewDeclarationError, match=problem):
        checked(query)


def test_what_copies_a_personal_field_says_so() -> None:
    with pytest.raises(ViewDeclarationError, match=r'"name" has values of a personal field: add sealed=\("name",\)'):
        checked(lambda visits: visits.select("room", "name"), sealed=())
    with pytest.raises(ViewDeclarationError, match="must be in plaintext"):
        checked(lambda visits: visits.selectExpr("name as room", "name"))
    checked(lambda visits: visits.groupBy("room").agg(f().max("visitor_id").alias("name")), sealed=())


def in_sql(text: str) -> Callable[[DataFrame], DataFrame]:
    def query(visits: DataFrame) -> DataFrame:
        visits.createOrReplaceTempView("personal_visits")
        return visits.sparkSession.sql(text)

    return query


def test_queries_in_sql_are_followed_too() -> None:
    checked(in_sql("select v.room, max_by(v.name, v.time) as name from personal_visits v group by v.room"))
    checked(in_sql("select room, n as name from (select room, name as n from personal_visits)"))
    with pytest.raises(ViewDeclarationError, match=r"computes upper\(\)"):
        checked(in_sql("select room, upper(name) as name from personal_visits"))
    with pytest.raises(ViewDeclarationError, match="hands the personal field"):
        checked(in_sql("with v as (select room, name as n from personal_visits) select room, n as name from v"))
    clear = "with v as (select room, visitor_id as n from personal_visits) select room, n as name from v"
    checked(in_sql(clear), sealed=())
    with pytest.raises(ViewDeclarationError, match="plaintext fields"):
        checked(in_sql("select room, name from personal_visits where exists (select 1 from range(3) where id = name)"))


def counted(state: int | None, row: Any) -> tuple[int, list[dict[str, Any]]]:
    number = (state or 0) + 1
    return number, [{"room": row.room, "name": f"{number}"}]


def test_steps_in_order_get_rows_without_personal_fields() -> None:
    def query(visits: DataFrame) -> DataFrame:
        columns = {"room": TEXT, "name": TEXT}
        return in_order(visits, key="room", step=counted, columns=columns, forget_after="30d")

    with pytest.raises(ViewDeclarationError, match="leave it out with select, as before in_order"):
        checked(query)
    checked(lambda visits: query(visits.select("room", "id", "time", "recordedtime")), sealed=())


def shouted(visits: DataFrame) -> DataFrame:
    return visits.select("id", f().upper("name").alias("name"))


def with_ids(visits: DataFrame) -> DataFrame:
    return visits.where("room <> 'R9'").select("id", "name")


def test_the_queries_of_all_kinds_of_views_are_checked() -> None:
    ids = {"key": "id", "columns": {"id": TEXT, "name": TEXT}}
    with pytest.raises(ViewDeclarationError, match=r"computes upper\(\)"):
        computed(declared(**ids, query=shouted), lambda *_: endless())
    computed(declared(**ids, query=with_ids), lambda *_: endless())
    with pytest.raises(ViewDeclarationError, match=r"computes upper\(\)"):
        placed_rows(endless(), declared(**ids, query=shouted, realtime=True))
    assert set(placed_rows(endless(), declared(**ids, query=with_ids, realtime=True)).columns) >= {"id", "name"}
    assert set(placed_rows(endless(), visits_at_once).columns) >= {"id", "name"}


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"sealed": "name"}, "is no tuple"),
        ({"sealed": ("street",)}, 'sealed names "street", which is not among its columns'),
        ({"key": "name"}, 'its key column "name" is sealed'),
        ({"columns": {"room": TEXT, "name": INTEGER}}, "declare it as TEXT, JSON"),
        ({"sources": {"visits": observations(Rang, late_after="1h")}}, "no class of its sources has a personal field"),
        ({"stores": (Postgres(indexes=(("name",),)),)}, "are encrypted"),
        ({"stores": (Postgres(), Elasticsearch(text=("name",)))}, "are encrypted"),
        ({"readable_by": {"name": Claim("sub")}}, "personal"),
        ({"lookups": (Lookup("others", on="name", columns={"x": "y"}),)}, "personal"),
    ],
)
def test_what_stores_and_callers_cannot_do_is_refused_when_it_is_declared(more: dict[str, Any], problem: str) -> None:
    with pytest.raises(ViewDeclarationError, match=problem):
        declared(**more)


def test_the_declaration_without_personal_fields_is_as_before() -> None:
    without = declared(sealed=())
    assert (without.personal, without.declaration) == (frozenset(), declared().declaration)
