"""Random changes of MariaDB's tables and their definitions: topics have the rows of the tables, or `status` objects."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import httpx
import pymysql
import pytest

from headwater.compose.stack import Stack
from headwater.eventlog.capturing import Captured, Source, rereading
from headwater.eventlog.capturing.connector import BINLOG
from headwater.eventlog.capturing.errors import SourceProblem
from headwater.eventlog.capturing.kafka_connect import KafkaConnect
from headwater.eventlog.capturing.operating import Operator
from headwater.eventlog.capturing.settings import SourceSettings
from headwater.eventlog.capturing.watching import Watcher
from headwater.eventlog.kafka.log import KafkaLog
from tests.integration.sources.captured import Row, Topic
from tests.integration.sources.mariadb_server import HOST, LOGGED, MariaDb, mariadb
from tests.integration.sources.reconciled import Reconciled, Tables, check, check_mended, check_rounds, read_all
from tests.support.background import running
from tests.support.seeds import examples, seed_of
from tests.support.waiting import BOUND_S, eventually

pytestmark = [pytest.mark.complete, pytest.mark.xdist_group("another Kafka Connect")]

ROUNDS, STATEMENTS = 2, 12
"""Of a short run, and how many of each; `status` is asked, and what it names is mended, once in each."""


class Person(Captured, table="crm.people", key="id"):
    id: int
    name: str | None
    age: int | None


class Visit(Captured, table="crm.visits", key=("id", "day")):
    id: int
    day: int
    place: str | None


class Tick(Captured, table="crm.ticks", key="id"):
    id: int


CRM = Source(name="crm", tables=(Person, Visit, Tick), engine="mariadb")
PEOPLE = "CREATE TABLE {} (id int PRIMARY KEY, name varchar(50), age int, spare varchar(50))"
PARTS = (10, 20, 30)
SCHEMA = (
    "DROP DATABASE IF EXISTS crm",
    "CREATE DATABASE crm CHARACTER SET utf8mb4",
    "USE crm",
    PEOPLE.format("people"),
    "CREATE TABLE visits (id int, day int, place varchar(50), PRIMARY KEY (id, day)) PARTITION BY RANGE (day) "
    f"({', '.join(f'PARTITION p{end} VALUES LESS THAN ({end})' for end in PARTS)})",
    "CREATE TABLE aside (id int, day int, place varchar(50), PRIMARY KEY (id, day))",
    "CREATE TABLE ticks (id int PRIMARY KEY AUTO_INCREMENT)",
    "CREATE TABLE elsewhere (number int)",
    "INSERT INTO people SELECT seq, 'first', seq, NULL FROM seq_1_to_20",
    "INSERT INTO visits SELECT seq, seq % 10, 'here' FROM seq_1_to_20",
    "CREATE USER IF NOT EXISTS capture",
    "GRANT REPLICATION SLAVE, REPLICATION CLIENT, RELOAD, PROCESS ON *.* TO capture",
    "GRANT SELECT ON crm.* TO capture",
)
SWAPPED = (
    "ALTER TABLE people CHANGE name spare varchar(50), CHANGE spare name varchar(50)",
    "ALTER TABLE people RENAME COLUMN name TO spare, RENAME COLUMN spare TO name",
)
Statements = Sequence[str]


class Changes:
    """Makes random statements; some fail, and those after them are left out."""

    def __init__(self, connection: pymysql.Connection[Any], seed: int) -> None:
        self.made: list[str] = []
        self._sql, self._random, self._count = connection, Random(seed), 0

    def change_rows(self) -> None:
        self._make(ROWS)

    def change_definition(self) -> None:
        self._make(DEFINITIONS)

    def _make(self, choices: Mapping[Callable[[Changes], Statements], int]) -> None:
        """Make the statements of one of these choices, each as often as its number says."""
        (choice,) = self._random.choices(list(choices), list(choices.values()))
        self._count += 1
        with self._sql.cursor() as cursor:
            for statement in choice(self):
                try:
                    cursor.execute(statement)
                    self.made.append(statement)
                except pymysql.MySQLError as error:
                    self.made.append(f"-- {statement}: {error}")
                    return

    def _id(self) -> int:
        return self._random.randrange(40)

    def _day(self) -> int:
        return self._random.randrange(30)

    def _part(self) -> str:
        return f"p{self._random.choice(PARTS)}"

    # rows
    def add_person(self) -> Statements:
        return [f"INSERT INTO people (id, name, age) VALUES ({self._id()}, 'n{self._count}', {self._count})"]

    def change_people(self) -> Statements:
        return [f"UPDATE people SET name = 'c{self._count}', spare = 's{self._count}' WHERE id % 5 = {self._id() % 5}"]

    def renumber_person(self) -> Statements:
        return [f"UPDATE people SET id = {self._id()} WHERE id = {self._id()}"]

    def replace_person(self) -> Statements:
        return [f"REPLACE INTO people (id, name, age) VALUES ({self._id()}, 'r{self._count}', NULL)"]

    def delete_people(self) -> Statements:
        return [f"DELETE FROM people WHERE id % 7 = {self._id() % 7}"]

    def add_visit(self) -> Statements:
        return [f"INSERT INTO visits VALUES ({self._id()}, {self._day()}, 'v{self._count}')"]

    def move_visits(self) -> Statements:
        return [f"UPDATE visits SET day = {self._day()}, place = 'm{self._count}' WHERE id = {self._id()}"]

    def delete_visits(self) -> Statements:
        return [f"DELETE FROM visits WHERE id % 3 = {self._id() % 3}"]

    # definitions
    def truncate(self) -> Statements:
        return [
            self._random.choice([
                "TRUNCATE people",
                "TRUNCATE visits",
                f"ALTER TABLE visits TRUNCATE PARTITION {self._part()}",
            ])
        ]  # fmt: skip

    def swap_tables(self) -> Statements:
        new, old = f"new_{self._count}", f"old_{self._count}"
        return [
            PEOPLE.format(new),
            f"INSERT INTO {new} SELECT id + 1, 'w{self._count}', age, NULL FROM people",
            f"RENAME TABLE people TO {old}, {new} TO people",
        ]

    def rename_for_a_time(self) -> Statements:
        return [
            "RENAME TABLE people TO away",
            f"UPDATE away SET name = 'a{self._count}'",
            "RENAME TABLE away TO people",
        ]

    def replace_table(self) -> Statements:
        return [
            "DROP TABLE people",
            PEOPLE.format("people"),
            f"INSERT INTO people (id, name) VALUES (1, 'p{self._count}')",
        ]

    def change_type(self) -> Statements:
        return [
            self._random.choice([
                "ALTER TABLE people MODIFY name varchar(60) CHARACTER SET ascii",
                "ALTER TABLE people MODIFY name varchar(70)",
                "ALTER TABLE people MODIFY age bigint",
                "ALTER TABLE people MODIFY age int",
            ])
        ]  # fmt: skip

    def swap_columns(self) -> Statements:
        return [self._random.choice(SWAPPED)]

    def replace_column(self) -> Statements:
        return [f"ALTER TABLE people DROP age, ADD age int DEFAULT {self._count}"]

    def add_column(self) -> Statements:
        return [f"ALTER TABLE people ADD more_{self._count} double DEFAULT 1.5"]

    def write_anew(self) -> Statements:
        return [self._random.choice(["OPTIMIZE TABLE people", "ALTER TABLE visits FORCE"])]

    def exchange_partition(self) -> Statements:
        part = self._part()
        return [
            "DELETE FROM aside",
            f"INSERT INTO aside VALUES ({self._id()}, {int(part[1:]) - 1}, 'x{self._count}')",
            f"ALTER TABLE visits EXCHANGE PARTITION {part} WITH TABLE aside",
        ]

    def move_partition_out(self) -> Statements:
        return [f"ALTER TABLE visits DROP PARTITION p{PARTS[-1]}"]

    def add_partition(self) -> Statements:
        return [f"ALTER TABLE visits ADD PARTITION (PARTITION p{PARTS[-1]} VALUES LESS THAN ({PARTS[-1]}))"]


ROWS: Mapping[Callable[[Changes], Statements], int] = {
    Changes.add_person: 4, Changes.change_people: 3, Changes.renumber_person: 2, Changes.replace_person: 2,
    Changes.delete_people: 1, Changes.add_visit: 4, Changes.move_visits: 3, Changes.delete_visits: 1,
}  # fmt: skip
DEFINITIONS: Mapping[Callable[[Changes], Statements], int] = {
    Changes.truncate: 3, Changes.swap_tables: 2, Changes.rename_for_a_time: 1, Changes.replace_table: 1,
    Changes.change_type: 2, Changes.swap_columns: 1, Changes.replace_column: 1, Changes.add_column: 1,
    Changes.write_anew: 1, Changes.exchange_partition: 2, Changes.move_partition_out: 1, Changes.add_partition: 2,
}  # fmt: skip


@dataclass(frozen=True)
class Crm(Reconciled):
    """The database."""

    server: MariaDb

    def expected(self) -> Tables:
        return {table.table: self._rows(table) for table in CRM.tables}

    def _rows(self, table: type[Captured]) -> Mapping[str, Row]:
        found: dict[str, Row] = {}
        for row in self.server.sql(f"SELECT {', '.join(table.columns)} FROM {table.table}"):
            key = [row[name] for name in table.key]
            found[str(key[0]) if len(key) == 1 else json.dumps(key, separators=(",", ":"))] = row
        return found

    def wait_captured(self) -> None:
        """The binary log is captured in its order, and the row of a tick is its end. Or the connector has failed."""
        self.server.sql("INSERT INTO crm.ticks VALUES ()")
        ticks, written = Topic(self.operator.settings.log, Tick), self._rows(Tick)

        def are_captured() -> bool:
            ticks.read()
            return written.keys() <= ticks.rows.keys() or self.status().state == "FAILED"

        eventually(are_captured, "all is captured", every_s=0.2)


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDb]:
    with mariadb() as made:
        made.start(*LOGGED)
        yield made


@pytest.fixture
def crm(capturing: Stack, server: MariaDb) -> Iterator[Crm]:
    """A new database on the server, and a deployment that captures it."""
    environment = f"t_{uuid.uuid4().hex[:12]}"
    server.sql(*SCHEMA)
    variables = {
        "HEADWATER_ENVIRONMENT": environment,
        "HEADWATER_MODULES": "crm",
        "HEADWATER_KAFKA": capturing.endpoints.kafka,
        "HEADWATER_CONNECT": capturing.endpoints.connect,
        "HEADWATER_PARTITIONS": "2",
        CRM.database: f"mariadb://capture@{HOST}:{server.port}",
    }
    settings = SourceSettings.from_environment(CRM, variables)
    with (
        Operator(CRM, settings, KafkaConnect(settings.connect), lambda _: None) as operator,
        closing(KafkaLog(settings.log)) as log,
    ):
        try:
            yield Crm(operator, log, server)
        finally:
            operator.remove(topics=True)


@pytest.fixture
def changing(crm: Crm) -> Iterator[None]:
    """A table that is not captured changes during the test: while nothing does, a connector that is to read tables
    again waits up to 16 seconds for the server's sign of life."""

    def change(stop: threading.Event) -> None:
        while not stop.wait(0.3):
            crm.server.sql("INSERT INTO crm.elsewhere VALUES (1)")

    with running(change):
        yield


