"""MariaDB and MySQL without a server: addresses, properties, positions, rights, types, and what a lost log is."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from decimal import Decimal
from typing import Any

import orjson
import pytest
from psycopg.conninfo import conninfo_to_dict

from headwater.eventlog.capturing import Captured, Column, Kind, Source
from headwater.eventlog.capturing.changes import ChangeDecoder
from headwater.eventlog.capturing.connector import connector_config, new_databases
from headwater.eventlog.capturing.errors import SourceDeclarationError, UnreadableChange
from headwater.eventlog.capturing.mysql.checks import account_sql, rights_of
from headwater.eventlog.capturing.mysql.database import MySqlAddress
from headwater.eventlog.capturing.mysql.engine import gap, lag_bytes
from headwater.eventlog.capturing.mysql.types import BinlogColumn
from headwater.eventlog.capturing.naming import SourceNames, source_topics
from headwater.eventlog.capturing.positions import BinlogPosition
from headwater.eventlog.capturing.postgres.database import PostgresAddress
from headwater.eventlog.capturing.settings import SourceSettings
from headwater.eventlog.errors import SettingError
from headwater.eventlog.settings import LogSettings
from headwater.projections.table.changes import RecordPlace, TableReader, envelope_of


class Client(Captured, table="crm.clients", key="id"):
    id: int
    is_new: bool


class Note(Captured, table="notes.notes", key="id"):
    id: int


CRM = Source("crm", (Client, Note), engine="mariadb")
VARIABLES = {
    "HEADWATER_ENVIRONMENT": "test",
    "HEADWATER_MODULES": "crm",
    "HEADWATER_KAFKA": "kafka:9092",
    "HEADWATER_CRM_DATABASE": "mariadb://reader:p%40ss@db.example:3307?sslmode=verify-full&sslrootcert=/ca.pem",
}
SECURED = {
    "HEADWATER_KAFKA_SECURITY": "SASL_PLAINTEXT",
    "HEADWATER_KAFKA_USER": "u",
    "HEADWATER_KAFKA_PASSWORD": "secret",
}
LOGS = {"binlog.000008": 500, "binlog.000009": 1_000, "binlog.000010": 300}


def config(**variables: str) -> dict[str, str]:
    return connector_config(CRM, SourceSettings.from_environment(CRM, {**VARIABLES, **variables}), 10)


def test_the_connector_is_mariadb_s_with_a_history_of_the_schema() -> None:
    made = config(**SECURED)
    assert made["connector.class"] == "io.debezium.connector.mariadb.MariaDbConnector"
    assert made["database.include.list"] == "crm,notes"
    assert made["table.include.list"] == r"crm\.clients,notes\.notes"
    assert made["boolean.selector"] == r"crm\.clients\.is_new"
    assert made["schema.history.internal.kafka.topic"] == "test.cdc.crm.schema-history"
    for client in ("producer", "consumer"):
        assert "secret" in made[f"schema.history.internal.{client}.sasl.jaas.config"]
    assert not [
        name for name in made if name.startswith(("slot.", "publication.", "plugin.", "post.", "heartbeat.act"))
    ]
    topics = {topic.name: topic.settings for topic in source_topics(CRM, LogSettings())}
    assert topics["cdc.crm.schema-history"]["retention.ms"] == "-1", "without it, no connector starts again"
    assert "cdc.crm.message" not in topics


def test_snapshots_read_times_in_utc_whatever_zone_the_worker_has_and_years_as_they_are() -> None:
    made = config()
    assert made["enable.time.adjuster"] == "false"
    assert made["driver.connectionTimeZone"] == "UTC"
    assert made["driver.forceConnectionTimeZoneToSession"] == "true"
    assert made["driver.preserveInstants"] == "true"


def test_a_database_without_a_captured_table_is_noticed() -> None:
    wanted = config()
    assert new_databases(wanted, wanted) == []
    assert new_databases(wanted, {**wanted, "database.include.list": "notes,other"}) == ["crm"]
    assert new_databases({}, {}) == [], "PostgreSQL has no such list"


def test_the_server_knows_each_deployment_s_connector_by_another_number() -> None:
    numbers = {SourceNames.of(CRM, environment).server_id for environment in ("test", "live", "ci")}
    assert len(numbers) == 3
    assert all(2**31 <= number < 2**32 for number in numbers), "ids that people give are lower"


def test_the_address_is_debezium_s_and_pymysql_s() -> None:
    made = config()
    assert {name: made[name] for name in made if name.startswith("database.") and "server" not in name} == {
        "database.hostname": "db.example",
        "database.port": "3307",
        "database.user": "reader",
        "database.password": "p@ss",
        "database.ssl.mode": "verify-full",
        "database.include.list": "crm,notes",
    }
    address = MySqlAddress.read("mysql", "X", "mysql://reader:${env:SECRET}@db?sslmode=verify-full")
    assert address.for_debezium()["database.ssl.mode"] == "verify_identity"
    assert address.for_debezium()["database.password"] == "${env:SECRET}"
    assert address.for_pymysql()["ssl"] == {"ca": None, "verify_mode": True, "check_hostname": True}
    assert "SECRET" not in repr(address)


def test_a_host_that_vanishes_during_a_query_is_noticed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = MySqlAddress.read("mysql", "X", f"mysql://u:p@127.0.0.1:{server.getsockname()[1]}")
        with address.reach() as reached:
            assert reached.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert reached.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == 3
            assert reached.gettimeout() is None, "a query may take long"
    given = conninfo_to_dict(PostgresAddress.read("X", "postgresql://u:p@db/crm").for_psycopg())
    assert {name: value for name, value in given.items() if "keepalives" in name or name == "tcp_user_timeout"} == {
        "keepalives_idle": "20", "keepalives_interval": "10", "keepalives_count": "3", "tcp_user_timeout": "50000",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("", "mariadb://headwater:password@db:3306"),
        ("postgresql://u:secret@db/crm", "with mariadb://"),
        ("mysql://u:secret@db", "with mariadb://"),
        ("mariadb://u:secret@db/crm", "without a database"),
        ("mariadb://secret@", "a user and a host"),
        ("mariadb://u:secret@db:x", "such as mariadb://"),
        ("mariadb://u:secret@db?sslmode=prefer", "sslmode=verify-full"),
        ("mariadb://u:secret@db?ssl=1", "no other option"),
        ("mariadb://u:secret@db?ssl", "such as mariadb://"),
    ],
)
def test_a_wrong_address_is_named_without_its_secret(value: str, said: str) -> None:
    with pytest.raises(SettingError, match=f"HEADWATER_CRM_DATABASE.*{said}") as wrong:
        config(HEADWATER_CRM_DATABASE=value)
    assert "secret" not in str(wrong.value)


def test_an_outbox_and_an_unknown_engine_are_refused() -> None:
    class Other(Captured, table="crm.others", key="id"):
        id: int

    with pytest.raises(SourceDeclarationError, match="whose log has no messages"):
        Source("others", (Other,), engine="mariadb", outbox=True)
    with pytest.raises(SourceDeclarationError, match="write one of postgresql, mariadb, mysql"):
        Source("others", (Other,), engine="oracle")  # type: ignore[arg-type]


def record(op: str = "c", file: str = "binlog.000009", pos: int = 4, row: int = 0, order: int = 1) -> bytes:
    """The value of a record, as Debezium's connector for MariaDB writes it."""
    source: dict[str, Any] = {"connector": "mariadb", "ts_ms": 5, "file": file, "pos": pos, "row": row, "gtid": "0-7-3"}
    transaction = {"id": "0-7-3", "total_order": order, "data_collection_order": 1} if order else None
    after = {"id": 1, "is_new": True}
    return orjson.dumps({"op": op, "before": None, "after": after, "source": source, "transaction": transaction})


