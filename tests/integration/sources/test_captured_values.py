"""What becomes of the values of a table that are long, masked or too large, of keys, and of a changed table."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from datetime import date
from decimal import Decimal
from enum import StrEnum
from functools import partial
from typing import Annotated, Any
from uuid import UUID

import psycopg
import pytest
from pydantic import Field

from headwater.compose.stack import Stack
from headwater.eventlog.capturing import Captured, Hashed, Source, Truncated, sweeping
from headwater.eventlog.capturing.changes import Operation
from headwater.eventlog.capturing.errors import UnreadableChange
from headwater.eventlog.capturing.kafka_connect import KafkaConnect
from headwater.eventlog.capturing.operating import Operator
from headwater.eventlog.capturing.sweeping import IncompleteRows
from headwater.eventlog.kafka.log import KafkaLog
from tests.integration.sources.captured import OWN_SETTINGS, Connector, Record, Topic, captured
from tests.support.seeds import examples
from tests.support.waiting import BOUND_S, eventually


class Mood(StrEnum):
    GOOD = "good"
    BAD = "bad"


class Long(Captured, table="public.long", key="id"):
    id: int
    number: int
    text: str | None
    bytes: bytes | None
    document: Any
    source: Any
    amount: Decimal | None
    words: str | None
    texts: list[str] | None
    names: list[str] | None
    numbers: list[int] | None
    bigs: list[int] | None


class LongFull(Captured, table="public.long_full", key="id"):
    id: int
    number: int
    text: str | None
    bytes: bytes | None
    document: Any
    source: Any
    amount: Decimal | None
    words: str | None
    texts: list[str] | None
    names: list[str] | None
    numbers: list[int] | None
    bigs: list[int] | None
    hashed: Annotated[str | None, Hashed()]
    short: Annotated[str | None, Truncated(5)]
    middle: Annotated[str | None, Truncated(100)]
    smalls: list[int] | None
    ratios: list[float] | None
    amounts: list[Decimal] | None
    flags: list[bool] | None
    codes: list[UUID] | None
    days: list[date] | None
    moods: list[Mood] | None


class Masked(Captured, table="public.masked", key="id"):
    id: int
    number: int
    hashed: Annotated[str, Hashed()]
    short: Annotated[str, Truncated(5)]
    middle: Annotated[str, Truncated(100)]


class Changing(Captured, table="public.changing", key="id"):
    id: int
    small: int
    word: str | None = None
    later: int | None = None


class Short(Captured, table="public.short", key="id"):
    id: int
    one: Annotated[str, Truncated(1)]
    two: Annotated[str, Truncated(2)]
    number: int


class Dollar(Captured, table="public.dollar", key=("a$b", "c")):
    a: Annotated[int, Field(alias="a$b")]
    c: int


class Wide(Captured, table="public.wide", key="id"):
    id: int
    note: str | None


class Many(Captured, table="public.many", key="id"):
    id: int
    number: int


STATEMENTS = (
    *OWN_SETTINGS,
    "CREATE TYPE mood AS ENUM ('good', 'bad')",
    """CREATE TABLE long (id int PRIMARY KEY, number int, text text, bytes bytea, document jsonb, source json,
       amount numeric, words tsvector, texts text[], names varchar(40000)[], numbers int[], bigs bigint[])""",
    "CREATE TABLE long_full (LIKE long INCLUDING ALL)",
    """ALTER TABLE long_full REPLICA IDENTITY FULL, ADD hashed text, ADD short text, ADD middle text,
       ADD smalls smallint[], ADD ratios float8[], ADD amounts numeric[], ADD flags bool[], ADD codes uuid[],
       ADD days date[], ADD moods mood[]""",
    "CREATE TABLE masked (id int PRIMARY KEY, number int, hashed text, short text, middle text, secret text)",
    "CREATE TABLE changing (id int PRIMARY KEY, small int NOT NULL, word text)",
    "CREATE TABLE short (id int PRIMARY KEY, one text NOT NULL, two text NOT NULL, number int NOT NULL)",
    "ALTER TABLE short REPLICA IDENTITY FULL",
    "CREATE TABLE dollar (a$b int, c int, PRIMARY KEY (a$b, c))",
    "CREATE TABLE wide (id int PRIMARY KEY, note text)",
    "ALTER TABLE wide REPLICA IDENTITY FULL",
    "CREATE TABLE many (id int PRIMARY KEY, number int NOT NULL)",
)
SOURCE = Source(name="things", tables=(Long, LongFull, Masked, Changing, Short, Dollar, Wide, Many))

MANY = examples(20_000)
"""Rows of one transaction: more than a connector has in memory, or sends to Kafka, at once."""


@pytest.fixture(scope="module")
def connector(servers: Stack) -> Iterator[Connector]:
    with captured(servers, SOURCE, STATEMENTS) as made:
        made.put()
        made.wait_read()
        yield made


@pytest.fixture
def connection(connector: Connector) -> Iterator[psycopg.Connection[Any]]:
    with connector.connect() as opened:
        yield opened


def read(topic: Topic, count: int) -> list[Record]:
    """The topic's records, once there are this many."""
    eventually(lambda: len(topic.read()) >= count, f"{count} records come")
    return topic.records


