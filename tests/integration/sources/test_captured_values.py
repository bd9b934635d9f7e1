"""What becomes of the values of a table: of every type, of values stored apart, of keys, and of a changed table."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any
from uuid import UUID

import psycopg
import pytest

from compose.stack import Stack
from eventlog.capturing import Captured, Source
from eventlog.capturing.changes import Operation
from eventlog.capturing.errors import UnreadableChange
from tests.integration.sources.captured import Connector, Record, Topic, captured
from tests.waiting import eventually


class Mood(StrEnum):
    GOOD = "good"
    BAD = "bad"


class Typed(Captured, table="public.typed", key="id"):
    id: int
    numeric: Decimal | None
    double: float | None
    local: datetime | None
    moment: datetime | None
    day: date | None
    clock: time | None
    period: timedelta | None
    document: Any
    texts: list[str] | None
    numbers: list[int] | None
    amounts: list[Decimal] | None
    code: UUID | None
    bytes: bytes | None
    mood: Mood | None
    big: int | None
    flag: bool | None
    letters: str | None


class Long(Captured, table="public.long", key="id"):
    id: int
    number: int
    text: str | None
    bytes: bytes | None
    document: Any
    texts: list[str] | None


class LongFull(Captured, table="public.long_full", key="id"):
    id: int
    number: int
    text: str | None
    bytes: bytes | None
    document: Any
    texts: list[str] | None


class Changing(Captured, table="public.changing", key="id"):
    id: int
    small: int
    word: str | None = None
    later: int | None = None


class Many(Captured, table="public.many", key="id"):
    id: int
    number: int


STATEMENTS = (
    "CREATE TYPE mood AS ENUM ('good', 'bad')",
    """CREATE TABLE typed (id int PRIMARY KEY, numeric numeric, double float8, local timestamp, moment timestamptz,
       day date, clock time, period interval, document jsonb, texts text[], numbers int[], amounts numeric[], code uuid,
       bytes bytea, mood mood, big bigint, flag boolean, letters char(3))""",
    "CREATE TABLE long (id int PRIMARY KEY, number int, text text, bytes bytea, document jsonb, texts text[])",
    "CREATE TABLE long_full (LIKE long INCLUDING ALL)",
    "ALTER TABLE long_full REPLICA IDENTITY FULL",
    "CREATE TABLE changing (id int PRIMARY KEY, small int NOT NULL, word text)",
    "CREATE TABLE many (id int PRIMARY KEY, number int NOT NULL)",
)
SOURCE = Source(name="things", tables=(Typed, Long, LongFull, Changing, Many))

MANY = 100_000
LONG_NUMBER = "123456789012345678901234567890.12345678901234567890"
VALUES: list[tuple[str, str, Any]] = [
    ("numeric", "1.50", "1.50"),
    (
        "numeric",
        "123456789012345678901234567890.12345678901234567890",
        "123456789012345678901234567890.12345678901234567890",
    ),
    ("numeric", "NaN", "NAN"),
    ("numeric", "Infinity", "POSITIVE_INFINITY"),
    ("numeric", "-Infinity", "NEGATIVE_INFINITY"),
    ("double", "1e300", 1e300),
    ("double", "NaN", "NaN"),
    ("double", "Infinity", "Infinity"),
    ("double", "-Infinity", "-Infinity"),
    ("local", "2024-02-03 04:05:06.5", "2024-02-03T04:05:06.5Z"),
    ("local", "infinity", "+294247-01-10T04:00:25.2Z"),
    ("local", "-infinity", "-290308-12-21T19:59:27.6Z"),
    ("local", "0044-03-15 BC", "-0043-03-15T00:00:00Z"),
    ("moment", "2024-02-03 04:05:06.5+02", "2024-02-03T02:05:06.500000Z"),
    ("moment", "infinity", "infinity"),
    ("moment", "-infinity", "-infinity"),
    ("moment", "294276-12-31 00:00+00", "+294276-12-31T00:00:00.000000Z"),
    ("day", "2024-02-03", "2024-02-03Z"),
    ("day", "infinity", "-5877611-06-21Z"),
    ("day", "-infinity", "-5877611-06-22Z"),
    ("clock", "04:05:06.123456", "04:05:06.123456Z"),
    ("clock", "24:00", "00:00:00Z"),
    ("period", "1 year 2 mons 3 days 04:05:06.78", "P1Y2M3DT4H5M6.78S"),
    ("period", "-1 mons +2 days -00:00:00.5", "P0Y-1M2DT0H0M-0.5S"),
    ("period", "infinity", "P0Y0M0DT0H0M0S"),
    ("document", '{"a": [1, 2.0, null]}', '{"a": [1, 2.0, null]}'),
    ("document", "null", "null"),
    ("texts", '{a,NULL,"b,c",""}', ["a", None, "b,c", ""]),
    ("numbers", "{{1,2},{3,4}}", [None, None]),
    ("numbers", "{1,NULL}", [1, None]),
    ("amounts", "{1.50,2}", ["1.50", "2"]),
    ("amounts", "{1.50,NaN}", None),
    ("code", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ("bytes", "\\x00ff", "AP8="),
    ("bytes", "", ""),
    ("mood", "good", "good"),
    ("big", "9223372036854775807", 9223372036854775807),
    ("flag", "true", True),
    ("letters", "a", "a  "),
]
"""Column, value in PostgreSQL, and what Debezium writes. Some values are lost: the table in the docs says which."""


@pytest.fixture(scope="module")
def connector(servers: Stack) -> Iterator[Connector]:
    with captured(servers, SOURCE, STATEMENTS) as made:
        made.put()
        made.wait_running()
        yield made


@pytest.fixture
def connection(connector: Connector) -> Iterator[psycopg.Connection[Any]]:
    with connector.connect() as opened:
        yield opened


def read(topic: Topic, count: int) -> list[Record]:
    """The topic's records, once there are this many."""
    eventually(lambda: len(topic.read()) >= count, f"{count} records come")
    return topic.records


