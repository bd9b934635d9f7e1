"""What a check finds in a real MariaDB, and that the SQL which it prints solves it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import partial

import pytest

from headwater.eventlog.capturing import Captured, Source
from headwater.eventlog.capturing.mysql import engine
from headwater.eventlog.capturing.mysql.database import HOLD_SESSION, MySqlAddress
from headwater.eventlog.capturing.mysql.engine import MariaDatabase
from headwater.eventlog.capturing.naming import SourceNames
from tests.integration.sources.mariadb_server import HOST, LOGGED, MariaDb, mariadb
from tests.support.waiting import BOUND_S, eventually

pytestmark = [pytest.mark.complete, pytest.mark.servers, pytest.mark.xdist_group("another Kafka Connect")]


class Client(Captured, table="crm.clients", key="id"):
    id: int


class Moment(Captured, table="crm.moments", key="at"):
    at: datetime


MOMENTS = Source("moments", (Moment,), engine="mariadb")
SOURCE = Source("crm", (Client,), engine="mariadb")


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDb]:
    with mariadb() as made:
        made.start(*LOGGED)
        made.sql(
            "CREATE DATABASE crm",
            "CREATE DATABASE other",
            "CREATE TABLE crm.clients (id int PRIMARY KEY)",
            "CREATE TABLE crm.sound (id int PRIMARY KEY, note text COMMENT 'PERIOD FOR x, COMPRESSED', ip inet4)",
            "CREATE TABLE other.ips (id int PRIMARY KEY, ip inet6, note text COMPRESSED)",
        )
        yield made


def problems(server: MariaDb) -> list[str]:
    address = MySqlAddress.read("mariadb", "X", f"mariadb://root@{HOST}:{server.port}")
    with MariaDatabase.open(SOURCE, SourceNames.of(SOURCE, "test"), address, lambda: None) as opened:
        return list(opened.check(registered=False).problems)


@pytest.mark.parametrize(
    ("columns", "what", "solved"),
    [
        ("ip inet6", 'the column "ip", which is inet6', "MODIFY `ip` varchar(39)"),
        ("note text COMPRESSED", 'the column "note", which is COMPRESSED', "MODIFY `note` text …"),
        ("note varchar(9) COMPRESSED", 'the column "note", which is COMPRESSED', "MODIFY `note` varchar …"),
        ("a date, b date, PERIOD FOR valid (a, b)", "the period `valid`", "DROP PERIOD FOR `valid`"),
    ],
)
def test_tables_at_which_debezium_stops_are_named_although_they_are_not_declared(
    server: MariaDb, columns: str, what: str, solved: str
) -> None:
    assert problems(server) == []
    server.sql(f"CREATE TABLE crm.`of others` (id int PRIMARY KEY, {columns})")
    try:
        (problem,) = problems(server)
        assert problem.startswith(f'table "crm.of others" has {what}, at which Debezium stops')
        assert f"run ALTER TABLE `crm`.`of others` {solved}" in problem
        server.sql(f"ALTER TABLE crm.`of others` {solved.replace('varchar …', 'varchar(9)').replace('…', '')}")
        assert problems(server) == []
    finally:
        server.sql("DROP TABLE crm.`of others`")


@pytest.mark.parametrize("precision", ["(1)", "(6)"])
def test_a_key_that_has_two_texts_is_refused(server: MariaDb, precision: str) -> None:
    server.sql(f"CREATE TABLE crm.moments (at timestamp{precision} PRIMARY KEY)")
    address = MySqlAddress.read("mariadb", "X", f"mariadb://root@{HOST}:{server.port}")
    try:
        with MariaDatabase.open(MOMENTS, SourceNames.of(MOMENTS, "test"), address, lambda: None) as opened:
            (problem,) = opened.check(registered=True).problems
            assert problem.startswith(f'column "at" of table "crm.moments" is timestamp{precision}, whose texts')
            server.sql(problem.rpartition("or run ")[2])
            assert opened.check(registered=True).problems == ()
    finally:
        server.sql("DROP TABLE crm.moments")


def test_a_system_versioned_table_is_refused(server: MariaDb) -> None:
    server.sql("ALTER TABLE crm.clients ADD SYSTEM VERSIONING")
    (problem,) = problems(server)
    assert problem.startswith('table "crm.clients" is system-versioned')
    server.sql(problem.partition(": run ")[2].partition(", or")[0])
    assert problems(server) == []


def test_one_connection_at_a_time_has_the_lock_of_a_source(server: MariaDb) -> None:
    address, names = MySqlAddress.read("mariadb", "X", f"mariadb://root@{HOST}:{server.port}"), {}
    for environment in ("test", "other"):
        names[environment] = SourceNames.of(SOURCE, environment)
    with MariaDatabase.open(SOURCE, names["test"], address, lambda: None) as first:
        assert [first.hold(), first.still_holds()] == [True, True]
        with MariaDatabase.open(SOURCE, names["test"], address, lambda: None) as second:
            assert not second.hold()
        with MariaDatabase.open(SOURCE, names["other"], address, lambda: None) as second:
            assert second.hold(), "another deployment has the same database"
        server.sql(f"KILL {first.rows('SELECT CONNECTION_ID() AS id')[0]['id']}")
        assert not first.still_holds()
        with MariaDatabase.open(SOURCE, names["test"], address, lambda: None) as second:
            eventually(second.hold, "the server has ended the other connection")


def test_a_lock_lasts_as_long_as_its_connection_is_kept_alive(server: MariaDb, monkeypatch: pytest.MonkeyPatch) -> None:
    address = MySqlAddress.read("mariadb", "X", f"mariadb://root@{HOST}:{server.port}")
    opened = partial(MariaDatabase.open, SOURCE, SourceNames.of(SOURCE, "test"), address, lambda: None)
    monkeypatch.setattr(engine, "KEEP_S", 0.1)
    with opened() as first, opened() as second:
        assert first.hold()
        number = first.rows("SELECT CONNECTION_ID() AS id")[0]["id"]
        asked = f"SELECT QUERY_ID AS id FROM information_schema.PROCESSLIST WHERE ID = {number}"
        last = second.rows(asked)
        eventually(lambda: second.rows(asked) != last)
        assert [second.hold(), first.still_holds()] == [False, True]
    monkeypatch.setattr(engine, "KEEP_S", BOUND_S)  # as if its machine were gone
    with opened() as first, opened() as second:
        assert first.hold()
        first.rows(HOLD_SESSION.format(seconds=1))
        eventually(second.hold)
        assert not first.still_holds()
