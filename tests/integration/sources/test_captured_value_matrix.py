"""Types of PostgreSQL with edge values: read by a snapshot, from the log, in chunks, and compared by `sweep`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any
from uuid import UUID

import psycopg
import pytest

from headwater.compose.stack import Stack
from headwater.eventlog.capturing import Captured, Source
from headwater.eventlog.capturing.changes import Operation
from headwater.eventlog.capturing.kafka_connect import KafkaConnect
from headwater.eventlog.capturing.operating import Operator
from headwater.eventlog.capturing.postgres.types import MISREAD
from tests.integration.sources.captured import OWN_SETTINGS, Connector, captured
from tests.integration.sources.value_matrix import Case, Differs, Matrix, documented
from tests.support.waiting import eventually


class Mood(StrEnum):
    GOOD = "good"
    BAD = "bad"
    NONE = ""


NULL = Differs(None)
"""What stores of views cannot hold."""
LARGE = "12345678901234567890123456789012345678.0000000001"
CASES = (
    Case("int2", int, {"-32768": -32768, "32767": 32767}),
    Case("int4", int, {"-2147483648": -(2**31), "2147483647": 2**31 - 1}),
    Case("int8", int, {"-9223372036854775808": -(2**63), "9223372036854775807": 2**63 - 1}),
    Case("oid", int, {"4294967295": 4294967295}),
    Case(
        "numeric",
        Decimal,
        {
            "NaN": NULL,
            "Infinity": NULL,
            "-Infinity": NULL,
            "1.50": "1.50",
            "-0.0": "0.0",
            "0e-5": "0.00000",
            "1e20": "100000000000000000000",
            "1e-400": f"0.{'0' * 399}1",
            LARGE: LARGE,
        },
    ),
    Case("numeric(5,2)", Decimal, {"999.99": "999.99", "-0.00": "0.00", "0": "0.00"}),
    Case("numeric(2,4)", Decimal, {"0.0099": "0.0099"}),
    Case(
        "money",
        Decimal,
        {"92233720368547758.07": "92233720368547758.07", "-92233720368547758.08": "-92233720368547758.08", "0": "0.00"},
    ),
    Case(
        "float4",
        float,
        {"NaN": NULL, "Infinity": NULL, "-0": -0.0, "3.4028235e38": 3.4028235e38, "0.1": 0.1, "16777217": 16777216.0},
    ),
    Case(
        "float8",
        float,
        {
            "NaN": NULL,
            "-Infinity": NULL,
            "-0": -0.0,
            "1.7976931348623157e308": 1.7976931348623157e308,
            "5e-324": 5e-324,
            "9007199254740993": 9007199254740992.0,
        },
    ),
    Case("bool", bool, {"true": True, "false": False}),
    Case(
        "text",
        str,
        {each: each for each in ("", " ", "null", "😀e\u0301é", '"\\\n\t', "\u0001", "\U0010ffff")},
    ),
    Case("varchar(3)", str, {"": "", "abc": "abc"}),
    Case("char(3)", str, {"": "   ", "a": "a  "}),
    Case("inet", str, {"10.0.0.1": "10.0.0.1", "10.0.0.1/8": "10.0.0.1/8", "::ffff:1.2.3.4/96": "::ffff:1.2.3.4/96"}),
    Case("cidr", str, {"10.0.0.0/8": "10.0.0.0/8", "::/0": "::/0"}),
    Case("macaddr", str, {"08:00:2b:01:02:03": "08:00:2b:01:02:03"}),
    Case("macaddr8", str, {"08:00:2b:01:02:03:04:05": "08:00:2b:01:02:03:04:05"}),
    Case("tsvector", str, {"": "", "'a':1A 'b''c'": "'a':1A 'b''c'"}),
    Case("int4range", str, {"empty": "empty", "(,)": "(,)", "[1,5]": "[1,6)"}),
    Case("int8range", str, {"[1,9223372036854775807)": "[1,9223372036854775807)"}),
    Case("numrange", str, {"[1.5,2.50)": "[1.5,2.50)", "[NaN,)": "[NaN,)"}),
    Case(
        "daterange", str, {"[2020-01-01,infinity]": "[2020-01-01,infinity]", "[0044-03-15 BC,)": '["0044-03-15 BC",)'}
    ),
    Case("tsrange", str, {"empty": "empty", "[2020-01-01 00:00:00.5,infinity)": '["2020-01-01 00:00:00.5",infinity)'}),
    Case("tstzrange", str, {"[2020-01-01 02:00+02,)": '["2020-01-01 00:00:00+00",)'}),
    Case("mood", Mood, {"good": "good", "": ""}),
    Case("uuid", UUID, {"FFFFFFFF-ffff-ffff-ffff-ffffffffffff": "ffffffff-ffff-ffff-ffff-ffffffffffff"}),
    Case(
        "date",
        date,
        {
            **{
                each: each
                for each in ("0001-01-01", "0004-02-29", "0099-12-31", "1582-10-04", "1582-10-15", "9999-12-31")
            },
            "0044-03-15 BC": Differs("0044-03-15", None),
            "1582-10-10": Differs("1582-10-20", "1582-10-10"),
            "10000-01-01": NULL,
            "infinity": NULL,
            "-infinity": NULL,
        },
    ),
    Case(
        "timestamp",
        datetime,
        {
            "0001-01-01 00:00": "0001-01-01T00:00:00Z",
            "0099-06-01 00:00": "0099-06-01T00:00:00Z",
            "1582-10-10 12:00": "1582-10-10T12:00:00Z",
            "1969-12-31 23:59:59.999999": "1969-12-31T23:59:59.999999Z",
            "2024-03-31 02:30": "2024-03-31T02:30:00Z",
            "2024-10-27 02:30": "2024-10-27T02:30:00Z",
            "2024-01-01 24:00": "2024-01-02T00:00:00Z",
            "2024-01-01 00:00:00.1": "2024-01-01T00:00:00.1Z",
            "9999-12-31 23:59:59.999999": "9999-12-31T23:59:59.999999Z",
            "0044-03-15 BC": NULL,
            "10000-01-01": NULL,
            "infinity": NULL,
            "-infinity": NULL,
        },
    ),
    Case("timestamp(3)", datetime, {"2024-01-01 00:00:00.12": "2024-01-01T00:00:00.12Z"}),
    Case(
        "timestamptz",
        datetime,
        {
            "0001-01-01 00:00+00": "0001-01-01T00:00:00Z",
            "1582-10-10 12:00+00": "1582-10-10T12:00:00Z",
            "1880-01-01 00:00 Europe/Amsterdam": "1879-12-31T23:42:30Z",
            "2024-03-31 02:30 Europe/Berlin": "2024-03-31T01:30:00Z",
            "2024-01-01 00:00:00.1+05:45": "2023-12-31T18:15:00.1Z",
            "9999-12-31 23:59:59.999999+00": "9999-12-31T23:59:59.999999Z",
            "0001-01-01 00:00+14": NULL,
            "9999-12-31 23:00-02": NULL,
            "infinity": NULL,
            "-infinity": NULL,
        },
    ),
    Case("timestamptz(3)", datetime, {"2024-01-01 00:00+00": "2024-01-01T00:00:00Z"}),
    Case(
        "time",
        time,
        {"00:00": "00:00:00", "23:59:59.999999": "23:59:59.999999", "12:00:00.120": "12:00:00.12"}
        | {"24:00": Differs("00:00:00")},
    ),
    Case(
        "timetz",
        time,
        {"00:00+00": "00:00:00", "23:59:59.999999-12": "11:59:59.999999", "00:00+15:59": "08:01:00"}
        | {"24:00+00": Differs("00:00:00")},
    ),
    Case(
        "interval",
        timedelta,
        {
            "0": "PT0S",
            "1 year 2 mons 3 days 04:05:06.78": "P1Y2M3DT4H5M6.78S",
            "-1 mons +2 days -00:00:00.5": "P-1M2DT-0.5S",
            "1 day -1 hour": "P1DT-1H",
            "178000000 years": "P178000000Y",
            "-178000000 years": "P-178000000Y",
            "-00:00:00.000001": "PT-0.000001S",
            "1000000000 days": "P1000000000D",
            "2147483647 hours": "PT2147483647H",
            "infinity": Differs("PT0S"),
            "-infinity": Differs("PT0S"),
        },
    ),
    Case("interval(0)", timedelta, {"1.6 seconds": "PT2S"}),
    Case("bytea", bytes, {"": "", "\\x00ff": "AP8=", "\\x5f5f": "X18="}),
    Case(
        "json",
        Any,
        {
            "5": 5,
            '"5"': "5",
            "true": True,
            '"true"': "true",
            '"null"': "null",
            "1.0": 1.0,
            "-0.0": -0.0,
            "[]": [],
            "{}": {},
            '""': "",
            '"\\u0000"': "\0",
            ' {"a" : 1} ': {"a": 1},
            "null": NULL,
            '{"a":1,"a":2}': Differs({"a": 2}),
            "12345678901234567890123": Differs(1.2345678901234568e22),
            "0.1234567890123456789": Differs(0.12345678901234568),
        },
    ),
    Case("jsonb", Any, {"5": 5, '"5"': "5", '"[1]"': "[1]", "-0.0": 0.0, "[]": [], "null": NULL}),
    Case(
        "text[]",
        list[str],
        {"{}": [], "{NULL}": [None], '{"",NULL,"null","a,b"}': ["", None, "null", "a,b"], "[2:3]={a,b}": ["a", "b"]},
    ),
    Case("varchar(3)[]", list[str], {"{abc}": ["abc"]}),
    Case("char(3)[]", list[str], {"{a}": ["a  "]}),
    Case("int2[]", list[int], {"{1,-32768}": [1, -32768]}),
    Case("int4[]", list[int], {"{}": [], "{1,NULL}": [1, None], "{{1,2}}": Differs([None])}),
    Case("int8[]", list[int], {"{9223372036854775807}": [2**63 - 1]}),
    Case("oid[]", list[int], {"{1}": [1]}),
    Case("bool[]", list[bool], {"{t,f,NULL}": [True, False, None]}),
    Case("float4[]", list[float], {"{0.1}": [0.1]}),
    Case("float8[]", list[float], {"{1.5,NULL,-0}": [1.5, None, -0.0], "{NaN}": Differs([None])}),
    Case("numeric[]", list[Decimal], {"{1.50,NULL}": ["1.50", None], "{1,NaN}": NULL, "{Infinity}": NULL}),
    Case("uuid[]", list[UUID], {"{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}": ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]}),
    Case("mood[]", list[Mood], {'{good,""}': Differs(["good", ""], again=None), "{good,NULL}": NULL}),
    Case(
        "date[]",
        list[date],
        {
            "{2020-01-01,NULL}": ["2020-01-01", None],
            "{infinity}": Differs([None]),
            "{0044-03-15 BC}": Differs(["0044-03-15"]),
            "{1582-10-10}": Differs(["1582-10-20"]),
        },
    ),
    Case(
        "timestamp[]",
        list[datetime],
        {
            "{2020-01-01 00:00:00.5,NULL}": ["2020-01-01T00:00:00.5Z", None],
            "{infinity}": Differs([None]),
            "{0001-01-01 00:00}": Differs([None]),
            "{1582-10-10 00:00}": Differs(["1582-10-20T00:00:00Z"]),
        },
    ),
    Case(
        "timestamptz[]",
        list[datetime],
        {
            "{2020-01-01 00:00:00.5+02}": ["2019-12-31T22:00:00.500000Z"],
            "{1582-10-10 00:00+00}": Differs(["1582-10-20T00:00:00.000000Z"]),
        },
    ),
    Case("time[]", list[time], {"{12:00:00.5,NULL}": ["12:00:00.5", None], "{24:00}": Differs(["00:00:00"])}),
    Case("timetz[]", list[time], {"{12:00+02,NULL}": ["10:00:00", None], "{12:00:00.5+02}": Differs(["10:00:00"])}),
    Case("inet[]", list[str], {"{10.0.0.1,NULL}": Differs(["10.0.0.1", None], again=None)}),
    Case("macaddr[]", list[str], {"{08:00:2b:01:02:03}": Differs(["08:00:2b:01:02:03"], again=None)}),
    Case("int4range[]", list[str], {'{"[1,5)",NULL}': Differs(["[1,5)", None], again=None)}),
    Case("tsvector[]", list[str], {"{a}": Differs(["'a'"], again=None)}),
    Case("positive", int, {"5": 5}),
    Case("two_digits", Decimal, {"1.5": "1.50"}),
    Case("moments", datetime, {"2024-01-01 00:00:00.1": "2024-01-01T00:00:00.1Z"}),
    Case("numbers", list[int], {"{1}": [1]}),
)
MATRIX = Matrix.of("public.matrix", CASES)


class Keyed(
    Captured, table="public.keyed", key=("n", "amount", "word", "blanks", "flag", "code", "day", "mood", "span")
):
    n: int
    amount: Decimal
    word: str
    blanks: str
    flag: bool
    code: UUID
    day: date
    mood: Mood
    span: str
    touched: int


class Timed(Captured, table="public.timed", key=("local", "moment", "milli", "clock")):
    local: datetime
    moment: datetime
    milli: datetime
    clock: time
    touched: int


ZERO = "00000000-0000-0000-0000-000000000000"
KEYED = (
    (-(2**63), "-0.0", "", "", True, ZERO, "0001-01-01", "", "empty"),
    (2**63 - 1, "1e-40", "😀", "a", False, ZERO, "9999-12-31", "good", "[1,5]"),
    (0, "1.50", "e\u0301", "a ", False, ZERO, "1582-10-15", "bad", "(,)"),
    (0, "1.5000", 'a"\\/,\n', "b", True, ZERO, "1969-12-31", "bad", "(,5)"),
)
"""Keys; the numbers of the last two are equal for the database in another scale."""
TIMED = (
    ("0001-01-01 00:00", "0001-01-01 00:00+00", "2024-01-01 00:00:06+00", "00:00"),
    ("2024-03-31 02:30:00.5", "2024-03-31 02:30 Europe/Berlin", "2024-01-01 00:00:06.5+02", "12:00:00.120"),
    ("9999-12-31 23:59:59.999999", "9999-12-31 23:59:59.999999+00", "2024-01-01 00:00:06.05+02", "23:59:59.999999"),
)
SOURCE = Source(name="matrix", tables=(MATRIX.table, Keyed, Timed))
STATEMENTS = (
    *OWN_SETTINGS,
    "CREATE TYPE mood AS ENUM ('good', 'bad', '')",
    "CREATE DOMAIN positive AS int CHECK (value > 0)",
    "CREATE DOMAIN digits AS numeric(5,2)",
    "CREATE DOMAIN two_digits AS digits",
    "CREATE DOMAIN moments AS timestamp",
    "CREATE DOMAIN numbers AS int[]",
    f"CREATE TABLE matrix (id int PRIMARY KEY, touched int, {MATRIX.columns()})",
    """CREATE TABLE keyed (n int8, amount numeric, word text, blanks char(3), flag bool, code uuid, day date, mood mood,
       span int4range, touched int NOT NULL DEFAULT 0,
       PRIMARY KEY (n, amount, word, blanks, flag, code, day, mood, span))""",
    """CREATE TABLE timed (local timestamp, moment timestamptz, milli timestamptz(3), clock time,
       touched int NOT NULL DEFAULT 0, PRIMARY KEY (local, moment, milli, clock))""",
)
COUNT = sum(len(case.values) for case in CASES)


def fill(connection: psycopg.Connection[Any]) -> None:
    connection.execute("SET intervalstyle = postgres; SET datestyle = ISO")  # as the values here are written
    for number, column, kind, value, _ in MATRIX.rows():
        connection.execute(f"INSERT INTO matrix (id, {column}) VALUES ({number}, %s::{kind})".encode(), (value,))
    for table, rows in (("keyed", KEYED), ("timed", TIMED)):
        for row in rows:
            marks = ", ".join(["%s"] * len(row))
            connection.execute(f"INSERT INTO {table} VALUES ({marks})".encode(), row)


@pytest.fixture(scope="module")
def connector(servers: Stack) -> Iterator[Connector]:
    """The tables, whose rows were read by a snapshot, then changed, then read again in chunks."""
    with captured(servers, SOURCE, STATEMENTS) as made:
        with made.connect() as connection:
            fill(connection)
        made.put()
        made.wait_running()
        matrix, keyed = made.topic(MATRIX.table), made.topic(Keyed)
        eventually(lambda: len(matrix.read()) >= COUNT and made.topic(Timed).read(), "they are read")
        with made.connect() as connection:
            for table in ("matrix", "keyed", "timed"):
                connection.execute(f"UPDATE {table} SET touched = 1".encode())
        eventually(lambda: len(matrix.read()) >= 2 * COUNT, "they are changed")
        eventually(lambda: len(made.topic(Timed).read()) >= 2 * len(TIMED), "times are changed")
        with Operator(made.source, made.settings, KafkaConnect(made.settings.connect), print) as operator:
            operator.snapshot_unchecked([matrix.table, Keyed])
        eventually(lambda: len(matrix.read()) >= 3 * COUNT, "they are read again")
        eventually(lambda: len(keyed.read()) >= 3 * len(KEYED), "keys are read again")
        yield made


def test_apply_names_values_that_a_snapshot_misreads(connector: Connector) -> None:
    with (
        Operator(connector.source, connector.settings, KafkaConnect(connector.settings.connect), print) as operator,
        operator.open_database() as database,
        connector.connect() as connection,
    ):
        problems = database.check(registered=False).problems
        assert [problem for problem in database.check(registered=True).problems if "snapshot" in problem] == []
        why = database.unchunked(MATRIX.table) or ""
        said = [problem for problem in problems if problem.startswith('column "c') and "WHERE" in problem]
        kinds = {CASES[int(each.split('"')[1][1:])].type for each in said}
        assert kinds == {"date", "date[]", "timestamp[]", "timestamptz[]", "int4[]", "mood[]"}
        for problem in said:
            where = problem.partition("(WHERE ")[2].partition("): change")[0]
            assert connection.execute(f"SELECT id FROM matrix WHERE {where}".encode()).fetchall(), where
            assert where in why
        for kind, value, what in (
            ("timetz", "12:00+00:19:32", "offsets with seconds"),
            ("interval", "-2147483648 hours", "intervals of 2147483648 hours or more"),
        ):
            column = next(f"c{n}" for n, case in enumerate(CASES) if case.type == kind)
            assert what not in why
            connection.execute("CREATE TABLE IF NOT EXISTS scratch (LIKE matrix)")
            connection.execute(f"INSERT INTO scratch (id, {column}) VALUES (0, %s)".encode(), (value,))
            condition, words = MISREAD[kind]
            found = connection.execute(f"SELECT id FROM scratch WHERE {condition.format(column)}".encode()).fetchall()
            assert (found, what in words) == ([(0,)], True)


def test_each_value_is_the_same_on_each_path_but_for_those_that_the_docs_list(connector: Connector) -> None:
    topic = connector.topic(MATRIX.table)
    topic.read()
    assert MATRIX.wrong(topic) == []
    assert documented("captured-reference.md", "### PostgreSQL values") == MATRIX.listed()


def test_a_key_has_one_text_on_each_path(connector: Connector) -> None:
    for table, rows in ((Keyed, KEYED), (Timed, TIMED)):
        topic = connector.topic(table)
        topic.read()
        assert len(topic.rows) == len(rows)
        assert {row["touched"] for row in topic.rows.values()} == {1}


@pytest.mark.complete
def test_sweep_finds_each_key_and_no_other(connector: Connector) -> None:
    said: list[str] = []
    with Operator(
        connector.source, connector.settings, KafkaConnect(connector.settings.connect), said.append
    ) as operator:
        operator.sweep()
        assert [each.rpartition(": ")[2] for each in said] == ["0 rows deleted, 0 incomplete"] * 3
        with connector.connect() as connection:
            connection.execute("TRUNCATE matrix, keyed, timed")
        said.clear()
        operator.sweep(yes_delete=COUNT)
    counts = [COUNT, len(KEYED), len(TIMED)]
    assert [each.rpartition(": ")[2] for each in said] == [f"{count} rows deleted, 0 incomplete" for count in counts]
    for table in connector.source.tables:
        topic = connector.topic(table)
        topic.read()
        assert topic.rows == {}
        assert topic.records[-1].change.operation is Operation.TOMBSTONE