def test_every_type(connector: Connector, connection: psycopg.Connection[Any]) -> None:
    for number, (column, value, _) in enumerate(VALUES):
        connection.execute(f"INSERT INTO typed (id, {column}) VALUES (%s, %s)", (number, value))
    records = read(connector.topic(Typed), len(VALUES))
    rows = {record.key["id"]: record.value["after"] for record in records}
    found = [(column, value, rows[number][column]) for number, (column, value, _) in enumerate(VALUES)]
    assert found == VALUES
    for number, (column, _, _) in enumerate(VALUES):  # every other column is NULL
        assert {name for name, value in rows[number].items() if value is not None} <= {"id", column}


def long_text() -> str:
    return random.randbytes(6_000).hex()


@pytest.mark.parametrize("table", [Long, LongFull])
def test_long_values_that_an_update_does_not_change(
    connector: Connector, connection: psycopg.Connection[Any], table: type[Captured]
) -> None:
    """They are neither lost nor replaced; in a row with a new key, they are known only with REPLICA IDENTITY FULL."""
    topic = connector.topic(table)
    connection.execute(
        f"INSERT INTO {table.table} VALUES (1, 1, %s, %s, jsonb_build_object('a', %s::text), ARRAY[%s, 'b'])",
        (long_text(), random.randbytes(6_000), long_text(), long_text()),
    )
    connection.execute(f"UPDATE {table.table} SET number = 2")
    connector.wait_equal(topic)
    (update,) = [each.change for each in topic.records if each.change.operation is Operation.UPDATE]
    long = ("text", "bytes", "document", "texts")
    assert update.unchanged == (() if table is LongFull else long)

    connection.execute(f"UPDATE {table.table} SET id = 2")
    if table is LongFull:
        connector.wait_equal(topic)
    else:
        eventually(lambda: topic.read() and list(topic.rows) == ["2"], "the row has its new key")
        assert topic.rows["2"] == {"id": 2, "number": 2}  # no record has the long values: nothing is better than wrong


def test_a_deleted_row_leaves_a_tombstone(connector: Connector, connection: psycopg.Connection[Any]) -> None:
    topic = connector.topic(Changing)
    connection.execute("INSERT INTO changing VALUES (1, 0, 'gone')")
    connection.execute("DELETE FROM changing")
    eventually(lambda: topic.read() and len(topic.records) == 3, "all records are there")
    changes = [record.change.operation for record in topic.records]
    assert changes == [Operation.INSERT, Operation.DELETE, Operation.TOMBSTONE]
    assert topic.records[-1].value is None


def test_a_transaction_of_100_000_rows(connector: Connector, connection: psycopg.Connection[Any]) -> None:
    topic = connector.topic(Many)
    connection.execute(f"INSERT INTO many SELECT n, n FROM generate_series(1, {MANY}) n")
    eventually(lambda: len(topic.read()) >= MANY, "all rows come", every_s=1.0)
    connector.wait_equal(topic)
    assert len({each.change.position.transaction for each in topic.records}) == 1


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
    assert connector.task()["state"] == "RUNNING"


def test_truncate_is_not_captured(connector: Connector, connection: psycopg.Connection[Any]) -> None:
    """Debezium's record of it has no key, and a compacted topic refuses it: the rows stay, and the connector runs."""
    topic = connector.topic(LongFull)
    connection.execute("INSERT INTO long_full (id, number) VALUES (10, 0)")
    connection.execute("TRUNCATE long_full")
    connection.execute("INSERT INTO long_full (id, number) VALUES (11, 0)")
    eventually(lambda: topic.read() and "11" in topic.rows, "the row after it comes")
    assert "10" in topic.rows
    assert connector.task()["state"] == "RUNNING"
