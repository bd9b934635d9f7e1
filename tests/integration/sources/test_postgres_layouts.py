"""Which changes of a real PostgreSQL table show that its rows may have changed without a change in the log."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from headwater.compose.settings import StackSettings
from headwater.eventlog.capturing import Captured, Source
from headwater.eventlog.capturing.database import Layout
from headwater.eventlog.capturing.naming import SourceNames
from headwater.eventlog.capturing.postgres.database import PostgresAddress
from headwater.eventlog.capturing.postgres.engine import PostgresDatabase
from tests.support.databases import drop_database

pytestmark = pytest.mark.servers


class Mood(StrEnum):
    GOOD = "good"


class Person(Captured, table="public.people", key="id"):
    id: int
    name: str | None
    mood: Mood | None


class Place(Captured, table="public.places", key=("id", "at")):
    id: int
    at: int


SOURCE = Source(name="crm", tables=(Person, Place))
SCHEMA = """
    CREATE TYPE mood AS ENUM ('good', 'bad');
    CREATE TABLE people (id int PRIMARY KEY, name varchar(10), mood mood, other text);
    INSERT INTO people VALUES (1, 'Ann', 'good');
    CREATE TABLE places (id int, at int, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
    CREATE TABLE places_1 PARTITION OF places FOR VALUES FROM (0) TO (10);
    CREATE TABLE places_2 PARTITION OF places FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (at);
    CREATE TABLE places_21 PARTITION OF places_2 FOR VALUES FROM (10) TO (15);
    INSERT INTO places VALUES (1, 1), (1, 11);
    CREATE TABLE outside (id int NOT NULL, at int NOT NULL); INSERT INTO outside VALUES (1, 21);
    CREATE PUBLICATION test_cdc_crm FOR TABLE people, places WITH (publish = 'insert, update, delete',
        publish_via_partition_root)
"""


@dataclass(frozen=True)
class Database:
    url: str

    def sql(self, statements: str) -> None:
        """Run each statement by itself, unless it begins a transaction."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in [statements] if statements.startswith("BEGIN") else statements.split("; "):
                connection.execute(statement)

    def layouts(self) -> dict[str, Layout]:
        address = PostgresAddress.read("HEADWATER_DATABASE", self.url)
        with PostgresDatabase.open(SOURCE, SourceNames.of(SOURCE, "test"), address, lambda: None) as database:
            return database.layouts()


@pytest.fixture(scope="module")
def server(stack: StackSettings) -> Iterator[Database]:
    name = f"t_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(stack.endpoints.postgres, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    yield Database(make_conninfo(stack.endpoints.postgres, dbname=name))
    drop_database(stack.endpoints.postgres, name)


@pytest.fixture
def database(server: Database) -> Database:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("DROP PUBLICATION IF EXISTS test_cdc_crm; DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        connection.execute(SCHEMA)
    return server


NEW = "CREATE TABLE people_new (LIKE people INCLUDING ALL); INSERT INTO people_new VALUES (2, 'Bob')"
REWRITTEN = "had all rows deleted or written anew, by TRUNCATE, ALTER TABLE or VACUUM FULL"
REPLACED = "was replaced by another one of the same name"
LEFT_OUT = "is left out of its publication, or rows or columns of it are"
BACK = "was left out of its publication for a time, or the publication was changed or replaced"
AFTERWARDS = {
    "swapped by renames": (
        f"{NEW}; ALTER TABLE people RENAME TO people_old; ALTER TABLE people_new RENAME TO people",
        {"public.people": [(REPLACED, True, True)]},
    ),
    "dropped and created again": (
        "DROP TABLE people; CREATE TABLE people (id int PRIMARY KEY, name varchar(10), mood mood)",
        {"public.people": [(REPLACED, True, True)]},
    ),
    "renamed and back": (
        "ALTER TABLE people RENAME TO persons; INSERT INTO persons VALUES (9); ALTER TABLE persons RENAME TO people",
        {"public.people": [("had another name, schema or owner for a time", True, True)]},
    ),
    "moved and back": (
        "CREATE SCHEMA IF NOT EXISTS away; ALTER TABLE people SET SCHEMA away; "
        "ALTER TABLE away.people SET SCHEMA public",
        {"public.people": [("had another name, schema or owner for a time", True, True)]},
    ),
    "out of the publication": (
        "ALTER PUBLICATION test_cdc_crm DROP TABLE people",
        {"public.people": [(LEFT_OUT, True, True)]},
    ),
    "out of the publication and back": (
        "ALTER PUBLICATION test_cdc_crm DROP TABLE people; ALTER PUBLICATION test_cdc_crm ADD TABLE people",
        {"public.people": [(BACK, True, True)]},
    ),
    "a row filter": (
        "ALTER PUBLICATION test_cdc_crm SET TABLE people WHERE (id > 7), places",
        {"public.people": [(LEFT_OUT, True, True)]},
    ),
    "a row filter that is gone again": (
        "ALTER PUBLICATION test_cdc_crm SET TABLE people WHERE (id > 7), places; "
        "ALTER PUBLICATION test_cdc_crm SET TABLE people, places",
        {"public.people": [(BACK, True, True)]},
    ),
    "a list of columns": (
        "ALTER PUBLICATION test_cdc_crm SET TABLE people (id), places",
        {"public.people": [(LEFT_OUT, True, True)]},
    ),
    "no updates for a time": (
        "ALTER PUBLICATION test_cdc_crm SET (publish = 'insert'); "
        "ALTER PUBLICATION test_cdc_crm SET (publish = 'insert, update, delete')",
        {"public.people": [(BACK, True, True)], "public.places": [(BACK, True, True)]},
    ),
    "no publication": (
        "DROP PUBLICATION test_cdc_crm",
        {"public.people": [(LEFT_OUT, True, True)], "public.places": [(LEFT_OUT, True, True)]},
    ),
    "TRUNCATE": ("TRUNCATE people", {"public.people": [(REWRITTEN, True, True)]}),
    "USING": (
        "ALTER TABLE people ALTER name TYPE varchar(10) USING name || 'x'",
        {"public.people": [(REWRITTEN, True, True)]},
    ),
    "a default of its own in each row": (
        "ALTER TABLE people ADD COLUMN made float DEFAULT random()",
        {"public.people": [(REWRITTEN, True, True)]},
    ),
    "VACUUM FULL": ("VACUUM FULL people", {"public.people": [(REWRITTEN, True, True)]}),
    "a column that is dropped and added again": (
        "ALTER TABLE people DROP name; ALTER TABLE people ADD name varchar(10) DEFAULT 'Zoe'",
        {"public.people": [("has other columns name than before, or other types of them", True, True)]},
    ),
    "columns that swap their names": (
        "ALTER TABLE people RENAME name TO third; ALTER TABLE people RENAME other TO name; "
        "ALTER TABLE people RENAME third TO other",
        {"public.people": [("has other columns name than before, or other types of them", True, True)]},
    ),
    "a renamed value of an enum": (
        "ALTER TYPE mood RENAME VALUE 'good' TO 'fine'",
        {"public.people": [("has an enum of which a value was renamed", True, True)]},
    ),
    "TRUNCATE of a partition": (
        "TRUNCATE places_21",
        {"public.places": [(REWRITTEN.replace("rows", "rows public.places_21 of it"), True, True)]},
    ),
    "an attached partition": (
        "ALTER TABLE places ATTACH PARTITION outside FOR VALUES FROM (20) TO (30)",
        {"public.places": [("has got the rows of public.outside, which was attached", True, False)]},
    ),
    "a partition that is created, filled and attached in one transaction": (
        "BEGIN; CREATE TABLE filled (id int NOT NULL, at int NOT NULL); INSERT INTO filled VALUES (1, 31); "
        "ALTER TABLE places ATTACH PARTITION filled FOR VALUES FROM (30) TO (40); COMMIT",
        {"public.places": [("has got the rows of public.filled, which was attached", True, False)]},
    ),
    "an attached partition of partitions": (
        "CREATE TABLE tree (id int NOT NULL, at int NOT NULL) PARTITION BY RANGE (at); "
        "CREATE TABLE leaf PARTITION OF tree FOR VALUES FROM (40) TO (50); INSERT INTO tree VALUES (1, 41); "
        "ALTER TABLE places ATTACH PARTITION tree FOR VALUES FROM (40) TO (50)",
        {"public.places": [("has got the rows of public.leaf, which was attached", True, False)]},
    ),
    "a table that inherits it": (
        "CREATE TABLE child () INHERITS (people); INSERT INTO child VALUES (7)",
        {"public.people": [("has got the rows of public.child, which was attached", True, False)]},
    ),
    "a detached partition": (
        "ALTER TABLE places DETACH PARTITION places_1",
        {"public.places": [("has lost the rows of public.places_1, which was detached or dropped", False, True)]},
    ),
    "a dropped partition": (
        "DROP TABLE places_21",
        {"public.places": [("has lost the rows of public.places_21, which was detached or dropped", False, True)]},
    ),
    "a partition that was detached for a time": (
        "ALTER TABLE places DETACH PARTITION places_1; INSERT INTO places_1 VALUES (2, 2); "
        "ALTER TABLE places ATTACH PARTITION places_1 FOR VALUES FROM (0) TO (10)",
        {"public.places": [("was without public.places_1 for a time", True, True)]},
    ),
}
HARMLESS = {
    "changes of rows": "INSERT INTO people VALUES (3); UPDATE people SET name = 'x'; DELETE FROM places",
    "VACUUM and ANALYZE": "VACUUM people; ANALYZE places; REINDEX TABLE people",
    "a column that is not declared": "ALTER TABLE people ADD more int DEFAULT 7; ALTER TABLE people DROP other",
    "a longer varchar": "ALTER TABLE people ALTER name TYPE varchar(20)",
    "another value of an enum": "ALTER TYPE mood ADD VALUE 'odd'",
    "an index and a constraint": "CREATE INDEX ON people (name); ALTER TABLE people ADD CHECK (id > 0)",
    "rights": "GRANT SELECT ON people TO public; GRANT SELECT ON places TO public",
    "a created partition with rows": (
        "CREATE TABLE places_3 PARTITION OF places FOR VALUES FROM (20) TO (30); INSERT INTO places VALUES (1, 21); "
        "CREATE TABLE places_9 PARTITION OF places DEFAULT; INSERT INTO places VALUES (1, 99)"
    ),
    "created partitions of partitions": (
        "CREATE TABLE places_4 PARTITION OF places FOR VALUES FROM (40) TO (50) PARTITION BY RANGE (at); "
        "CREATE TABLE places_41 PARTITION OF places_4 FOR VALUES FROM (40) TO (50); INSERT INTO places VALUES (1, 41)"
    ),
    "an attached partition without rows": (
        "CREATE TABLE empty (LIKE outside); ALTER TABLE places ATTACH PARTITION empty FOR VALUES FROM (60) TO (70)"
    ),
    "another table in the publication": "ALTER PUBLICATION test_cdc_crm ADD TABLE outside",
}


@pytest.mark.parametrize(("statements", "expected"), AFTERWARDS.values(), ids=AFTERWARDS)
def test_changes_that_the_log_does_not_have_are_found(
    database: Database, statements: str, expected: dict[str, list[tuple[str, bool, bool]]]
) -> None:
    before = {name: layout.noted(layout, ()) for name, layout in database.layouts().items()}
    database.sql(statements)
    found = {
        name: [(each.why, each.reads, each.sweeps) for each in PostgresDatabase.missed(before[name], layout)]
        for name, layout in database.layouts().items()
    }
    assert {name: changes for name, changes in found.items() if changes} == expected


@pytest.mark.parametrize("statements", HARMLESS.values(), ids=HARMLESS)
def test_changes_that_the_log_has_are_no_reason_to_read_again(database: Database, statements: str) -> None:
    before = {name: layout.noted(layout, ()) for name, layout in database.layouts().items()}
    database.sql(statements)
    assert {name: PostgresDatabase.missed(before[name], layout) for name, layout in database.layouts().items()} == {
        "public.people": [], "public.places": []
    }  # fmt: skip


def test_a_column_that_was_gone_for_some_looks_is_another_one_when_it_is_back(database: Database) -> None:
    noted = database.layouts()["public.people"]
    database.sql("ALTER TABLE people DROP name")
    without = database.layouts()["public.people"]
    assert PostgresDatabase.missed(noted, without) == [], "the check of columns names it"
    database.sql("ALTER TABLE people ADD name varchar(10)")
    assert PostgresDatabase.missed(without.noted(noted, {"name"}), database.layouts()["public.people"])


def test_a_column_that_had_another_name_for_some_looks_is_found_when_it_is_back(database: Database) -> None:
    noted = database.layouts()["public.people"]
    database.sql("ALTER TABLE people RENAME name TO called")
    without = database.layouts()["public.people"]
    database.sql("UPDATE people SET called = 'Eve'; ALTER TABLE people RENAME called TO name")
    assert PostgresDatabase.missed(noted, database.layouts()["public.people"]) == []
    assert PostgresDatabase.missed(without.noted(noted, {"name"}), database.layouts()["public.people"])


def test_an_upgrade_of_the_server_is_no_reason_to_read_again() -> None:
    """pg_upgrade keeps the numbers of tables, files, columns and enums, and gives others to publications."""
    was = Layout(17, 1, {}, {"id": (1, 23)}, {}, "9/1/8", "77")
    assert PostgresDatabase.missed(was, Layout(18, 1, {}, {"id": (1, 23)}, {}, "19/2/18", "78")) == []
    assert PostgresDatabase.missed(was, Layout(17, 1, {}, {"id": (1, 23)}, {}, "19/2/18"))
