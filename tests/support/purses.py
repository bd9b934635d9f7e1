"""An aggregate whose command has decimals, and a field of any type."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from headwater import Aggregate, Command, Event
from headwater.commands.declaring.registry import CommandRegistry


class Line(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    amount: Decimal


class Pay(Command, type="purse.pay"):
    purse_id: str
    paid: Decimal | None = None
    lines: list[Line] = Field(default_factory=list)
    share: float | None = None
    note: Any = None


class Paid(Event, type="purse.paid"):
    purse_id: str


class Purse(BaseModel):
    model_config = ConfigDict(frozen=True)


def decide(command: Pay, state: Purse) -> Sequence[Event]:
    return [Paid(purse_id=command.purse_id)]


def evolve(state: Purse, event: Paid) -> Purse:
    return state


PURSES = CommandRegistry([("here", Aggregate("purse", "purse_id", Purse(), decide, evolve))])
