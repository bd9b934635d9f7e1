"""Which statements of a binary log change rows of captured tables without a change of them."""

from __future__ import annotations

import msgspec
import pytest

from headwater.eventlog.capturing import Captured, Source
from headwater.eventlog.capturing.schema_history import DROPPED, EXCHANGED, RENAMED, Statement, missed_by


class Person(Captured, table="crm.people", key="id"):
    id: int
    age: int | None


class Visit(Captured, table="crm.visits", key="id"):
    id: int
    day: int


CRM = Source(name="crm", tables=(Person, Visit), engine="mariadb")


def stored(ddl: str, table: str = "people") -> Statement:
    """As Debezium stores it."""
    columns = [{"name": "id", "position": 1}, {"name": "age", "position": 2}]
    change = {"type": "ALTER", "id": f'"crm"."{table}"', "table": {"columns": columns}}
    return msgspec.json.decode(msgspec.json.encode({"ddl": ddl, "tableChanges": [change]}), type=Statement)


@pytest.mark.parametrize(
    "ddl",
    [
        "ALTER TABLE people DROP age, ADD age int DEFAULT 1",
        "alter table crm.people add column `age` int",
        "ALTER TABLE people ADD`age` int",
        'ALTER TABLE people ADD "age" int',
        "ALTER TABLE people ADD (other int, age int)",
        "ALTER TABLE people ADD COLUMN IF NOT EXISTS age int",
        "ALTER TABLE people ADD other varchar(9) DEFAULT '#', ADD AGE int",
        "ALTER TABLE people DROP age, CHANGE other age int",
        "ALTER TABLE people DROP age, CHANGE COLUMN `an other` `age` int",
        "ALTER TABLE people DROP age, RENAME COLUMN other TO age",
        "ALTER TABLE people ADD -- as before\n age int",
        "ALTER TABLE people ADD /* as before */ age int",
        "ALTER TABLE people /*M!100100 ADD age int */",
    ],
)
def test_a_statement_that_gives_a_column_other_values_is_found(ddl: str) -> None:
    found = missed_by(CRM, stored(ddl))
    assert list(found) == ["crm.people"]
    (missed,) = found["crm.people"]
    assert (missed.reads, missed.sweeps, "column age" in missed.why) == (True, False, True)
    assert not missed_by(CRM, stored(ddl, "others"))


@pytest.mark.parametrize(
    "ddl",
    [
        "ALTER TABLE people ADD INDEX (age)",
        "ALTER TABLE people ADD INDEX age (age)",
        "ALTER TABLE people ADD UNIQUE (age)",
        "ALTER TABLE people ADD CONSTRAINT grown CHECK (age > 1)",
        "ALTER TABLE people CHANGE age age bigint, ADD other int",
        "ALTER TABLE people CHANGE COLUMN `age` `age` bigint",
        "ALTER TABLE people MODIFY age int",
        "ALTER TABLE people ADD wage int, ADD age_2 int",
        "ALTER TABLE people RENAME COLUMN age TO other",
        "ALTER TABLE people DROP age",
        "CREATE TABLE people (id int, age int) COMMENT 'ADD age'",
        "ALTER TABLE people RENAME INDEX a TO b",
        "ALTER TABLE people RENAME KEY a TO b",
        "ALTER TABLE people CONVERT TO CHARACTER SET utf8mb4",
    ],
)
def test_a_statement_that_keeps_values_is_none(ddl: str) -> None:
    assert not missed_by(CRM, stored(ddl))


@pytest.mark.parametrize("part", ["PARTITION p, q", "partition ALL"])
@pytest.mark.parametrize("how", ["DROP", "TRUNCATE /* as each year */"])
def test_a_table_that_loses_a_partition_is_found(how: str, part: str) -> None:
    assert missed_by(CRM, stored(f"ALTER TABLE visits {how} {part}", "visits")) == {"crm.visits": [DROPPED]}


@pytest.mark.parametrize(
    "how",
    [
        "EXCHANGE PARTITION p WITH TABLE `people`",
        "CONVERT TABLE people TO PARTITION p VALUES LESS THAN (9)",
        "CONVERT PARTITION p TO TABLE people",
    ],
)
def test_both_tables_of_an_exchange_are_found(how: str) -> None:
    ddl = f"ALTER TABLE visits {how}"
    assert missed_by(CRM, stored(ddl, "visits")) == {"crm.people": [EXCHANGED], "crm.visits": [EXCHANGED]}


@pytest.mark.parametrize(
    "ddl",
    [
        "RENAME TABLE people TO away",
        "RENAME TABLES `away` TO `crm`.`people`",
        "ALTER TABLE people RENAME away",
        "ALTER TABLE away RENAME TO people",
    ],
)
def test_a_table_that_gets_another_name_or_its_name_back_is_found(ddl: str) -> None:
    assert missed_by(CRM, stored(ddl, "away")) == {"crm.people": [RENAMED]}


def test_statements_in_a_row_of_a_server_without_gtids_are_told_apart() -> None:
    one, other = stored("ALTER TABLE people ADD age int"), stored("ALTER TABLE people DROP age, ADD age int")
    assert one.id != other.id
    assert one.id == stored("ALTER TABLE people ADD age int").id
