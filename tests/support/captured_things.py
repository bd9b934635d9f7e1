"""A captured table with a column of every kind, rows of a view like it, views of both, and random records of them."""

from __future__ import annotations

import json
import random
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from headwater import (
    Cache,
    Deleted,
    Elasticsearch,
    Postgres,
    TableView,
    ViewRow,
    above,
    add,
    average,
    count,
    current,
    maximum,
    minimum,
    minus,
    negated,
)
from headwater.eventlog.capturing import Captured, Hashed, Source, Truncated
from headwater.eventlog.capturing.values import PLACEHOLDER, stand_ins
from tests.support.edge_times import OUTSIDE
from tests.support.seeds import seed_of
from tests.support.topic_records import TopicRecord
from tests.unit.capturing.records import record


class Colour(StrEnum):
    RED = "red"
    GREEN = "green"


class Thing(Captured, table="public.things", key="id"):
    id: int
    name: str
    loud: Annotated[str | None, Field(alias="Name")]
    note: str | None
    amount: int
    spare: int | None
    weight: float | None
    is_new: bool
    price: Decimal | None
    cost: Annotated[Decimal | None, Field(max_digits=12, decimal_places=2)]
    rate: Annotated[Decimal, Field(max_digits=38, decimal_places=10)]
    made_at: datetime
    sold_at: datetime | None
    day: date | None
    hour: time | None
    lasts: timedelta | None
    public_id: UUID
    colour: Colour
    picture: bytes | None
    extra: dict[str, Any]
    tags: list[str]
    numbers: list[int] | None
    secret: Annotated[str | None, Hashed()]
    short: Annotated[str, Truncated(5)]
    rank: int = 7
    odd: Annotated[str | None, Field(alias="odd$name")] = "none"


class Pair(Captured, table="public.pairs", key=("code", "number")):
    code: str
    number: int
    value: str | None


class ThingRow(ViewRow, view="shown_things"):
    id: int
    name: str
    loud: Annotated[str | None, Field(alias="Name")]
    note: str | None
    amount: int
    spare: int | None
    weight: float | None
    is_new: bool
    price: Decimal | None
    cost: Annotated[Decimal | None, Field(max_digits=12, decimal_places=2)]
    rate: Annotated[Decimal, Field(max_digits=38, decimal_places=10)]
    made_at: datetime
    sold_at: datetime | None
    day: date | None
    hour: time | None
    public_id: UUID
    colour: Colour
    extra: dict[str, Any]
    tags: list[str]
    numbers: list[int] | None
    rank: int = 7
    odd: Annotated[str | None, Field(alias="odd$name")] = "none"


SHOWN = {"Name": "loud", "odd$name": "odd_name"}
things = Source("things", (Thing, Pair))

by_id = TableView(
    "things",
    "thing_id",
    {SHOWN.get(name, name): current(Thing, name) for name in Thing.columns},
    (Postgres(), Cache()),
    deleted_by=(Deleted(Thing),),
)
some = TableView("some_things", "thing_id", {"left": current(Thing, minus("amount", "rank"))}, (Postgres(),))
pairs = TableView("pairs", "pair", {"value": current(Pair, "value")}, (Postgres(),), deleted_by=(Deleted(Pair),))
counted = TableView(
    "counted_things",
    "note",
    {"things": count(Thing), "amount": add({Thing: "amount"}), "mean": average({Thing: minus("spare", "rank")})},
    (Postgres(), Cache()),
    where=above("amount", -1),
)
costs = TableView(
    "costs_of_things",
    "day",
    {
        "cost": add({Thing: "cost"}),
        "left": add({Thing: minus("cost", "amount")}),
        "rate": add({Thing: "rate"}),
        "mean": average({Thing: "cost"}),
        "dearest": maximum({Thing: "cost"}),
        "lightest": minimum({Thing: "weight"}),
        "newest": maximum({Thing: "made_at"}),
        "first_day": minimum({Thing: "day"}),
    },
    (Postgres(), Elasticsearch(), Cache()),
    where=negated(above("cost", "rate")),
)
by_cost = TableView("things_by_cost", "cost", {"things": count(Thing), "rate": add({Thing: "rate"})}, (Postgres(),))
of_rows = TableView(
    "things_of_rows",
    "thing_id",
    {SHOWN.get(name, name): current(ThingRow, name) for name in ThingRow.columns},
    (Postgres(), Cache()),
    deleted_by=(Deleted(ThingRow),),
)
rows_per_note = TableView(
    "rows_per_note",
    "note",
    {
        "things": count(ThingRow),
        "amount": add({ThingRow: "amount"}),
        "mean": average({ThingRow: minus("spare", "rank")}),
        "dearest": maximum({ThingRow: "cost"}),
        "newest": maximum({ThingRow: "made_at"}),
        "first_day": minimum({ThingRow: "day"}),
    },
    (Postgres(), Cache()),
    where=above("amount", -1),
)
rows_per_day = TableView("rows_per_day", "day", {"rate": add({ThingRow: "rate"})}, (Postgres(),))
VIEWS = (by_id, some, pairs, counted, costs, by_cost, of_rows, rows_per_note, rows_per_day)
TOPICS = {Thing: Thing.topic(), Pair: Pair.topic()}
ROW_KEYS = ("", "1", "a/b", "ü", "heartbeat/1", "{", "\u2028", '"')

