"""Random changes of tables and their definitions: topics and views have the rows of the tables, or `status` objects."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from random import Random
from typing import Any

import psycopg
import pytest
from psycopg import errors
from psycopg.conninfo import make_conninfo

from headwater.compose.samples.shop_database import create_shop
from headwater.compose.stack import Stack
from headwater.eventlog.capturing import Captured, Source
from headwater.eventlog.capturing.capture_progress import Progress
from headwater.eventlog.capturing.kafka_connect import KafkaConnect
from headwater.eventlog.capturing.operating import Operator
from headwater.eventlog.capturing.settings import SourceSettings
from headwater.eventlog.kafka.log import KafkaLog
from tests.integration.sources.captured import rows_of
from tests.integration.sources.reconciled import Reconciled, Tables, check, check_mended, check_rounds, read_all
from tests.support.databases import drop_database
from tests.support.seeds import examples, seed_of
from tests.support.waiting import eventually

ROUNDS, STATEMENTS = 2, 12
"""Of a short run, and how many of each; `status` is asked, and what it names is mended, once in each."""


class Person(Captured, table="public.people", key="id"):
    id: int
    name: str | None
    age: int | None


class Visit(Captured, table="public.visits", key=("id", "day")):
    id: int
    day: int
    place: str | None


CRM = Source(name="crm", tables=(Person, Visit))
PEOPLE = "CREATE TABLE {} (id int PRIMARY KEY, name text, age int, spare text)"
SCHEMA = f"""
    ALTER DEFAULT PRIVILEGES FOR ROLE shop GRANT SELECT ON TABLES TO shop_capture;
    {PEOPLE.format("people")};
    CREATE TABLE visits (id int, day int, place text, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
    CREATE TABLE visits_0 PARTITION OF visits FOR VALUES FROM (0) TO (10);
    INSERT INTO people SELECT n, 'first', n FROM generate_series(1, 20) n;
    INSERT INTO visits SELECT n, n % 10, 'here' FROM generate_series(1, 20) n
"""


UNLOGGED = f"""
    TRUNCATE visits;
    INSERT INTO visits VALUES (1, 1, 'after');
    {PEOPLE.format("new")};
    INSERT INTO new SELECT id + 1, 'swapped', age FROM people;
    ALTER TABLE people RENAME TO old;
    ALTER TABLE new RENAME TO people
"""
"""Changes of rows that the log of the database does not have."""


class Changes:
    """Makes random statements; each is a transaction, and some fail, which changes nothing."""

    def __init__(self, connection: psycopg.Connection[Any], operator: Operator, seed: int) -> None:
        self.made: list[str] = []
        self._sql, self._operator, self._random, self._count = connection, operator, Random(seed), 0
        self._publication = operator.names.slot

    def change_rows(self) -> None:
        self._make(ROWS)

    def change_definition(self) -> None:
        if self._make(DEFINITIONS):
            # as `watch` does all the time: one that comes and goes between two looks is not seen
            self._operator.find_uncaptured()

    def _make(self, choices: Mapping[Callable[[Changes], str], int]) -> bool:
        """Make one of these statements, each as often as its number says; whether it added a partition."""
        self._sql.execute("SET ROLE shop")
        (choice,) = self._random.choices(list(choices), list(choices.values()))
        self._count += 1
        statements = choice(self)
        try:
            with self._sql.transaction():
                self._sql.execute(statements)
            self.made.append(statements)
        except (errors.IntegrityError, errors.ProgrammingError, errors.ObjectNotInPrerequisiteState) as error:
            self.made.append(f"-- {statements}: {type(error).__name__}")
            return False
        return choice in ADDED

    def _id(self) -> int:
        return self._random.randrange(40)

    def _day(self) -> int:
        return self._random.randrange(30)

    def _partition(self) -> int:
        return self._random.randrange(3)

    @staticmethod
    def _values(partition: int) -> str:
        return f"FOR VALUES FROM ({partition * 10}) TO ({partition * 10 + 10})"

    def _publish(self, what: str) -> str:
        return f"RESET ROLE; ALTER PUBLICATION {self._publication} {what}; SET ROLE shop"

    # rows
    def add_person(self) -> str:
        return f"INSERT INTO people (id, name, age) VALUES ({self._id()}, 'n{self._count}', {self._count})"

    def change_people(self) -> str:
        return f"UPDATE people SET name = 'c{self._count}', spare = 's{self._count}' WHERE id % 5 = {self._id() % 5}"

    def renumber_person(self) -> str:
        return f"UPDATE people SET id = {self._id()} WHERE id = {self._id()}"

    def replace_person(self) -> str:
        one = self._id()
        return f"DELETE FROM people WHERE id = {one}; INSERT INTO people VALUES ({one}, 'r{self._count}', NULL)"

    def delete_people(self) -> str:
        return f"DELETE FROM people WHERE id % 7 = {self._id() % 7}"

    def add_visit(self) -> str:
        return f"INSERT INTO visits VALUES ({self._id()}, {self._day()}, 'v{self._count}')"

    def move_visits(self) -> str:
        return f"UPDATE visits SET day = {self._day()}, place = 'm{self._count}' WHERE id = {self._id()}"

    def delete_visits(self) -> str:
        return f"DELETE FROM visits WHERE id % 3 = {self._id() % 3}"

    # definitions
    def truncate(self) -> str:
        return self._random.choice(["TRUNCATE people", "TRUNCATE visits", f"TRUNCATE visits_{self._partition()}"])

    def swap_tables(self) -> str:
        new, old = f"new_{self._count}", f"old_{self._count}"
        return (
            f"{PEOPLE.format(new)}; INSERT INTO {new} SELECT id + 1, 'w{self._count}', age FROM people; "
            f"ALTER TABLE people RENAME TO {old}; ALTER TABLE {new} RENAME TO people"
        )

    def rename_for_a_time(self) -> str:
        return (
            f"ALTER TABLE people RENAME TO old; {self.change_people().replace('people', 'old', 1)}; "
            "ALTER TABLE old RENAME TO people"
        )

    def replace_table(self) -> str:
        return f"DROP TABLE people CASCADE; {PEOPLE.format('people')}; INSERT INTO people VALUES (1, 'p{self._count}')"

    def change_type(self) -> str:
        return self._random.choice([
            f"ALTER TABLE people ALTER name TYPE text USING name || '{self._count}'",
            "ALTER TABLE people ALTER age TYPE bigint USING age + 1",
            "ALTER TABLE people ALTER age TYPE int USING age - 1",
        ])  # fmt: skip

    def swap_columns(self) -> str:
        return (
            "ALTER TABLE people RENAME name TO other; ALTER TABLE people RENAME spare TO name; "
            "ALTER TABLE people RENAME other TO spare"
        )

    def replace_column(self) -> str:
        return f"ALTER TABLE people DROP age; ALTER TABLE people ADD age int DEFAULT {self._count}"

    def add_column(self) -> str:
        return f"ALTER TABLE people ADD more_{self._count} float DEFAULT random()"

    def leave_publication(self) -> str:
        return self._publish(f"DROP TABLE {self._random.choice(['people', 'visits'])}")

    def come_back(self) -> str:
        return self._publish(f"ADD TABLE {self._random.choice(['people', 'visits'])}")

    def filter_rows(self) -> str:
        return self._publish("SET TABLE people WHERE (id % 2 = 0), visits")

    def choose_columns(self) -> str:
        return self._publish("SET TABLE people (id), visits")

    def create_partition(self) -> str:
        number = self._partition()
        return (
            f"CREATE TABLE visits_{number} PARTITION OF visits {self._values(number)}; "
            f"INSERT INTO visits VALUES ({self._id()}, {number * 10}, 'q{self._count}')"
        )

    def attach_partition(self) -> str:
        number, name = self._partition(), f"loose_{self._count}"
        return (
            f"CREATE TABLE {name} (id int NOT NULL, day int NOT NULL, place text); "
            f"INSERT INTO {name} VALUES ({self._id()}, {number * 10 + 1}, 'a{self._count}'); "
            f"ALTER TABLE visits ATTACH PARTITION {name} {self._values(number)}; "
            f"ALTER TABLE {name} RENAME TO visits_{number}"
        )

    def detach_partition(self) -> str:
        number = self._partition()
        detach = f"ALTER TABLE visits DETACH PARTITION visits_{number}"
        return f"{detach}; ALTER TABLE visits_{number} RENAME TO parted_{number}"

    def reattach_partition(self) -> str:
        number = self._partition()
        return (
            f"DELETE FROM parted_{number} WHERE id % 2 = 0; "
            f"ALTER TABLE visits ATTACH PARTITION parted_{number} {self._values(number)}; "
            f"ALTER TABLE parted_{number} RENAME TO visits_{number}"
        )

    def drop_partition(self) -> str:
        return f"DROP TABLE visits_{self._partition()}"


ROWS: Mapping[Callable[[Changes], str], int] = {
    Changes.add_person: 4, Changes.change_people: 3, Changes.renumber_person: 2, Changes.replace_person: 2,
    Changes.delete_people: 1, Changes.add_visit: 4, Changes.move_visits: 3, Changes.delete_visits: 1,
}  # fmt: skip
DEFINITIONS: Mapping[Callable[[Changes], str], int] = {
    Changes.truncate: 2, Changes.swap_tables: 2, Changes.rename_for_a_time: 1, Changes.replace_table: 1,
    Changes.change_type: 2, Changes.swap_columns: 1, Changes.replace_column: 1, Changes.add_column: 1,
    Changes.leave_publication: 1, Changes.come_back: 1, Changes.filter_rows: 1, Changes.choose_columns: 1,
    Changes.create_partition: 2, Changes.attach_partition: 3, Changes.detach_partition: 2,
    Changes.reattach_partition: 3, Changes.drop_partition: 1,
}  # fmt: skip

ADDED = (Changes.create_partition, Changes.attach_partition, Changes.reattach_partition)


@dataclass(frozen=True)
class Crm(Reconciled):
    """The database. owner: how the application connects to it."""

    owner: str

    def expected(self) -> Tables:
        with psycopg.connect(self.owner, autocommit=True) as connection:
            return {table.table: rows_of(connection, table) for table in CRM.tables}

    def wait_captured(self) -> None:
        with psycopg.connect(self.owner, autocommit=True) as connection:
            ((end,),) = connection.execute(
                "SELECT pg_wal_lsn_diff(pg_logical_emit_message(true, 'headwater', ''), '0/0')::bigint"
            )
        progress = Progress(self.log, CRM)
        eventually(lambda: (commit := progress.last_commit()) is not None and commit.lsn >= end, "all is captured")


@pytest.fixture
def crm(servers: Stack) -> Iterator[Crm]:
    environment = f"t_{uuid.uuid4().hex[:12]}"
    owner = create_shop(servers.endpoints.postgres, environment)
    with psycopg.connect(owner, autocommit=True) as connection:
        connection.execute(SCHEMA)
    variables = {
        "HEADWATER_ENVIRONMENT": environment,
        "HEADWATER_MODULES": "crm",
        "HEADWATER_KAFKA": servers.endpoints.kafka,
        "HEADWATER_CONNECT": servers.endpoints.connect,
        "HEADWATER_PARTITIONS": "2",
        CRM.database: make_conninfo(servers.endpoints.postgres, user="shop_capture", dbname=environment),
    }
    settings = SourceSettings.from_environment(CRM, variables)
    with (
        Operator(CRM, settings, KafkaConnect(settings.connect), lambda _: None) as operator,
        closing(KafkaLog(settings.log)) as log,
    ):
        try:
            yield Crm(operator, log, owner)
        finally:
            operator.remove(topics=True)
            drop_database(servers.endpoints.postgres, environment)


def test_rows_that_changed_without_a_change_in_the_log_are_named_and_read_again(crm: Crm) -> None:
    read_all(crm)
    with psycopg.connect(crm.owner, autocommit=True) as connection:
        connection.execute(UNLOGGED)
    assert not check(crm, UNLOGGED)
    status = crm.status()
    assert status.state == "RUNNING", "it stops nothing"
    problems = " ".join(status.problems)
    assert 'table "public.people" was replaced by another one of the same name' in problems
    assert 'table "public.visits" had all rows' in problems
    check_mended(crm, UNLOGGED)


@pytest.mark.complete
@pytest.mark.soak
def test_topics_and_views_have_the_rows_of_the_tables_or_status_says_so(crm: Crm) -> None:
    read_all(crm)
    with psycopg.connect(make_conninfo(crm.owner, user="shop_capture"), autocommit=True) as connection:
        check_rounds(crm, Changes(connection, crm.operator, seed_of(31)), examples(ROUNDS), STATEMENTS)
