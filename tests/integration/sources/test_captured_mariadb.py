"""A MariaDB server captured by `headwater sources`: types, kills, changes of its schema, and bad input."""

from __future__ import annotations

import base64
import hashlib
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pymysql
import pytest

from headwater.compose.stack import Stack
from headwater.eventlog.capturing.changes import Operation
from headwater.eventlog.capturing.errors import UnreadableChange
from tests.integration.sources.captured import SALT
from tests.integration.sources.crm import SCHEMA, Changing, Person, Place, Typed
from tests.integration.sources.mariadb_deployment import Client, Deployment
from tests.integration.sources.mariadb_server import HOST, LOGGED, MariaDb, mariadb
from tests.integration.sources.watching import watching
from tests.support.background import running
from tests.support.seeds import seed_of
from tests.support.waiting import eventually

LARGE = 5_000
"""Rows of a large transaction."""
FIRST, KILLED_FIRST = 1_001, 100_001
"""The first of them, and that of the test with kills."""


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDb]:
    with mariadb() as made:
        yield made


@pytest.fixture(scope="module")
def unprepared(capturing: Stack, server: MariaDb) -> Deployment:
    """The deployment, before anything of it is captured."""
    server.start(*LOGGED)
    server.sql(*SCHEMA)
    return Deployment(capturing, server, f"t_{uuid.uuid4().hex[:12]}")


@pytest.mark.complete
def test_a_server_without_a_binary_log_is_refused(unprepared: Deployment) -> None:
    unprepared.server.stop()
    unprepared.server.start("--server-id=7")
    try:
        said = unprepared.fails("apply", "--dry-run")
    finally:
        unprepared.server.stop()
        unprepared.server.start(*LOGGED)
    assert "the server writes no binary log: set log_bin and server_id in its configuration, and restart it" in said


BAD = {
    "another format": (
        ["SET GLOBAL binlog_format = 'STATEMENT'", "SET GLOBAL binlog_format = 'ROW'"],
        "binlog_format is STATEMENT: run SET GLOBAL binlog_format = 'ROW', write binlog_format=ROW into the server's",
    ),
    "short row images": (
        ["SET GLOBAL binlog_row_image = 'MINIMAL'", "SET GLOBAL binlog_row_image = 'FULL'"],
        "binlog_row_image is MINIMAL: run SET GLOBAL binlog_row_image = 'FULL'",
    ),
    "a compressed log": (
        ["SET GLOBAL log_bin_compress = ON", "SET GLOBAL log_bin_compress = OFF"],
        "run SET GLOBAL log_bin_compress = OFF",
    ),
    "no rights to replicate": (
        ["REVOKE REPLICATION SLAVE, RELOAD ON *.* FROM capture", "GRANT REPLICATION SLAVE, RELOAD ON *.* TO capture"],
        "account 'capture'@'%' lacks REPLICATION SLAVE, RELOAD: run GRANT REPLICATION SLAVE, RELOAD ON *.* TO "
        "'capture'@'%'",
    ),
    "no right to see the log": (
        ["REVOKE REPLICATION CLIENT ON *.* FROM capture", "GRANT REPLICATION CLIENT ON *.* TO capture"],
        "lacks REPLICATION CLIENT: run GRANT REPLICATION CLIENT ON *.* TO 'capture'@'%'",
    ),
    "no right to read": (
        ["REVOKE SELECT ON crm.* FROM capture", "GRANT SELECT ON crm.* TO capture"],
        "run GRANT SELECT ON crm.people TO 'capture'@'%'",
    ),
    "no right to read, but to insert": (
        [
            "REVOKE SELECT ON crm.* FROM capture",
            "GRANT INSERT ON crm.* TO capture",
            "REVOKE INSERT ON crm.* FROM capture",
            "GRANT SELECT ON crm.* TO capture",
        ],
        "account 'capture'@'%' may not read \"crm.people\": run GRANT SELECT ON crm.people TO 'capture'@'%'",
    ),
    "a table that is not there": (
        ["RENAME TABLE crm.people TO crm.folk", "RENAME TABLE crm.folk TO crm.people"],
        'there is no table "crm.people", or account',
    ),
    "a column that is not there": (
        ["ALTER TABLE crm.people RENAME COLUMN note TO remark", "ALTER TABLE crm.people RENAME COLUMN remark TO note"],
        'table "crm.people" has no column "note": remove it from Person, or add it to the table, which has id, name',
    ),
    "a column of another type": (
        ["ALTER TABLE crm.people MODIFY note json", "ALTER TABLE crm.people MODIFY note text"],
        'column "note" of table "crm.people" is longtext: declare it as dict or list[…]',
    ),
    "a column that may be NULL": (
        [
            "ALTER TABLE crm.people MODIFY balance decimal(12, 2) NULL",
            "ALTER TABLE crm.people MODIFY balance decimal(12, 2) NOT NULL",
        ],
        "may be NULL: add | None to its type, or run ALTER TABLE crm.people MODIFY balance decimal(12,2) NOT NULL",
    ),
    "an enum with another value": (
        [
            "ALTER TABLE crm.typed MODIFY mood enum('good', 'it''s bad', 'new')",
            "ALTER TABLE crm.typed MODIFY mood enum('good', 'it''s bad')",
        ],
        'column "mood" of table "crm.typed" may be new, which its Enum lacks',
    ),
}
"""What breaks it and what mends it, and what is said between."""