LONG = "long " * 10
USUAL: dict[str, list[Any]] = {
    "id": [1, 2, -3, 2**62],
    "name": ["Ann", "", 'O"Neil \\ ü', LONG],
    "Name": ["LOUD", None],
    "note": ["a", None, LONG],
    "amount": [0, -5, 2**63 - 1, "12", "007"],
    "spare": [1, None, "NaN"],
    "weight": [1.5, 2, None, "NaN", "Infinity", 1e300, "1.25"],
    "is_new": [True, False],
    "price": ["12.50", None, "NaN", "1E+3"],
    "cost": ["12.50", None, "NaN", "-Infinity", "1E+3", "-9999999999.99", "0.000", "-0", 7, 12.5, "007.1"],
    "rate": ["0.0000000000", "-0.0000000001", "9999999999999999999999999999.9999999999", "1E-10", 3],
    "made_at": ["2024-02-29T10:11:12.123456Z", "0001-01-01T00:00:00Z", "2024-01-01T00:00:00+02:00"],
    "sold_at": [None, "2024-02-29T10:11:12Z", "+10000-01-01T00:00:00Z", "-0043-01-01T00:00:00Z", *OUTSIDE],
    "day": ["2024-02-29Z", "2024-02-29", None, "-0043-01-01Z", "0001-01-01", "9999-12-31Z", "1582-10-10"],
    "hour": ["10:11:12.5Z", "10:11:12", None],
    "lasts": ["P1Y2M3DT4H5M6.5S", "P0Y0M0DT0H0M0S", "P0Y0M-3DT0H0M-1.000001S", None, "P0Y0M0DT0H0M1.5E-5S"],
    "public_id": ["5b2f5f0e-6f0b-4a53-8f33-6d9f3a0b1c2d"],
    "colour": ["red", "green"],
    "picture": ["AAEC", None],
    "extra": [
        '{"a": 1, "b": [1, 2.5, "x"]}',
        "{}",
        '"text"',
        "[1]",
        '{"ü": null}',
        '{"a": "\\ud83d\\uDE00 \\\\ud800"}',
        '{"a":1,"a":2}',
        '{"a": "Infinity", "b": 1e300, "c": "1e999"}',
        '"1e999"',
    ],
    "tags": [[], ["a", 'b"c', None], ["ü"], '["\\ud83d\\ude00"]', ' \n["a"]\t', "[]"],
    "numbers": [[1, 2], None, [], [None]],
    "secret": ["0f" * 32, None],
    "short": ["abcde", "a"],
    "rank": [1, 2],
    "odd$name": ["x", None],
}
REFUSED = ("\\ud800", "\\udc00\\ud800", "\\\\\\uDBFFx"), ("1e400", "-1E+0999")
"""Parts of JSON texts that databases take, and views refuse: texts, and numbers."""
WRONG_DOCUMENTS = [
    *(form % each for each in REFUSED[0] for form in ('"%s"', '{"a": "Infinity %s"}', '{"%s": 1}', '["x", "%s"]')),
    *(form % each for each in REFUSED[1] for form in ("%s", '{"Infinity": %s}', "[%s, 1]")),
]
WRONG: list[Any] = [None, "", "x", 1, 1.5, True, [], ["x"], {"a": 1}, "12.5", "9" * 18, "2024-02-30T00:00:00Z", LONG]
WRONG_DAYS = ["2023-02-29Z", "2024-2-9", "2024-01-01T00:00:00Z", "2024-13-01", "2024-02-29ZZ", "0000-01-01"]
WRONG_COSTS = [
    "12.345",
    "10000000000",
    "1E-3",
    " 1",
    "1,5",
    "--1",
    "+1",
    "1.",
    ".5",
    "\u0661",
    "1E+99",
    1.234,
    1e11,
    "1e",
]
WRONG_OF: dict[str, list[Any]] = {
    "day": WRONG_DAYS,
    "cost": WRONG_COSTS,
    "rate": [*WRONG_COSTS[6:], "9" * 29, "0.00000000001"],
}


