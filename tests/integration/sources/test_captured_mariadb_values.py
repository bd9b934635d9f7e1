"""Types of MariaDB with edge values: read by a snapshot, from the log, in chunks, and compared by `sweep`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing
from datetime import date, datetime, time
from decimal import Decimal
from enum import StrEnum
from typing import Any
from uuid import UUID

import pymysql
import pytest

from headwater.compose.stack import Stack
from headwater.eventlog.capturing import Captured, Source
from headwater.eventlog.capturing.connector import connector_config
from headwater.eventlog.capturing.kafka_connect import KafkaConnect
from headwater.eventlog.capturing.naming import SourceNames, source_topics
from headwater.eventlog.capturing.operating import Operator
from headwater.eventlog.capturing.settings import SourceSettings
from headwater.eventlog.kafka import admin
from tests.integration.sources.captured import Topic
from tests.integration.sources.mariadb_server import HOST, LOGGED, MariaDb, mariadb
from tests.integration.sources.value_matrix import Case, Differs, Matrix, documented
from tests.support.waiting import eventually

pytestmark = [pytest.mark.complete, pytest.mark.xdist_group("another Kafka Connect")]


class Mood(StrEnum):
    GOOD = "good"
    BAD = "bad"
    NONE = ""


NULL = Differs(None)
ZERO = "0000-00-00 00:00:00"
LARGE = "99999999999999999999999999999999999.999999999999999999999999999999"
DATETIMES: dict[str, Any] = {
    "0001-01-01 00:00:00": "0001-01-01T00:00:00Z",
    "0069-06-01 00:00:00": "0069-06-01T00:00:00Z",
    "0099-12-31 23:59:59": "0099-12-31T23:59:59Z",
    "1582-10-04 23:59:59": "1582-10-04T23:59:59Z",
    "1582-10-15 00:00:00": "1582-10-15T00:00:00Z",
    "2024-03-31 02:30:00": "2024-03-31T02:30:00Z",
    "9999-12-31 23:59:59": "9999-12-31T23:59:59Z",
    "0000-01-01 00:00:00": Differs("0001-01-01T00:00:00Z", None),
    "1582-10-10 12:00:00": Differs("1582-10-20T12:00:00Z", "1582-10-10T12:00:00Z"),
    "2024-02-00 00:00:00": NULL,
    ZERO: NULL,
}
TIMESTAMPS: dict[str, Any] = {
    "1970-01-01 00:00:01": "1970-01-01T00:00:01Z",
    "2024-03-31 00:30:00": "2024-03-31T00:30:00Z",
    "2024-10-27 00:30:00": "2024-10-27T00:30:00Z",
    "2038-01-19 03:14:07": "2038-01-19T03:14:07Z",
    ZERO: Differs(None, "1970-01-01T00:00:00Z"),
}
CASES = (
    Case("tinyint", int, {"-128": -128, "127": 127}),
    Case("tinyint unsigned", int, {"255": 255}),
    Case("tinyint(1)", bool, {"0": False, "1": True, "2": True, "-1": Differs(False)}),
    Case("smallint", int, {"-32768": -32768}),
    Case("mediumint unsigned", int, {"16777215": 16777215}),
    Case("int unsigned", int, {"4294967295": 4294967295}),
    Case("int(5) zerofill", int, {"42": 42}),
    Case("bigint", int, {"-9223372036854775808": -(2**63), "9223372036854775807": 2**63 - 1}),
    Case("bigint unsigned", Decimal, {each: each for each in ("0", "9223372036854775808", "18446744073709551615")}),
    Case("bit(1)", bool, {"b'0'": False, "b'1'": True}),
    Case("bit(12)", bytes, {"b'101100000001'": "AQs="}),
    Case("bit(64)", bytes, {f"b'1{'0' * 63}'": "AAAAAAAAAIA="}),
    Case("decimal(65,30)", Decimal, {LARGE: LARGE, "-0.0": f"0.{'0' * 30}"}),
    Case("decimal(5,2) unsigned zerofill", Decimal, {"1.5": "1.50"}),
    Case("float", float, {"0.1": 0.1, "16777217": Differs(16777200.0, 16777216.0)}),
    Case("float(7,4)", float, {"999.00009": Differs(999.0001220703125)}),
    Case("double", float, {"1.7976931348623157e308": 1.7976931348623157e308, "5e-324": 5e-324, "-0e0": 0.0}),
    Case("char(5)", str, {"''": "", "'a  '": "a", "'😀'": "😀"}),
    Case("varchar(10)", str, {"''": "", "' '": " ", "'a '": "a ", "'\\0'": "\0", "'e\u0301'": "e\u0301"}),
    Case("varchar(10) character set latin1", str, {"'ü€'": "ü€"}),
    Case("text", str, {"''": "", "REPEAT('x', 60000)": "x" * 60000}),
    Case("binary(4)", bytes, {"x'0100'": "AQAAAA==", "''": "AAAAAA=="}),
    Case("varbinary(4)", bytes, {"x'0100'": "AQA=", "''": ""}),
    Case("blob", bytes, {"x'00ff00'": "AP8A", "''": ""}),
    Case("enum('good','bad','')", Mood, {"'good'": "good", "''": "", "'other'": ""}),
    Case("enum('good','bad')", str, {"'bad'": "bad", "'other'": ""}),
    Case("set('tea','chess')", str, {"''": "", "'chess,tea'": "tea,chess", "'other'": ""}),
    Case(
        "json",
        Any,
        {
            "'5'": 5,
            "'\"5\"'": "5",
            "'true'": True,
            "'\"true\"'": "true",
            "'-0.0'": -0.0,
            "'[]'": [],
            "'\"\"'": "",
            "'null'": NULL,
            '\'{"a":1,"a":2}\'': Differs({"a": 2}),
            "'12345678901234567890123'": Differs(1.2345678901234568e22),
        },
    ),
    Case(
        "date",
        date,
        {
            **{each: each for each in ("0001-01-01", "0069-06-01", "0099-12-31", "1582-10-10", "9999-12-31")},
            "0000-01-01": NULL,
            "2024-02-00": NULL,
            "0000-00-00": NULL,
        },
    ),
    Case("datetime", datetime, DATETIMES),
    Case("datetime(3)", datetime, {"2024-01-01 00:00:00.12": "2024-01-01T00:00:00.12Z"}),
    Case("datetime(6)", datetime, {"0050-01-01 00:00:00.000001": "0050-01-01T00:00:00.000001Z"}),
    Case("timestamp null", datetime, TIMESTAMPS),
    Case(
        "timestamp(3) null",
        datetime,
        {"2024-01-01 00:00:06": "2024-01-01T00:00:06Z", "2024-01-01 00:00:00.12": "2024-01-01T00:00:00.12Z"},
    ),
    Case("timestamp(6) null", datetime, {"2038-01-19 03:14:07.999999": "2038-01-19T03:14:07.999999Z"}),
    Case(
        "time",
        time,
        {"00:00:00": "00:00:00", "23:59:59": "23:59:59", "24:00:00": Differs("00:00:00"), "-00:00:01": NULL}
        | {"838:59:59": NULL},
    ),
    Case("time(6)", time, {"12:00:00.5": "12:00:00.5", "-00:00:00.000001": NULL}),
    Case("year", int, {"1901": 1901, "2155": 2155, "0": Differs(2000, 1900)}),
    Case("char(36)", UUID, {f"'{uuid.UUID(int=7)}'": str(uuid.UUID(int=7))}),
)
MATRIX = Matrix.of("edges.matrix", CASES)
PLAIN = ("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double", "year")
SOON = {"connect.keep.alive.interval.ms": "2000"}
"""Tables are read again after a sign of life of the server, which is sent after 16 s otherwise."""
COUNT = sum(len(case.values) for case in CASES)


class Keyed(
    Captured, table="edges.keyed", key=("n", "amount", "word", "mood", "local", "moment", "day", "clock", "flag")
):
    n: Decimal
    amount: Decimal
    word: str
    mood: str
    local: datetime
    moment: datetime
    day: date
    clock: time
    flag: bool
    touched: int


KEYED = (
    (0, "-0.5", "", "", "0001-01-01", "1970-01-01 00:00:01", "0001-01-01", "00:00:00", 0),
    (2**64 - 1, "1.500", "😀", "good", "2024-03-31 02:30:00.5", "2024-10-27 00:30", "9999-12-31", "12:00:00.12", 1),
    (2**64 - 1, "1.500", "😀", "bad", "2024-03-31 02:30:00.5", "2024-10-27 01:30", "1582-10-10", "23:59:59.999999", 1),
)
SOURCE = Source(name="edges", tables=(MATRIX.table, Keyed), engine="mariadb")
SCHEMA = (
    "CREATE DATABASE edges CHARACTER SET utf8mb4",
    f"CREATE TABLE edges.matrix (id int PRIMARY KEY, touched int, {MATRIX.columns()})",
    """CREATE TABLE edges.keyed (n bigint unsigned, amount decimal(10, 3), word varchar(9),
       mood enum('good', 'bad', ''),
       local datetime(6), moment timestamp, day date, clock time(6), flag bool, touched int NOT NULL DEFAULT 0,
       PRIMARY KEY (n, amount, word, mood, local, moment, day, clock, flag))""",
)


def fill(connection: pymysql.Connection[Any]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        for number, column, kind, value, _ in MATRIX.rows():
            is_sql = value.startswith(("'", "b'", "x'", "REPEAT")) or kind.startswith(PLAIN)
            text = value if is_sql else f"'{value}'"
            cursor.execute(f"INSERT INTO edges.matrix (id, {column}) VALUES ({number}, {text})")
        for row in KEYED:
            cursor.execute(f"INSERT INTO edges.keyed VALUES ({', '.join(['%s'] * len(row))}, 0)", row)


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDb]:
    with mariadb() as made:
        made.start(*LOGGED)
        made.sql(*SCHEMA)
        with closing(made.connect()) as connection:
            fill(connection)
        yield made


@pytest.fixture(scope="module")
def settings(capturing: Stack, server: MariaDb) -> SourceSettings:
    variables = {
        "HEADWATER_ENVIRONMENT": f"t_{uuid.uuid4().hex[:12]}",
        "HEADWATER_MODULES": "listings",
        "HEADWATER_KAFKA": capturing.endpoints.kafka,
        "HEADWATER_CONNECT": capturing.endpoints.connect,
        "HEADWATER_PARTITIONS": "2",
        SOURCE.database: f"mariadb://root@{HOST}:{server.port}",
    }
    return SourceSettings.from_environment(SOURCE, variables)


@pytest.fixture(scope="module")
def operator(settings: SourceSettings, server: MariaDb) -> Iterator[Operator]:
    """The tables, whose rows were read by a snapshot, then changed, then read again in chunks.

    It registers the connector by itself, since `apply` refuses some of these values.
    """
    log, names = settings.log, SourceNames.of(SOURCE, settings.log.environment)
    admin.prepare_topics(log, source_topics(SOURCE, log))
    said: list[str] = []
    with Operator(SOURCE, settings, KafkaConnect(settings.connect), said.append) as made:
        made.connect.register(names.connector, connector_config(SOURCE, settings, 10) | SOON)
        try:
            matrix, keyed = Topic(log, MATRIX.table), Topic(log, Keyed)
            eventually(lambda: len(matrix.read()) >= COUNT and len(keyed.read()) >= len(KEYED), "they are read")
            server.sql("UPDATE edges.matrix SET touched = 1", "UPDATE edges.keyed SET touched = 1")
            eventually(lambda: len(matrix.read()) >= 2 * COUNT, "they are changed")
            made.snapshot_unchecked([MATRIX.table, Keyed])
            eventually(lambda: len(matrix.read()) >= 3 * COUNT, "they are read again")
            eventually(lambda: len(keyed.read()) >= 3 * len(KEYED), "keys are read again")
            yield made
        finally:
            made.connect.remove(names.connector)


def test_apply_names_values_that_a_snapshot_misreads(settings: SourceSettings, server: MariaDb) -> None:
    with Operator(SOURCE, settings, KafkaConnect(settings.connect), print) as made, made.open_database() as database:
        problems = list(database.check(registered=False).problems)
        assert list(database.check(registered=True).problems) == []
    columns = [f'column "c{n}" of table "edges.matrix" has ' for n, case in enumerate(CASES) if case.type == "datetime"]
    years = [f'column "c{n}" of table "edges.matrix" has ' for n, case in enumerate(CASES) if case.type == "year"]
    assert [problem.partition("has ")[0] + "has " for problem in problems] == [*columns * 2, *years]
    assert "times from 1582-10-05 to 1582-10-14, which become other times in a snapshot (WHERE `c" in problems[0]
    assert problems[0].endswith("change these rows, or leave the column out")
    for problem in problems:
        where = problem.partition("(WHERE ")[2].partition("): change")[0]
        assert len(server.sql(f"SELECT id FROM edges.matrix WHERE {where}")) == 1, "the condition finds the row"


def test_each_value_is_the_same_on_each_path_but_for_those_that_the_docs_list(operator: Operator) -> None:
    topic = Topic(operator.settings.log, MATRIX.table)
    topic.read()
    assert MATRIX.wrong(topic) == []
    assert documented("captured-reference.md", "### MariaDB and MySQL values") == MATRIX.listed()


def test_a_key_has_one_text_on_each_path(operator: Operator) -> None:
    topic = Topic(operator.settings.log, Keyed)
    topic.read()
    assert len(topic.rows) == len(KEYED)
    assert {row["touched"] for row in topic.rows.values()} == {1}


def test_sweep_finds_each_key_and_no_other(operator: Operator, server: MariaDb) -> None:
    said: list[str] = []
    with Operator(SOURCE, operator.settings, KafkaConnect(operator.settings.connect), said.append) as made:
        made.sweep()
        assert [each.rpartition(": ")[2] for each in said] == ["0 rows deleted, 0 incomplete"] * 2
        server.sql("TRUNCATE edges.matrix", "TRUNCATE edges.keyed")
        said.clear()
        made.sweep(yes_delete=COUNT)
    counts = [COUNT, len(KEYED)]
    assert [each.rpartition(": ")[2] for each in said] == [f"{count} rows deleted, 0 incomplete" for count in counts]
    for table in SOURCE.tables:
        topic = Topic(operator.settings.log, table)
        topic.read()
        assert topic.rows == {}


def test_a_source_that_stopped_at_a_table_of_others_can_be_removed(operator: Operator, server: MariaDb) -> None:
    server.sql("CREATE TABLE edges.ips (id int PRIMARY KEY, ip inet6)")
    state = eventually(
        lambda: (found := operator.connect.state(operator.names.connector)) and found.state == "FAILED" and found,
        "it stops",
    )
    assert state
    assert "ip inet6" in state.error
    with operator.open_database() as database:
        assert 'table "edges.ips" has the column "ip", which is inet6' in " ".join(database.check(True).problems)
    with Operator(SOURCE, operator.settings, KafkaConnect(operator.settings.connect), print) as made:
        made.remove(topics=True)
        assert made.connect.config(operator.names.connector) is None