busy = pytest.mark.usefixtures("changing")


@pytest.mark.soak
def test_topics_and_views_have_the_rows_of_the_tables_or_status_says_so(
    crm: Crm, request: pytest.FixtureRequest
) -> None:
    if seed_of(33) % 2:  # else nothing follows the last statement but the server's signs of life
        request.getfixturevalue("changing")
    read_all(crm)
    with closing(crm.server.connect()) as connection:
        connection.select_db("crm")
        check_rounds(crm, Changes(connection, seed_of(32)), examples(ROUNDS), STATEMENTS)


@busy
def test_swapped_names_of_columns_are_named_with_what_helps_which_does(crm: Crm) -> None:
    """Debezium loses a column, and fails at the next row: it never has values under the wrong names."""
    read_all(crm)
    how = SWAPPED[0]
    crm.server.sql("USE crm", how, "UPDATE people SET name = 'Ada', spare = 'Bo'")
    check(crm, how)
    check_mended(crm, how)


@busy
@pytest.mark.parametrize("how", SWAPPED)
def test_rows_are_not_read_again_by_a_definition_that_debezium_has_wrong(
    crm: Crm, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No row follows at which it would fail."""
    monkeypatch.setattr(rereading, "STORED_S", 5.0)  # it stays wrong, however long a command waits
    crm.server.sql("USE crm", "ALTER TABLE people MODIFY spare varchar(50) AFTER id, MODIFY name varchar(50) AFTER age")
    read_all(crm)
    crm.operator.pause()
    crm.server.sql("USE crm", "UPDATE people SET spare = 'Bo'", how)
    crm.operator.resume()
    for read_again in (lambda: crm.operator.snapshot([Person]), lambda: crm.operator.apply(dry_run=False)):
        with pytest.raises(SourceProblem, match=r"other columns of crm\.people"):
            read_again()
    check_mended(crm, how)
    assert crm.status().is_healthy


@busy
@pytest.mark.parametrize(
    "how", ["DROP age, ADD age int DEFAULT {}", "DROP age, CHANGE other age int, ADD other int DEFAULT {}"]
)
def test_a_column_with_other_values_in_the_same_place_is_read_again(crm: Crm, how: str) -> None:
    """The server changes no row for that, and stores the table as before."""
    crm.server.sql("USE crm", "ALTER TABLE people DROP age, ADD age int, ADD other int DEFAULT 7")
    read_all(crm)
    crm.server.sql("USE crm", alter := f"ALTER TABLE people {how.format(84)}")
    assert not check(crm, alter)
    check_mended(crm, alter)
    assert crm.status().is_healthy


def test_rows_that_changed_under_another_name_are_read_again_although_a_column_was_added(crm: Crm) -> None:
    """Nothing else changes in the server."""
    read_all(crm)
    statements = (
        "RENAME TABLE people TO away",
        "UPDATE away SET name = 'elsewhere'",
        "RENAME TABLE away TO people",
        "ALTER TABLE people ADD more double DEFAULT 1.5",
    )
    crm.server.sql("USE crm", *statements)
    assert not check(crm, "; ".join(statements))
    check_mended(crm, "; ".join(statements))
    assert crm.status().is_healthy


def test_rows_are_read_again_by_the_definition_of_the_last_statement_although_its_place_is_before_it(crm: Crm) -> None:
    """Debezium goes on before a statement that nothing follows, and would read rows by the definition before that."""
    read_all(crm)
    crm.operator.pause()
    crm.server.sql(
        "USE crm",
        "ALTER TABLE people DROP age, ADD age int DEFAULT 84",
        PEOPLE.format("new"),
        "INSERT INTO new SELECT id + 1, 'new', age, NULL FROM people",
        rename := "RENAME TABLE people TO away, new TO people",
    )
    crm.operator.resume()
    crm.operator.apply(dry_run=False)
    check_mended(crm, rename)


def test_no_change_is_skipped_after_a_statement_and_silence(crm: Crm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Debezium counts the server's signs of life as events of the statement, and skips as many when it starts again."""
    monkeypatch.setitem(BINLOG, "connect.keep.alive.interval.ms", "1000")
    read_all(crm)
    crm.server.sql("USE crm", "UPDATE people SET age = 85", "ALTER TABLE people ADD more int")
    eventually(lambda: (crm.operator.offset() or {}).get("event", 0) > 6, "signs of life are counted", every_s=0.2)
    assert "headwater sources watch" in crm.status().warnings[0]
    watcher = Watcher([crm.operator])

    def is_stepped_over() -> bool:
        watcher.look()
        return crm.status().warnings == []

    eventually(is_stepped_over, "the watch lets it go on behind the statement")
    connector = f"{crm.operator.settings.connect}/connectors/{crm.operator.names.connector}"
    restart = partial(httpx.post, f"{connector}/restart", params={"includeTasks": "true"}, timeout=BOUND_S)
    eventually(lambda: restart().is_success, "it is restarted")
    eventually(lambda: crm.status().state == "RUNNING", "it runs again", every_s=0.2)
    crm.server.sql("USE crm", "INSERT INTO people (id, name) VALUES (101, 'one')", "DELETE FROM people WHERE id = 7")
    assert check(crm, "rows after a statement")


@busy
def test_rows_from_before_a_truncate_do_not_come_back_if_the_connector_was_behind(crm: Crm) -> None:
    read_all(crm)
    crm.operator.pause()
    crm.server.sql(
        "USE crm",
        "INSERT INTO people (id, name) SELECT seq, 'gone' FROM seq_1000_to_12000",
        "TRUNCATE people",
        "INSERT INTO people (id, name) VALUES (1, 'kept')",
    )
    crm.operator.resume()
    said = "a table was truncated while its connector was behind"
    with pytest.raises(SourceProblem, match="--yes-delete") as refused:  # nearly all rows of the topic are gone
        crm.operator.apply(dry_run=False)
    crm.operator.sweep(yes_delete=int(str(refused.value).rpartition(" ")[2]))
    check(crm, said)
    check_mended(crm, said)


@busy
@pytest.mark.parametrize(
    ("database", "exchange"),
    [
        ("crm", "ALTER TABLE visits EXCHANGE PARTITION p20 WITH TABLE aside"),
        ("mysql", "alter table `crm`.`visits` exchange  partition p20 with table crm.aside"),
    ],
)
def test_rows_of_a_partition_that_changed_in_another_table_are_captured(crm: Crm, database: str, exchange: str) -> None:
    """The partition has its number again, and the table that held its rows meanwhile is not captured."""
    read_all(crm)
    crm.server.sql(f"USE {database}", exchange, "INSERT INTO crm.aside VALUES (33, 19, 'elsewhere')", exchange)
    assert not check(crm, exchange)
    check_mended(crm, exchange)
    assert crm.status().is_healthy
