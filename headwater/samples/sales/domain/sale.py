"""A sale to a customer: made once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from headwater import Aggregate, Command, Event, Rejected

Name = Annotated[str, Field(min_length=1, max_length=100)]
Cents = Annotated[int, Field(gt=0, le=10_000_000_000, description="US cents, without tax")]


class SaleMade(Event, type="sale.made"):
    """Something was sold. country: where the tax is paid. category: of what was sold."""

    sale_id: str
    customer: str
    country: str
    category: str
    cents: int


class Sale(BaseModel):
    """The price; 0 before the sale is made."""

    model_config = ConfigDict(frozen=True)

    cents: int = 0


def evolve(state: Sale, event: SaleMade) -> Sale:
    """The state after `event`."""
    return state.model_copy(update={"cents": event.cents})


class MakeSale(Command, type="sale.make"):
    """Sell something to a customer."""

    sale_id: Name
    customer: Name
    country: Name
    category: Name
    cents: Cents


def decide(command: MakeSale, state: Sale) -> Sequence[Event]:
    """The events of `command`; raises Rejected if a rule refuses it."""
    if state.cents:
        raise Rejected("already_made", f'sale "{command.sale_id}" was made before: take another id')
    return [SaleMade(**command.model_dump())]


sale = Aggregate(name="sale", id_field="sale_id", initial=Sale(), decide=decide, evolve=evolve)
