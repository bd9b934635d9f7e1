"""Random commands fit their classes, also if these have decimals, dates and UUIDs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from headwater.commands.declaring.aggregate import Aggregate, Command, Event
from headwater.commands.testing.sampling import random_command


class Line(BaseModel):
    cost: Annotated[Decimal, Field(max_digits=4, decimal_places=1)]


class Bill(Command, type="bill.bill"):
    bill_id: str
    amount: Annotated[Decimal, Field(max_digits=10, decimal_places=2, gt=0)]
    rate: Annotated[Decimal, Field(max_digits=5, decimal_places=5)] | None
    due: date
    at: datetime
    reference: UUID
    lines: list[Line]


class Billed(Event, type="bill.billed"):
    bill_id: str


class Nothing(BaseModel):
    model_config = ConfigDict(frozen=True)


def decide(command: Bill, state: Nothing) -> Iterator[Event]:
    yield Billed(bill_id=command.bill_id)


def evolve(state: Nothing, event: Billed) -> Nothing:
    return state


bill = Aggregate(name="bill", id_field="bill_id", initial=Nothing(), decide=decide, evolve=evolve)


def test_every_random_command_is_one_that_its_class_accepts() -> None:
    chance = random.Random(1)
    made = [random_command(bill, "B1", chance) for _ in range(50)]
    assert None not in made
    assert len({each.amount for each in made if isinstance(each, Bill)}) > 5