def position(**where: Any) -> BinlogPosition:
    found = ChangeDecoder(Client).decode(b'{"id":1}', record(**where)).position
    assert isinstance(found, BinlogPosition)
    return found


def test_positions_sort_in_the_order_of_the_log() -> None:
    first, second = position(), position(row=1, order=2)
    assert first == BinlogPosition(9, 4, 0, 1, "0-7-3", "binlog.000009")
    assert first < second < position(pos=10) < position(file="binlog.000010") < position(file="binlog.1000000")
    assert str(first) == "binlog.000009:4"
    assert position(op="r", order=0).transaction == ""


@pytest.mark.parametrize(
    ("place", "lag", "said"),
    [
        ({"file": "binlog.000009", "pos": 400, "server_id": 7}, 900, None),
        ({"file": "binlog.000010", "pos": 300, "server_id": 7}, 0, None),
        ({"file": "binlog.000007", "pos": 4, "server_id": 7}, None, "no longer has binary log binlog.000007"),
        ({"file": "binlog.000009", "pos": 1_001, "server_id": 7}, 299, "ends before position 1001"),
        ({"file": "other.000001", "pos": 4, "server_id": 8}, None, None),
        ({"file": "binlog.000007", "pos": 4}, None, "no longer has"),
    ],
)
def test_a_place_that_the_server_no_longer_has_is_a_gap(
    place: dict[str, Any], lag: int | None, said: str | None
) -> None:
    found = gap(place, LOGS, 7)
    assert (found is None) if said is None else (said in (found or ""))
    assert lag_bytes(place, LOGS) == lag


