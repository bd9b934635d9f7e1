"""A MariaDB database with a table of every type and tables that applications change, and its declaration."""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from headwater.eventlog.capturing import Captured, Hashed, Source, Truncated


class Mood(StrEnum):
    GOOD = "good"
    BAD = "it's bad"


class Typed(Captured, table="crm.typed", key="id"):
    id: int
    tiny: int | None
    flag: bool | None
    one_bit: bool | None
    bits: bytes | None
    small: int | None
    medium: int | None
    whole: int | None
    big: int | None
    huge: Annotated[Decimal | None, Field(max_digits=20, decimal_places=0)]
    amount: Annotated[Decimal | None, Field(max_digits=30, decimal_places=10)]
    single: float | None
    ratio: float | None
    letters: str | None
    name: str | None
    latin: str | None
    long_text: str | None
    fixed: bytes | None
    raw: bytes | None
    picture: bytes | None
    mood: Mood | None
    hobbies: str | None
    document: dict[str, Any] | None
    items: list[int] | None
    day: date | None
    clock: time | None
    local: datetime | None
    moment: datetime | None
    made_in: int | None
    code: UUID | None
    secret: Annotated[str | None, Hashed()]
    short: Annotated[str | None, Truncated(3)]
    strict_day: date
    strict_moment: datetime


class Person(Captured, table="crm.people", key="id"):
    id: int
    name: str
    balance: Annotated[Decimal, Field(max_digits=12, decimal_places=2)]
    is_active: bool
    note: str | None
    changed_at: datetime


class Place(Captured, table="crm.places", key=("country", "number")):
    country: str
    number: Decimal
    label: str | None


class Changing(Captured, table="crm.changing", key="id"):
    id: int
    small: int
    word: str | None


crm = Source("crm", (Typed, Person, Place, Changing), engine="mariadb")

PASSWORD = "p@ss"  # noqa: S105 - of a server that ends with the test
SCHEMA = (
    "CREATE DATABASE crm CHARACTER SET utf8mb4",
    """CREATE TABLE crm.typed (id int PRIMARY KEY, tiny tinyint unsigned, flag tinyint(1), one_bit bit(1), bits bit(12),
       small smallint unsigned, medium mediumint unsigned, whole int unsigned, big bigint, huge bigint unsigned,
       amount decimal(30, 10), single float, ratio double, letters char(5), name varchar(100),
       latin varchar(100) CHARACTER SET latin1, long_text longtext, fixed binary(4), raw varbinary(100), picture blob,
       mood enum('good', 'it''s bad'), hobbies set('tea', 'chess'), document json, items json, day date, clock time(6),
       local datetime(6), moment timestamp(6) NULL, made_in year, code char(36), secret varchar(100),
       short varchar(100), strict_day date NOT NULL DEFAULT '2024-01-01',
       strict_moment datetime NOT NULL DEFAULT '2024-01-01')""",
    """CREATE TABLE crm.people (id int unsigned PRIMARY KEY AUTO_INCREMENT, name varchar(100) NOT NULL,
       balance decimal(12, 2) NOT NULL, is_active bool NOT NULL, note text, changed_at datetime(6) NOT NULL,
       uncaptured text)""",
    """CREATE TABLE crm.places (country char(2) CHARACTER SET latin1, number bigint unsigned, label varchar(20),
       PRIMARY KEY (country, number))""",
    "CREATE TABLE crm.changing (id int PRIMARY KEY, small int NOT NULL, word text)",
    f"CREATE USER capture IDENTIFIED BY '{PASSWORD}'",
    "GRANT REPLICATION SLAVE, REPLICATION CLIENT, RELOAD, PROCESS ON *.* TO capture",
    "GRANT SELECT ON crm.* TO capture",
)