@pytest.mark.complete
def test_messages_of_other_programs_are_not_captured(connector: Connector, connection: psycopg.Connection[Any]) -> None:
    """One that is larger than a record may be would stop the connector for good."""
    for prefix in ("other", "headwater.command", "headwaterX"):
        connection.execute("SELECT pg_logical_emit_message(false, %s, repeat('x', 5000000))", (prefix,))
    connection.execute("INSERT INTO short VALUES (9, 'a', 'a', 0)")
    read(connector.topic(Short), 1)
    connector.wait_running()


@pytest.mark.complete
def test_capturing_goes_on_after_a_row_that_is_too_large_once_its_column_is_shortened(
    connector: Connector, connection: psycopg.Connection[Any]
) -> None:
    topic = connector.topic(Wide)
    connection.execute("INSERT INTO wide VALUES (1, 'before')")
    eventually(lambda: len(topic.read()) == 1, "the row before it comes")
    with connection.transaction():
        connection.execute("INSERT INTO wide VALUES (2, 'with it')")
        connection.execute("INSERT INTO wide SELECT 3, string_agg(md5(n::text), '') FROM generate_series(1, 150000) n")
    connection.execute("INSERT INTO wide VALUES (4, 'after')")
    eventually(lambda: connector.task()["state"] == "FAILED", "it stops")
    with closing(KafkaConnect(connector.settings.connect)) as connect:
        state = connect.state(connector.names.connector)
    assert state is not None
    assert "a row needs more than 4,194,304 bytes: shorten a long column with Truncated(…)" in state.error
    connector.put(**{"column_truncate_to_20_chars": "public\\.wide\\.note"})
    connector.wait_running()
    eventually(lambda: "4" in topic.rows or not topic.read(), "it goes on")
    assert {key: len(row["note"]) for key, row in topic.rows.items()} == {"1": 6, "2": 7, "3": 20, "4": 5}
    assert not topic.twice()
    connector.put()
    connector.wait_running()


@pytest.mark.complete
def test_capturing_goes_on_after_a_message_that_is_too_large_once_it_is_left_out(
    connector: Connector, connection: psycopg.Connection[Any]
) -> None:
    topic = connector.topic(Wide)
    connector.put(message_prefix_include_list="headwater,headwater\\.command")
    connector.wait_running()
    eventually(lambda: _stopped(connector, connection), "it stops", every_s=1)
    connection.execute("INSERT INTO wide VALUES (5, 'after')")
    connector.put()
    connector.wait_running()
    eventually(lambda: topic.read() and "5" in topic.rows, "it goes on")


def _stopped(connector: Connector, connection: psycopg.Connection[Any]) -> bool:
    """Whether a message has stopped it; else sends one, as the task before may have passed over those until now."""
    if connector.task()["state"] == "FAILED":
        return True
    connection.execute("SELECT pg_logical_emit_message(true, 'headwater.command', repeat('x', 5000000))")
    return False


@pytest.mark.complete
def test_a_shortened_value_that_begins_like_a_mark_of_ours_is_a_value(
    connector: Connector, connection: psycopg.Connection[Any]
) -> None:
    topic = connector.topic(Short)
    connection.execute("INSERT INTO short VALUES (1, 'apple', 'apple', 0)")
    connection.execute("UPDATE short SET one = '_x', two = '__init__'")
    connection.execute("UPDATE short SET number = 1")
    connector.wait_equal(topic)
    assert topic.rows["1"] == {"id": 1, "one": "_", "two": "__", "number": 1}
    for record in topic.records:
        assert record.change.unchanged == ()


