"""The shop's customers as a database in memory that Debezium captures into a world's log: changes in their order."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from headwater.eventlog.ports import Entry, Record
from headwater.samples.shop.domain.customer import Details
from headwater.samples.shop.source import Customer
from tests.support.process_world import World
from tests.unit.capturing.records import record

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
ADA = Customer(
    id=42,
    public_id=UUID("5b2f5f0e-6f0b-4a53-8f33-6d9f3a0b1c2d"),
    name="Ada",
    email="ada@example.org",
    phone=None,
    born_on=None,
    credit_limit=Decimal("12.50"),
    is_business=False,
    interests=["tea"],
    preferences={"newsletter": True},
    created_at=NOON,
    changed_at=NOON,
)
USUAL: dict[str, Any] = {
    "public_id": "5b2f5f0e-6f0b-4a53-8f33-6d9f3a0b1c2d",
    "phone": None,
    "born_on": "2000-02-29Z",
    "interests": ["tea"],
    "preferences": '{"newsletter": true}',
    "created_at": "2024-02-29T10:11:12.123456Z",
    "changed_at": "2024-02-29T10:11:12.123456Z",
}


def row(number: int, name: str = "Ada", limit: str | None = "12.50", **other: Any) -> dict[str, Any]:
    """A row of `customers` as Debezium writes it."""
    shown = {"name": name, "email": f"{name}@example.org", "is_business": False, "credit_limit": limit}
    return {"id": number, **USUAL, **shown, **other}


NUMBERS = 9
"""How many ids random changes use; one of them is always free."""


class Customers:
    """The table. rows: as they are now. histories: by id, what the aggregate's events should say, one after another."""

    def __init__(self, world: World) -> None:
        self.rows: dict[int, dict[str, Any]] = {}
        self.histories: dict[int, list[Details | None]] = defaultdict(list)
        self.records: list[Record] = []
        self._world, self._lsn = world, 1_000

    def put(self, number: int, **values: Any) -> Record:
        """Insert or update a row."""
        op = "u" if number in self.rows else "c"
        self.rows[number] = row(number, **values)
        return self._capture(number, op)

    def delete(self, number: int) -> None:
        """Delete a row: Debezium writes two records."""
        before = self.rows.pop(number)
        self._note(number, None)
        self._append(number, record(before=before, op="d", lsn=self._next()))
        self._append(number, None)

    def renumber(self, number: int, other: int) -> None:
        """Change the key of a row, which is a delete and an insert at one place in the database's log."""
        moved = {**self.rows[number], "id": other}
        self.delete(number)
        self.rows[other] = moved
        self._note(other, details(moved))
        self._append(other, record(after=moved, op="c", lsn=self._lsn))

    def snapshot(self, *, at_same_place: bool = False) -> None:
        """Read all rows again."""
        for number in self.rows:
            self._capture(number, "r", self._lsn if at_same_place else None)

    def change_somehow(self, chance: random.Random) -> None:
        """One random change."""
        kind, free = chance.random(), chance.choice([number for number in range(NUMBERS) if number not in self.rows])
        if not self.rows or (kind < 0.25 and len(self.rows) < NUMBERS - 1):
            self.put(free, name=chance.choice(("Ada", "Bo")))
            return
        number = chance.choice(sorted(self.rows))
        if kind < 0.7:
            self.put(number, name=chance.choice(("Ada", "Bo", "Chen")), limit=chance.choice((None, "1.25", "NaN")))
        elif kind < 0.85:
            self.delete(number)
        elif kind < 0.95:
            self.renumber(number, free)
        else:
            self.snapshot(at_same_place=chance.random() < 0.5)

    def append_again(self, records: list[Record]) -> None:
        """Write records again, as a connector does that has lost its place; the source of each is as it was."""
        for each in records:
            self._world.log.submit(Entry(each.topic, each.key, each.value, each.timestamp_ms), each.partition)

    def _capture(self, number: int, op: str, lsn: int | None = None) -> Record:
        self._note(number, details(self.rows[number]))
        at = self._next() if lsn is None else lsn
        order = 0 if op == "r" else 1
        return self._append(number, record(after=self.rows[number], op=op, lsn=at, order=order))

    def _append(self, number: int, value: bytes | None) -> Record:
        appended = self._world.change(Customer, {"id": number}, value)
        self.records.append(appended)
        return appended

    def _note(self, number: int, now: Details | None) -> None:
        history = self.histories[number]
        if (history[-1] if history else None) != now:
            history.append(now)

    def _next(self) -> int:
        self._lsn += 8
        return self._lsn


def details(row: dict[str, Any]) -> Details:
    """What a customer should have of a row."""
    limit = row["credit_limit"]
    cents = None if limit in (None, "NaN") else round(float(limit) * 100)
    return Details(name=row["name"], email=row["email"], is_business=row["is_business"], credit_limit_cents=cents)
