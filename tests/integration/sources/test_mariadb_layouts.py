"""What is noticed in a real MariaDB of changes that its binary log does not have as changes of rows."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from headwater.eventlog.capturing import Captured, Source
from headwater.eventlog.capturing.database import Layout
from headwater.eventlog.capturing.mysql.database import MySqlAddress
from headwater.eventlog.capturing.mysql.engine import MariaDatabase
from headwater.eventlog.capturing.naming import SourceNames
from tests.integration.sources.mariadb_server import HOST, LOGGED, MariaDb, mariadb
from tests.support.waiting import eventually

pytestmark = [pytest.mark.complete, pytest.mark.servers, pytest.mark.xdist_group("another Kafka Connect")]


class Person(Captured, table="crm.people", key="id"):
    id: int
    note: str | None


class Sale(Captured, table="crm.sales", key="id"):
    id: int


SOURCE = Source("crm", (Person, Sale), engine="mariadb")
PEOPLE = (
    "DROP TABLE IF EXISTS crm.people, crm.people_new, crm.people_old, crm.away",
    "CREATE TABLE crm.people (id int PRIMARY KEY, note varchar(20), other varchar(20))",
    "INSERT INTO crm.people VALUES (1, 'a', 'b')",
)
SALES = (
    "DROP TABLE IF EXISTS crm.sales, crm.aside",
    "CREATE TABLE crm.sales (id int PRIMARY KEY) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), "
    "PARTITION p1 VALUES LESS THAN (20))",
    "CREATE TABLE crm.aside (id int PRIMARY KEY)",
    "INSERT INTO crm.sales VALUES (1), (11)",
    "INSERT INTO crm.aside VALUES (2), (12)",
    "DELETE FROM crm.aside WHERE id = 12",
)
WRITTEN = "was replaced by another one of the same name, or had all rows deleted or written anew"
RENAMED = "had another name for a time"


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDb]:
    with mariadb() as made:
        made.start(*LOGGED)
        made.sql(
            "CREATE DATABASE crm",
            "CREATE USER weak",
            "GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT, RELOAD ON *.* TO weak",
        )
        yield made


def look(server: MariaDb, user: str = "root") -> tuple[dict[str, Layout], list[str]]:
    """The layouts that an account sees, and the warnings that it gets."""
    address = MySqlAddress.read("mariadb", "X", f"mariadb://{user}@{HOST}:{server.port}")
    with MariaDatabase.open(SOURCE, SourceNames.of(SOURCE, "test"), address, lambda: None) as opened:
        return opened.layouts(), opened.warnings()


def a_second_later(server: MariaDb) -> None:
    """The server says in seconds when a table was defined."""
    before = int(time.time())
    eventually(lambda: int(time.time()) > before, "the next second")


def changes(server: MariaDb, table: str, *statements: str, user: str = "root") -> list[tuple[str, bool, bool]]:
    """What is noticed of a table after these statements: why, and whether its rows are read again, and swept."""
    server.sql(*PEOPLE, *SALES)
    was = look(server, user)[0][table]
    a_second_later(server)
    server.sql(*statements)
    return [(each.why, each.reads, each.sweeps) for each in MariaDatabase.missed(was, look(server, user)[0][table])]


@pytest.mark.parametrize(
    ("statements", "why"),
    [
        (["TRUNCATE crm.people"], WRITTEN),
        (["OPTIMIZE TABLE crm.people"], WRITTEN),
        (["ALTER TABLE crm.people MODIFY note varchar(20) CHARACTER SET ascii"], WRITTEN),
        (["ALTER TABLE crm.people PARTITION BY HASH (id) PARTITIONS 2"], WRITTEN),
        (
            [
                "CREATE TABLE crm.people_new LIKE crm.people",
                "INSERT INTO crm.people_new VALUES (7, 'x', 'y')",
                "RENAME TABLE crm.people TO crm.people_old, crm.people_new TO crm.people",
            ],
            WRITTEN,
        ),
        (["DROP TABLE crm.people", PEOPLE[1]], WRITTEN),
        (
            [
                "RENAME TABLE crm.people TO crm.away",
                "UPDATE crm.away SET note = 'x'",
                "RENAME TABLE crm.away TO crm.people",
            ],
            RENAMED,
        ),
        (["ALTER TABLE crm.people DROP note, ADD note varchar(20) AFTER id"], RENAMED),
        (
            ["ALTER TABLE crm.people DROP note, ADD note varchar(20) DEFAULT 'x'"],
            "had columns renamed or moved, or dropped and others added",
        ),
        (
            ["ALTER TABLE crm.people CHANGE note was varchar(20), CHANGE other note varchar(20)"],
            "had columns renamed or moved, or dropped and others added",
        ),
    ],
)
def test_rows_that_change_without_changes_are_read_again_and_swept(
    server: MariaDb, statements: list[str], why: str
) -> None:
    (found, *_) = changes(server, "crm.people", *statements)
    assert found[0].startswith(why)
    assert found[1:] == (True, True)


def test_what_keeps_all_rows_is_nothing(server: MariaDb) -> None:
    assert not changes(server, "crm.people", "INSERT INTO crm.people VALUES (2, 'c', 'd')", "ANALYZE TABLE crm.people")
    for kept in ("ADD more int DEFAULT 5", "DROP other", "ADD INDEX (note)", "COMMENT 'x'", "ADD more int AFTER id"):
        assert not changes(server, "crm.people", f"ALTER TABLE crm.people {kept}"), kept


def test_a_column_that_was_gone_and_is_back_is_read_again(server: MariaDb) -> None:
    server.sql(*PEOPLE, *SALES)
    was = look(server)[0]["crm.people"]
    server.sql("ALTER TABLE crm.people DROP note")
    between = look(server)[0]["crm.people"]
    assert not MariaDatabase.missed(was, between), "the check of columns names it"
    server.sql("ALTER TABLE crm.people ADD note varchar(20) DEFAULT 'x'")
    (found,) = MariaDatabase.missed(between.noted(was, {"note"}), look(server)[0]["crm.people"])
    assert found.why.startswith("has other columns note than before")


@pytest.mark.parametrize(
    ("statement", "why", "reads", "sweeps"),
    [
        ("EXCHANGE PARTITION p0 WITH TABLE crm.aside", "had all rows of the partition p0 exchanged", True, True),
        ("TRUNCATE PARTITION p1", "had all rows of the partition p1 exchanged, deleted", True, True),
        ("DROP PARTITION p0", "has lost the partition p0", False, True),
        ("CONVERT PARTITION p0 TO TABLE crm.out_of_it", "has lost the partition p0", False, True),
    ],
)
def test_partitions_that_come_and_go_are_noticed(
    server: MariaDb, statement: str, why: str, reads: bool, sweeps: bool
) -> None:
    (found,) = changes(server, "crm.sales", "DROP TABLE IF EXISTS crm.out_of_it", f"ALTER TABLE crm.sales {statement}")
    assert found[0].startswith(why)
    assert found[1:] == (reads, sweeps)


def test_a_new_partition_is_read_if_it_has_rows(server: MariaDb) -> None:
    new = "ALTER TABLE crm.sales ADD PARTITION (PARTITION p2 VALUES LESS THAN (30))"
    assert not changes(server, "crm.sales", new)
    assert changes(server, "crm.sales", new, "INSERT INTO crm.sales VALUES (21)") == [
        ("has got the rows of the partition p2", True, False)
    ]


def test_an_account_that_sees_no_numbers_is_warned_and_notices_tables_that_are_renamed(server: MariaDb) -> None:
    server.sql(*PEOPLE, *SALES)
    assert look(server)[1] == []
    (warning,) = look(server, "weak")[1]
    assert warning.endswith("run GRANT PROCESS ON *.* TO 'weak'@'%'")
    swapped = (
        "CREATE TABLE crm.people_new LIKE crm.people",
        "RENAME TABLE crm.people TO crm.people_old, crm.people_new TO crm.people",
    )
    ((why, *_),) = changes(server, "crm.people", *swapped, user="weak")
    assert why.startswith(RENAMED)
    before = look(server, "weak")[0]["crm.people"]
    assert not MariaDatabase.missed(before, look(server)[0]["crm.people"]), "the right that was lacking is no change"