@pytest.mark.complete
def test_each_column_of_a_key_counts_whatever_its_name(
    connector: Connector, connection: psycopg.Connection[Any]
) -> None:
    topic = connector.topic(Dollar)
    connection.execute("INSERT INTO dollar VALUES (1, 1), (2, 1)")
    eventually(lambda: len(topic.read()) == 2, "both rows come")
    assert topic.rows.keys() == {"[1,1]", "[2,1]"}


def long_text() -> str:
    return random.randbytes(6_000).hex()


def _items(item: str, count: int = 3_000) -> str:
    return f"(SELECT array_agg({item}) FROM generate_series(1, {count}) n)"


LONG: dict[str, str] = {
    "text": "'{long}'",
    "bytes": "decode('{long}', 'hex')",
    "document": "jsonb_build_object('a', '{long}')",
    "source": "json_build_object('a', '{long}')",
    "amount": "(SELECT string_agg((1 + random() * 8)::int::text, '') FROM generate_series(1, 16000))::numeric",
    "words": "(SELECT string_agg(md5(random()::text), ' ')::tsvector FROM generate_series(1, 500))",
    "texts": "ARRAY['{long}', 'b', NULL]",
    "names": "ARRAY['{long}', 'b']",
    "numbers": _items("(random() * 1000000)::int"),
    "bigs": _items("(random() * 1000000000000)::bigint"),
}
"""Columns of Long, each with SQL for a value that PostgreSQL stores apart."""
LONG_FULL: dict[str, str] = {
    **LONG,
    **dict.fromkeys(("hashed", "short", "middle"), "'{long}'"),
    "smalls": _items("(random() * 30000)::smallint", 5_000),
    "ratios": _items("random()"),
    "amounts": _items("random()::numeric"),
    "flags": _items("random() < 0.5", 30_000),
    "codes": _items("gen_random_uuid()", 500),
    "days": _items("date '2020-01-01' + (random() * 3000)::int"),
    "moods": _items("(ARRAY['good', 'bad'])[1 + (random())::int]::mood", 9_000),
}


def insert(connection: psycopg.Connection[Any], table: type[Captured], key: int, long: dict[str, str]) -> None:
    values = ", ".join(each.format(long=long_text()) for each in long.values())
    connection.execute(
        f"INSERT INTO {table.table} (id, number, {', '.join(long)}) VALUES ({key}, 1, {values})".encode()
    )


@pytest.mark.parametrize(
    ("table", "long"), [(Long, LONG), pytest.param(LongFull, LONG_FULL, marks=pytest.mark.complete)]
)
def test_the_last_record_of_a_row_has_the_long_values_that_updates_left_unchanged(
    connector: Connector, connection: psycopg.Connection[Any], table: type[Captured], long: dict[str, str]
) -> None:
    """Compaction leaves no other; values that need the old row are only in the table with REPLICA IDENTITY FULL."""
    topic = connector.topic(table)
    for key in (1, 2, 3):
        insert(connection, table, key, long)
    connection.execute(f"UPDATE {table.table} SET number = 2")
    connector.wait_equal(topic)
    assert topic.compacted() == topic.comparable()
    updates = [record.change for record in topic.records if record.change.operation is Operation.UPDATE]
    assert len(updates) == 3
    for update in updates:
        assert update.unchanged == ()

    connection.execute(f"UPDATE {table.table} SET id = 4 WHERE id = 2")
    connection.execute(f"UPDATE {table.table} SET number = 3")
    connection.execute(f"DELETE FROM {table.table} WHERE id = 1")
    connector.wait_equal(topic)
    assert topic.compacted() == topic.comparable()
    assert topic.compacted().keys() == {"3", "4"}
    connection.execute(f"DELETE FROM {table.table}")


def test_a_masked_value_is_never_read_again(connector: Connector, connection: psycopg.Connection[Any]) -> None:
    """It would pass no mask. `apply` refuses this table until it has REPLICA IDENTITY FULL."""
    topic = connector.topic(Masked)
    secrets = [long_text() for _ in range(4)]
    connection.execute("INSERT INTO masked VALUES (1, 1, %s, %s, %s, %s)", secrets)
    connection.execute("UPDATE masked SET number = 2")
    update = read(topic, 2)[1]
    assert update.change.unchanged == ("short", "middle")
    assert update.value["after"].keys() == set(Masked.columns)
    connection.execute("ALTER TABLE masked REPLICA IDENTITY FULL")
    connection.execute("UPDATE masked SET number = 3")
    connector.wait_equal(topic)
    assert topic.compacted() == topic.comparable()
    for record in topic.records:
        sent = repr(record.value)
        assert not [secret for secret in secrets if secret[:101] in sent]