@pytest.mark.complete
def test_bad_configuration_is_named_with_what_mends_it(unprepared: Deployment) -> None:
    for name, (statements, said) in BAD.items():
        half = len(statements) // 2
        unprepared.server.sql(*statements[:half])
        found = unprepared.fails("apply", "--dry-run")
        unprepared.server.sql(*statements[half:])
        assert said in found, name
    for password, words in {"wrong": "ALTER USER 'capture'@'%' IDENTIFIED BY", "": "HEADWATER_CRM_DATABASE"}.items():
        variables = unprepared.variables(password=password)
        assert words in unprepared.fails("apply", "--dry-run", **variables)
    away = unprepared.variables() | {"HEADWATER_CRM_DATABASE": f"mariadb://capture@{HOST}:9"}
    assert "start the server, or correct HEADWATER_CRM_DATABASE" in unprepared.fails("apply", "--dry-run", **away)


VALUES: list[tuple[str, str, Any]] = [
    ("tiny", "255", 255),
    ("flag", "1", True),
    ("flag", "0", False),
    ("one_bit", "b'1'", True),
    ("bits", "b'101100000001'", base64.b64encode(bytes([0x01, 0x0B])).decode()),
    ("small", "65535", 65535),
    ("medium", "16777215", 16777215),
    ("whole", "4294967295", 4294967295),
    ("big", "-9223372036854775808", -(2**63)),
    ("huge", "18446744073709551615", "18446744073709551615"),
    ("amount", "12345678901234567890.0123456789", "12345678901234567890.0123456789"),
    ("single", "1.5", 1.5),
    ("ratio", "1e300", 1e300),
    ("letters", "'a  '", "a"),
    ("name", "'ü€😀 \\'x\\''", "ü€😀 'x'"),
    ("latin", "'Grüße'", "Grüße"),
    ("long_text", "REPEAT('ä', 20000)", "ä" * 20000),
    ("fixed", "x'0100'", base64.b64encode(b"\x01\0\0\0").decode()),
    ("raw", "x'00ff'", "AP8="),
    ("raw", "''", ""),
    ("picture", "x'00ff00'", "AP8A"),
    ("mood", "'it\\'s bad'", "it's bad"),
    ("hobbies", "'tea,chess'", "tea,chess"),
    ("hobbies", "''", ""),
    ("document", "'{\"a\": [1, 2.5, null]}'", {"a": [1, 2.5, None]}),
    ("items", "'[1, 2]'", [1, 2]),
    ("day", "'2024-02-29'", "2024-02-29"),
    ("day", "'0000-00-00'", None),
    ("clock", "'04:05:06.123456'", "04:05:06.123456"),
    ("local", "'2024-02-03 04:05:06.5'", datetime(2024, 2, 3, 4, 5, 6, 500_000, UTC)),
    ("local", "'0000-00-00 00:00:00'", None),
    ("moment", "'2024-02-03 07:05:06.5'", datetime(2024, 2, 3, 4, 5, 6, 500_000, UTC)),
    ("moment", "'0000-00-00 00:00:00'", None),
    ("made_in", "2024", 2024),
    ("code", "'5b2f5f0e-6f0b-4a53-8f33-6d9f3a0b1c2d'", "5b2f5f0e-6f0b-4a53-8f33-6d9f3a0b1c2d"),
    ("secret", "'pin'", hashlib.sha256(f"{SALT}pin".encode()).hexdigest()),
    ("short", "'abcdef'", "abc"),
    ("strict_day", "'0000-00-00'", "2024-01-01"),
    ("strict_moment", "'0000-00-00 00:00:00'", datetime(2024, 1, 1, tzinfo=UTC)),
]
"""Column, value in SQL, and what is in the row."""
STREAMED_OTHERWISE = {("moment", "'0000-00-00 00:00:00'"): datetime(1970, 1, 1, tzinfo=UTC)}
"""What is in the row if the change is captured instead of read by a snapshot."""
STREAMED = 1_000
"""Added to the id of a row that is inserted while changes are captured."""