def random_row(chance: random.Random, oddness: float) -> dict[str, Any]:
    """The values of a row; oddness: how likely one is wrong or absent."""
    row = {}
    for name, usual in USUAL.items():
        if chance.random() >= oddness:
            row[name] = chance.choice(usual)
        elif chance.random() < 0.7:
            others = WRONG_DOCUMENTS if name in ("extra", "tags") else WRONG_OF.get(name, WRONG)
            row[name] = chance.choice(others if chance.random() < 0.5 else WRONG)
    return row


def random_record(chance: random.Random, offset: int, partition: int) -> TopicRecord:
    """A record of one of both tables."""
    oddness = chance.choice((0.0, 0.02, 0.1))
    if chance.random() < 0.15:
        return _pair(chance, offset, partition, oddness)
    if chance.random() < 0.35:
        return _row_of_view(chance, offset, partition, oddness)
    row = random_row(chance, oddness)
    key = {"id": chance.choice(USUAL["id"])} if chance.random() > oddness / 3 else {"other": 1}
    before = random_row(chance, oddness) if chance.random() < 0.3 else None
    if chance.random() < 0.2:
        for name in chance.sample(sorted(row), 2):
            of = chance.choice(list(Thing.columns.values()))
            stand_in = PLACEHOLDER[:5] if name == "short" else chance.choice(stand_ins(of))
            row[name] = stand_in if chance.random() < 0.5 else PLACEHOLDER
    return _record(Thing, chance, offset, partition, key, row, before, oddness)


def _pair(chance: random.Random, offset: int, partition: int, oddness: float) -> TopicRecord:
    code, number = chance.choice(("a", 'b"', "ü")), chance.choice((1, 2))
    row = {"code": code, "number": number, "value": chance.choice(("x", None))}
    return _record(Pair, chance, offset, partition, {"code": code, "number": number}, row, None, oddness)


def _row_of_view(chance: random.Random, offset: int, partition: int, oddness: float) -> TopicRecord:
    """A record in the topic of a view, in which no value stands for another one."""
    row = random_row(chance, oddness)
    row["name"] = chance.choice((row.get("name"), PLACEHOLDER))
    for name in ("tags", "numbers"):  # a view has the text of a JSON value
        if isinstance(row.get(name), list) and chance.random() < 0.8:
            row[name] = json.dumps(row[name])
    envelope = {"specversion": "1.0", "id": f"shown_things@1.g1/x@{offset}", "type": ThingRow.topic(), "data": row}
    value: bytes | None = json.dumps(envelope).encode()
    if chance.random() < 0.2:
        value = None
    elif chance.random() < oddness / 2:
        value = chance.choice((b"\xff", b"null", b"[]", b"not json", b"{}", b'{"data":1}', b'{"data":null}'))
    key = chance.choice(ROW_KEYS).encode()
    if chance.random() < oddness / 4:
        key = b"\xff"
    return TopicRecord(f"{ThingRow.topic()}/{partition}", offset, 1_767_323_045_678 + offset, key, value)


def _record(
    table: type[Captured],
    chance: random.Random,
    offset: int,
    partition: int,
    key: dict[str, Any],
    row: dict[str, Any],
    before: dict[str, Any] | None,
    oddness: float,
) -> TopicRecord:
    op = chance.choice("ccuuurd")
    value: bytes | None = record(after=None if op == "d" else row, before=before, op=op)
    if chance.random() < 0.05:
        value = None
    elif chance.random() < oddness / 2:
        value = chance.choice((b"\xff\xfe", b"null", b"[]", b"not json", record(op="x"), record(op="u")))
    encoded = json.dumps(key, separators=(",", ":"), ensure_ascii=False).encode()
    return TopicRecord(f"{TOPICS[table]}/{partition}", offset, 1_767_323_045_678 + offset, encoded, value)


def random_records(number: int, length: int = 400) -> list[TopicRecord]:
    """Those of one of the seeds of this run."""
    chance = random.Random(seed_of(number))
    return [random_record(chance, offset, chance.randrange(3)) for offset in range(length)]