@pytest.mark.complete
def test_rows_that_are_gone_when_their_long_values_are_read_again_stop_nothing(
    connector: Connector, connection: psycopg.Connection[Any]
) -> None:
    topic = connector.topic(Long)
    for key in (11, 12, 13):
        insert(connection, Long, key, LONG)
    connector.wait_equal(topic)
    connector.stop()  # PostgreSQL sends a transaction a moment before others see its rows
    with connection.transaction():
        connection.execute("UPDATE long SET number = 2 WHERE id > 10")
        connection.execute("DELETE FROM long WHERE id = 11")
        connection.execute("UPDATE long SET id = 14 WHERE id = 12")
        connection.execute("UPDATE long SET text = 'new' WHERE id = 13")
    connector.ask("PUT", "resume")
    connector.wait_equal(topic)
    assert topic.compacted() == topic.comparable()
    changes = [record.change for record in topic.records if record.change.key in {"11", "12", "13", "14"}]
    assert {change.key for change in changes if change.unchanged} == {"11", "12"}, "or nothing was gone"
    newer = next(change for change in changes if change.key == "13" and change.operation is Operation.UPDATE)
    assert newer.row is not None
    assert newer.row["text"] == "new", "the value is the one at the time of reading, which its own record repeats"
    connector.wait_running()
    connection.execute("DELETE FROM long")


@pytest.mark.complete
@pytest.mark.soak
def test_a_worker_that_is_killed_while_it_reads_long_values_again_repeats_and_loses_nothing(
    servers: Stack, connector: Connector, connection: psycopg.Connection[Any]
) -> None:
    topic = connector.topic(Long)
    texts = "SELECT string_agg(md5(concat(n, ' ', part)), '') FROM generate_series(1, 120) part"
    connection.execute(f"INSERT INTO long (id, number, text) SELECT n, 1, ({texts}) FROM generate_series(100, 3100) n")
    for number in range(2, 2 + examples(1)):
        before = len(topic.read())
        connection.execute(f"UPDATE long SET number = {number}")
        eventually(partial(topic.has_more_than, before), "it goes on")
        servers["connect"].kill()
        connection.execute("UPDATE long SET number = -number WHERE id % 2 = 0")
        servers["connect"].wait_healthy()
    connector.wait_equal(topic)
    assert topic.compacted() == topic.comparable()
    connection.execute("DELETE FROM long")


