"""The tax rate of a country."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from headwater import Aggregate, Command, Event

BasisPoints = Annotated[int, Field(ge=0, le=10_000, description="hundredths of a percent: 2000 is 20 %")]


class TaxRateChanged(Event, type="tax_rate.changed"):
    """From now on sales in the country are taxed at this rate."""

    country: str
    basis_points: int


class TaxRate(BaseModel):
    """The rate; None before the first one."""

    model_config = ConfigDict(frozen=True)

    basis_points: int | None = None


def evolve(state: TaxRate, event: TaxRateChanged) -> TaxRate:
    """The state after `event`."""
    return state.model_copy(update={"basis_points": event.basis_points})


class ChangeTaxRate(Command, type="tax_rate.change"):
    """Tax sales in the country at this rate; does nothing if that is the rate."""

    country: Annotated[str, Field(min_length=1, max_length=100)]
    basis_points: BasisPoints


def decide(command: ChangeTaxRate, state: TaxRate) -> Sequence[Event]:
    """The events of `command`."""
    return [] if command.basis_points == state.basis_points else [TaxRateChanged(**command.model_dump())]


tax_rate = Aggregate(name="tax_rate", id_field="country", initial=TaxRate(), decide=decide, evolve=evolve)