def test_rights_are_those_of_the_server_the_database_and_the_table() -> None:
    found = rights_of(
        [
            "GRANT RELOAD, BINLOG MONITOR ON *.* TO `capture`@`%` IDENTIFIED BY PASSWORD '*X'",
            "GRANT SELECT, LOCK TABLES ON `crm\\_eu`.* TO `capture`@`%`",
            "GRANT SELECT ON `crm`.`clients` TO `capture`@`%`",
            "GRANT `reader` TO `capture`@`%`",
        ]
    )
    assert found == {
        "*.*": {"RELOAD", "BINLOG MONITOR"},
        "crm_eu": {"SELECT", "LOCK TABLES"},
        "crm.clients": {"SELECT"},
    }
    assert account_sql("a@b@%") == "'a@b'@'%'"


def column(kind: Kind, *, nullable: bool = True, choices: tuple[str, ...] = ()) -> Column:
    return Column("c", kind, nullable, required=False, choices=choices)


@pytest.mark.parametrize(
    ("kind", "shown", "said"),
    [
        (Kind.BOOLEAN, "tinyint(1)", None),
        (Kind.BOOLEAN, "tinyint(4)", "declare it as Decimal or int"),
        (Kind.BOOLEAN, "bit(1)", None),
        (Kind.BOOLEAN, "bit(2)", "declare it as bytes"),
        (Kind.INTEGER, "bigint(20) unsigned", None),
        (Kind.DECIMAL, "bigint(20) unsigned", None),
        (Kind.TEXT, "set('a','b')", None),
        (Kind.TEXT, "point", "which is not captured"),
        (Kind.INTERVAL, "time", "declare it as time"),
        (Kind.ENUM, "enum('a','it''s')", "may be it's, which its Enum lacks"),
    ],
)
def test_a_type_fits_or_the_right_one_is_named(kind: Kind, shown: str, said: str | None) -> None:
    name = shown.partition("(")[0].split()[0]
    found = BinlogColumn("c", name, shown, nullable=True, is_virtual=False).problem(column(kind, choices=("a",)))
    assert (found is None) if said is None else (said in (found or ""))


MONEY, WIDE = (12, 2), (38, 10)


@pytest.mark.parametrize(
    ("digits", "shown", "said"),
    [
        (MONEY, "decimal(12,2)", None),
        (MONEY, "decimal(10,1) unsigned", None),
        (MONEY, "int(11)", None),
        (MONEY, "decimal(12,3)", "max_digits=13 and decimal_places=3"),
        (MONEY, "decimal(13,2) unsigned zerofill", "max_digits=13 and decimal_places=2"),
        (MONEY, "bigint(20) unsigned", "max_digits=22 and decimal_places=2"),
        (WIDE, "bigint(20)", None),
        (None, "decimal(65,30)", None),
    ],
)
def test_a_decimal_has_room_for_all_values_of_its_column(
    digits: tuple[int, int] | None, shown: str, said: str | None
) -> None:
    name = shown.partition("(")[0]
    declared = replace(column(Kind.DECIMAL), digits=digits)
    found = BinlogColumn("c", name, shown, nullable=True, is_virtual=False).problem(declared)
    assert (found is None) if said is None else (said in (found or ""))


def test_a_virtual_column_is_refused() -> None:
    found = BinlogColumn("c", "int", "int(11)", nullable=True, is_virtual=True)
    assert "make it STORED" in (found.problem(column(Kind.INTEGER)) or "")


def test_a_large_unsigned_number_is_read_exactly() -> None:
    class Large(Captured, table="crm.large", key="id"):
        id: int

    class Exact(Captured, table="crm.exact", key="id"):
        id: Decimal

    value = json.loads(record())
    value["after"] = {"id": 2**64 - 1}
    with pytest.raises(UnreadableChange, match="declare it as Decimal"):
        ChangeDecoder(Large).decode(b'{"id":18446744073709551615}', orjson.dumps(value))
    change = ChangeDecoder(Exact).decode(b'{"id":18446744073709551615}', orjson.dumps(value))
    assert (change.key, change.row) == ("18446744073709551615", {"id": "18446744073709551615"})


def test_a_view_reads_a_record_of_mariadb_as_the_decoder_does() -> None:
    class Account(Captured, table="crm.accounts", key="id"):
        id: Decimal
        is_new: bool
        balance: Decimal | None
        document: dict[str, Any]

    Source("accounts", (Account,), engine="mariadb")
    value = json.loads(record())
    value["after"] = {"id": 2**64 - 1, "is_new": True, "balance": "12.50", "document": '{"a": 1}'}
    key, encoded = b'{"id":18446744073709551615}', orjson.dumps(value)
    seen = envelope_of(TableReader.of(Account, Account.columns), RecordPlace(Account.topic(), 0, 7, 5), key, encoded)
    change = ChangeDecoder(Account).decode(key, encoded)
    assert seen.stream.rpartition("/")[2] == change.key == "18446744073709551615"
    assert seen.data == change.row