READING = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = %s AND query LIKE 'SELECT %%"text"%% FROM "public"."long" WHERE %%'"""


@pytest.mark.complete
def test_sweep_reads_rows_again_whose_long_values_could_not_be_read(
    connector: Connector, connection: psycopg.Connection[Any]
) -> None:
    """Debezium 3.6 goes on without them if it loses the connection by which it reads them."""
    topic = connector.topic(Long)
    for key in (21, 22):
        insert(connection, Long, key, LONG)
    connection.execute("UPDATE long SET number = 2 WHERE id > 20")
    connector.wait_equal(topic)
    assert topic.compacted() == topic.comparable()
    with psycopg.connect(connector.stack.endpoints.postgres, autocommit=True) as server:
        assert server.execute(READING, (connector.log.environment,)).fetchall() == [(True,)]
    connection.execute("UPDATE long SET number = 3 WHERE id = 22")
    connector.wait_equal(topic)
    assert topic.compacted()["22"].keys() == {"id", "number"}, "or nothing was lost"
    connector.sweep()
    eventually(lambda: topic.read() and topic.compacted() == topic.comparable(), "the row is whole")
    assert [record.change.key for record in topic.records if record.change.operation is Operation.SNAPSHOT] == ["22"]
    connection.execute("UPDATE long SET number = 4")
    connector.wait_equal(topic)
    assert topic.compacted() == topic.comparable()


def test_the_watch_finds_rows_whose_long_values_could_not_be_read(
    connector: Connector, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = connector.topic(Long)
    for key in (31, 32, 33):
        insert(connection, Long, key, LONG)
    connection.execute("UPDATE long SET number = 2 WHERE id > 30")
    connector.wait_equal(topic)
    with psycopg.connect(connector.stack.endpoints.postgres, autocommit=True) as server:
        server.execute(READING, (connector.log.environment,))
    connection.execute("UPDATE long SET number = 3 WHERE id > 31")
    connection.execute("DELETE FROM long WHERE id = 33")
    connector.wait_equal(topic)
    assert topic.compacted()["32"].keys() == {"id", "number"}, "or nothing was lost"
    with (
        Operator(connector.source, connector.settings, KafkaConnect(connector.settings.connect), print) as operator,
        closing(KafkaLog(connector.log)) as log,
    ):
        monkeypatch.setattr(sweeping, "LOOK_S", 0.0)
        rows = IncompleteRows(log, connector.names)
        assert [rows.find([Long]) for _ in range(3)] == [{}] * 3, "nothing is known before all is read"
        assert rows.is_behind
        monkeypatch.setattr(sweeping, "LOOK_S", BOUND_S)
        for _ in range(2):  # the second one as after a restart of the watch
            rows = IncompleteRows(log, connector.names)
            assert rows.find([Long]) == {}, "a whole record may follow"
        assert rows.find([Long]) == {Long: [["32"]]}
        (again,) = operator.read_incomplete(rows, BOUND_S)
        assert again == (
            'rows of table "public.long" that lacked long values are read again (1): '
            "to prevent it, run ALTER TABLE public.long REPLICA IDENTITY FULL"
        )
        eventually(lambda: topic.read() and topic.compacted() == topic.comparable(), "the row is whole")
        assert [operator.read_incomplete(rows, BOUND_S) for _ in range(2)] == [[], []]
        assert rows.find([Long]) == {}
    assert [record.change.key for record in topic.records if record.change.operation is Operation.SNAPSHOT][-1] == "32"
    assert connector.task()["state"] == "RUNNING"


def test_a_deleted_row_leaves_a_tombstone(connector: Connector, connection: psycopg.Connection[Any]) -> None:
    topic = connector.topic(Changing)
    connection.execute("INSERT INTO changing VALUES (1, 0, 'gone')")
    connection.execute("DELETE FROM changing")
    eventually(lambda: topic.read() and len(topic.records) == 3, "all records are there")
    changes = [record.change.operation for record in topic.records]
    assert changes == [Operation.INSERT, Operation.DELETE, Operation.TOMBSTONE]
    assert topic.records[-1].value is None


def transaction(record: Record) -> int | str:
    """The number of the transaction that changed the row."""
    assert record.change.position is not None
    return record.change.position.transaction


@pytest.mark.complete
@pytest.mark.soak
def test_a_transaction_of_many_rows_is_one(connector: Connector, connection: psycopg.Connection[Any]) -> None:
    topic = connector.topic(Many)
    connection.execute(f"INSERT INTO many SELECT n, n FROM generate_series(1, {MANY}) n")
    eventually(lambda: len(topic.read()) >= MANY, "all rows come", every_s=1.0)
    connector.wait_equal(topic)
    assert len({transaction(record) for record in topic.records}) == 1


@pytest.mark.complete
def test_columns_that_change_while_it_runs(connector: Connector, connection: psycopg.Connection[Any]) -> None:
    """Old records stay readable; a column that the class lacks is ignored, and one that it needs is missed by name."""
    topic = connector.topic(Changing)
    for statement in (
        "INSERT INTO changing VALUES (1, 1, 'before')",
        "ALTER TABLE changing ADD COLUMN later int, ADD COLUMN ignored text",
        "INSERT INTO changing VALUES (2, 2, 'added', 22, 'x')",
        "ALTER TABLE changing ALTER COLUMN small TYPE bigint",
        "INSERT INTO changing VALUES (3, 3000000000, 'widened')",
    ):
        connection.execute(statement)
    connector.wait_equal(topic)
    assert "ignored" not in topic.records[-1].value["after"]

    for statement in (
        "ALTER TABLE changing RENAME COLUMN word TO renamed",
        "INSERT INTO changing VALUES (4, 4, 'renamed')",
        "ALTER TABLE changing DROP COLUMN renamed",
        "INSERT INTO changing VALUES (5, 5)",
    ):
        connection.execute(statement)
    eventually(lambda: topic.read() and {"4", "5"} <= topic.rows.keys(), "rows without the optional column come")
    assert [topic.rows[key]["word"] for key in ("1", "4", "5")] == ["before", None, None]

    connection.execute("ALTER TABLE changing DROP COLUMN small")
    connection.execute("INSERT INTO changing VALUES (6)")
    with pytest.raises(UnreadableChange, match=r'public\.changing.*"small"'):
        eventually(lambda: topic.read() and None, "the record comes")
    connector.wait_running()