def insert_values(connection: pymysql.Connection[Any], first: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET sql_mode = '', time_zone = '+03:00'")
        for number, (column, value, _) in enumerate(VALUES):
            cursor.execute(f"INSERT INTO crm.typed (id, {column}) VALUES ({first + number}, {value})")


@pytest.fixture(scope="module")
def deployment(unprepared: Deployment) -> Iterator[Deployment]:
    """The deployment, captured: some rows were there before."""
    with closing(unprepared.server.connect()) as connection:
        insert_values(connection, 0)
    unprepared.server.sql("INSERT INTO crm.people VALUES (1, 'Ada', 12.5, true, NULL, '2024-01-02 03:04:05', 'x')")
    assert "+ connector" in unprepared.works("apply", "--dry-run")
    assert "crm: applied" in unprepared.works("apply")
    yield unprepared
    unprepared.run("remove", "crm", "--topics", "--yes")


@contextmanager
def changing(deployment: Deployment) -> Iterator[None]:
    """Another table changes until the end of the block; while nothing does, a connector that is asked for a snapshot
    waits for the server's sign of life."""
    deployment.server.sql("CREATE TABLE IF NOT EXISTS crm.elsewhere (number int)")

    def change(stop: threading.Event) -> None:
        while not stop.wait(0.3):
            deployment.server.sql("INSERT INTO crm.elsewhere VALUES (1)")

    with running(change):
        yield


@pytest.mark.complete
def test_every_type(deployment: Deployment) -> None:
    """A row is the same if a snapshot reads it and if its change is captured."""
    topic = deployment.topic(Typed)
    eventually(lambda: topic.read() and len(topic.rows) == len(VALUES), "a snapshot has read the rows that were there")
    with closing(deployment.server.connect()) as connection:
        insert_values(connection, STREAMED)
    eventually(lambda: topic.read() and len(topic.rows) == 2 * len(VALUES), "all rows come")
    rows = topic.comparable()
    for first, others in ((0, {}), (STREAMED, STREAMED_OTHERWISE)):
        wrong = [
            (name, value, found, expected)
            for number, (name, value, expected) in enumerate(VALUES)
            if (found := rows[str(first + number)][name]) != others.get((name, value), expected)
        ]
        assert not wrong, first
    assert {record.change.operation for record in topic.records} == {Operation.SNAPSHOT, Operation.INSERT}


@pytest.mark.complete
def test_the_life_of_a_source(deployment: Deployment) -> None:
    topic = deployment.topic(Person)
    assert deployment.works("apply") == "crm: as declared\n"
    eventually(lambda: deployment.status()["healthy"] and deployment.status()["lag_bytes"] == 0, "it is captured")
    assert deployment.works("pause") == "crm: paused\n"
    deployment.server.sql("UPDATE crm.people SET name = 'changed while paused' WHERE id = 1")
    assert deployment.status()["lag_bytes"] > 0
    assert deployment.works("resume") == "crm: running\n"
    eventually(lambda: topic.read() and topic.rows["1"]["name"] == "changed while paused", "it goes on where it was")
    assert deployment.works("restart") == "crm: running\n"
    before = len(topic.read())
    with changing(deployment):
        deployment.works("snapshot", "crm.people", "--where", "id < 2")
        eventually(lambda: len(topic.read()) == before + 1, "the row is read again")
        assert topic.records[-1].change.operation is Operation.SNAPSHOT
        eventually(lambda: (deployment.status()["snapshot"] or {}).get("state") == "COMPLETED", "it reports its end")
    deployment.wait_equal(topic)


def insert_many(server: MariaDb, first: int) -> None:
    """A large transaction."""
    server.sql(
        "INSERT INTO crm.people SELECT seq, 'many', seq, false, NULL, NOW(), NULL "
        f"FROM crm.seq_{first}_to_{first + LARGE - 1}"
    )


def test_random_changes_arrive_once_each(deployment: Deployment) -> None:
    people, places = deployment.topic(Person), deployment.topic(Place)
    with Client(deployment.server, seed_of(1)) as client:
        client.go_on()
        insert_many(deployment.server, FIRST)
        client.go_on()
    deployment.wait_equal(people, places)
    assert len(people.rows) > LARGE
    assert any(record.change.operation is Operation.DELETE for record in people.records)
    many = [record.change.position for record in people.records if record.value and record.value["op"] == "c"]
    assert len({each.transaction for each in many if each}) < len(many), "a transaction has many rows"


@pytest.mark.complete
def test_status_names_a_truncated_table_which_apply_reads_again_and_sweeps(deployment: Deployment) -> None:
    topic = deployment.topic(Place)
    eventually(lambda: deployment.status()["healthy"], "it captures")
    deployment.server.sql(
        f"REPLACE INTO crm.places VALUES ('DE', {2**64 - 1}, 'gone'), ('DE', {2**64 - 2}, 'back')",
        "TRUNCATE crm.places",
        f"INSERT INTO crm.places VALUES ('DE', {2**64 - 2}, 'again'), ('de', 1, 'small letters')",
    )
    eventually(lambda: topic.read() and topic.rows.get('["de","1"]'), "the row after it comes")
    assert f'["DE","{2**64 - 1}"]' in topic.rows, "a truncate is not captured"
    (problem,) = deployment.status()["problems"]
    assert 'table "crm.places" was replaced by another one of the same name, or had all rows deleted' in problem
    with changing(deployment):
        deployment.works("apply")
        eventually(lambda: deployment.status()["healthy"], "it is read again", every_s=0.2)
    deployment.wait_equal(topic)
    assert len(topic.rows) == 2


@pytest.mark.complete
def test_random_changes_arrive_once_each_through_kills(deployment: Deployment, tmp_path: Path) -> None:
    """The connector fails if its server goes away, and `watch` restarts it."""
    people, places = deployment.topic(Person), deployment.topic(Place)
    with watching(deployment.variables(), tmp_path / "watch.log"):
        with Client(deployment.server, seed_of(2)) as client:
            client.go_on()
            deployment.server.kill()
            deployment.server.start(*LOGGED)
            insert_many(deployment.server, KILLED_FIRST)
            client.go_on()
            eventually(lambda: people.read() and str(KILLED_FIRST) in people.rows, "it is captured again")
            deployment.stack["connect"].kill()
            deployment.stack["connect"].wait_healthy()
            client.go_on()
        deployment.wait_equal(people, places)


@pytest.mark.complete
def test_columns_that_change_while_it_runs(deployment: Deployment) -> None:
    """Old records stay readable; a column that the class lacks is ignored, and one that it needs is missed by name."""
    topic = deployment.topic(Changing)
    deployment.server.sql(
        "INSERT INTO crm.changing VALUES (1, 1, 'before')",
        "ALTER TABLE crm.changing ADD COLUMN later int, ADD COLUMN ignored text FIRST",
        "INSERT INTO crm.changing VALUES ('x', 2, 2, 'added', 22)",
        "ALTER TABLE crm.changing MODIFY small bigint NOT NULL",
        "INSERT INTO crm.changing VALUES ('x', 3, 3000000000, 'widened', NULL)",
    )
    deployment.wait_equal(topic)
    assert "ignored" not in topic.records[-1].value["after"]
    deployment.server.sql(
        "ALTER TABLE crm.changing RENAME COLUMN word TO renamed",
        "INSERT INTO crm.changing VALUES ('x', 4, 4, 'renamed', NULL)",
        "ALTER TABLE crm.changing DROP COLUMN renamed",
        "INSERT INTO crm.changing VALUES ('x', 5, 5, NULL)",
    )
    eventually(lambda: topic.read() and {"4", "5"} <= topic.rows.keys(), "rows without the optional column come")
    assert [topic.rows[key]["word"] for key in ("1", "4", "5")] == ["before", None, None]
    assert 'has no column "word"' in " ".join(deployment.status()["problems"])
    deployment.server.sql("ALTER TABLE crm.changing DROP COLUMN small", "INSERT INTO crm.changing VALUES ('x', 6, 6)")
    with pytest.raises(UnreadableChange, match=r'crm\.changing.*"small"'):
        eventually(lambda: topic.read() and None, "the record comes")
    assert deployment.status()["state"] == "RUNNING"
    deployment.server.sql("ALTER TABLE crm.changing ADD COLUMN small int NOT NULL, ADD COLUMN word text")


@pytest.mark.complete
def test_a_purged_log_is_named_and_nothing_is_skipped(deployment: Deployment) -> None:
    topic = deployment.topic(Person)
    deployment.works("pause")
    connection = deployment.server.connect()
    with closing(connection), connection.cursor() as cursor:
        cursor.execute("UPDATE crm.people SET name = 'lost' WHERE id = 1001")
        cursor.execute("DELETE FROM crm.people WHERE id = 1002")
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute("SHOW MASTER STATUS")
        last = (cursor.fetchone() or {})["File"]
        deployment.works("pause")
        deployment.stack["connect"].restart()  # it no longer reads, so that the server may remove what it has not read
        eventually(lambda: purged(cursor, last), "the log is removed")
    said = "run headwater sources remove crm, then apply, which reads all tables again, then sweep"
    assert said in " ".join(deployment.status()["problems"])
    assert "the server no longer has binary log" in deployment.fails("apply")
    deployment.run("resume")
    eventually(lambda: deployment.status()["state"] == "FAILED", "the connector fails instead of going on")
    assert said in " ".join(deployment.status()["problems"])
    deployment.works("remove", "crm", "--yes")
    deployment.works("apply")
    eventually(lambda: (deployment.status()["snapshot"] or {}).get("state") == "COMPLETED", "all is read")
    assert "may have rows that were deleted while they were not captured" in " ".join(deployment.status()["problems"])
    with changing(deployment):
        deployment.works("sweep")
        eventually(lambda: deployment.is_equal(topic), "all is there", every_s=0.2)
    eventually(lambda: deployment.status()["healthy"], "nothing is left to do")


def purged(cursor: Any, last: str) -> bool:
    """Remove the logs before the last one, as far as nobody reads them; whether only that one is left."""
    cursor.execute(f"PURGE BINARY LOGS TO '{last}'")
    cursor.execute("SHOW BINARY LOGS")
    return len(cursor.fetchall()) == 1
