"""From the rows of the shop's table `customers` to customers with a history.

A row becomes a `customer` when it is read first, and each later change of it one of its events. The process remembers
nothing: it ends at every change, and the aggregate knows whether something is new. So it uses no memory per customer.
"""

from __future__ import annotations

from typing import assert_never

from pydantic import BaseModel, ConfigDict

from headwater import Process, Reaction, RowDeleted

from .domain import customer
from .source import Customer


class Nothing(BaseModel):
    """No state."""

    model_config = ConfigDict(frozen=True)


def react(event: Customer | RowDeleted[Customer], state: Nothing) -> Reaction[Nothing]:
    """The reaction to `event`: one command for the customer."""
    match event:
        case Customer():
            changed = customer.ImportCustomer(
                customer_id=str(event.id),
                name=event.name,
                email=event.email,
                is_business=event.is_business,
                credit_limit_cents=None if event.credit_limit is None else int(event.credit_limit * 100),
            )
            return Reaction(state, [changed], ended=True)
        case RowDeleted():
            return Reaction(state, [customer.RemoveCustomer(customer_id=event.key)], ended=True)
        case _:
            assert_never(event)


customer_import = Process(
    name="customer_import",
    key="customer_id",
    initial=Nothing(),
    starts=(Customer, RowDeleted[Customer]),
    react=react,
    begins="origin",
)
