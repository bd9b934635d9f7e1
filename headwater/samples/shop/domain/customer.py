"""A customer of the shop: registered, changed and removed as the shop's database says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, assert_never

from pydantic import BaseModel, ConfigDict, Field

from headwater import Aggregate, Command, Event

CustomerId = Annotated[str, Field(min_length=1, max_length=20)]
"""The customer's id in the shop's database, as text."""


class Details(BaseModel):
    """What is known of a customer."""

    model_config = ConfigDict(frozen=True)

    name: str
    email: str
    is_business: bool
    credit_limit_cents: int | None


class CustomerRegistered(Event, type="customer.registered"):
    """The customer is new, or came back after a removal."""

    customer_id: str
    name: str
    email: str
    is_business: bool
    credit_limit_cents: int | None


class CustomerDetailsChanged(Event, type="customer.details_changed"):
    """Some details have other values. changed: their names."""

    customer_id: str
    name: str
    email: str
    is_business: bool
    credit_limit_cents: int | None
    changed: tuple[str, ...]


class CustomerRemoved(Event, type="customer.removed"):
    """The customer is not in the database any more."""

    customer_id: str


class Customer(BaseModel):
    """The details; None before the registration and after a removal."""

    model_config = ConfigDict(frozen=True)

    details: Details | None = None


def evolve(state: Customer, event: CustomerRegistered | CustomerDetailsChanged | CustomerRemoved) -> Customer:
    """The state after `event`."""
    match event:
        case CustomerRegistered() | CustomerDetailsChanged():
            return state.model_copy(update={"details": _details(event)})
        case CustomerRemoved():
            return state.model_copy(update={"details": None})
        case _:
            assert_never(event)


class ImportCustomer(Command, type="customer.import"):
    """Record what the database has of a customer now; if that is known, nothing happens."""

    customer_id: CustomerId
    name: str
    email: str
    is_business: bool
    credit_limit_cents: Annotated[int, Field(ge=-(2**53), le=2**53)] | None


class RemoveCustomer(Command, type="customer.remove"):
    """Record that the database has no such customer; if there is none, nothing happens."""

    customer_id: CustomerId


def decide(command: ImportCustomer | RemoveCustomer, state: Customer) -> Sequence[Event]:
    """The events of `command`. The database has decided already, so nothing is rejected."""
    match command:
        case ImportCustomer():
            details = _details(command)
            values = {"customer_id": command.customer_id, **details.model_dump()}
            if state.details is None:
                return [CustomerRegistered(**values)]
            changed = tuple(name for name, value in details if getattr(state.details, name) != value)
            return [CustomerDetailsChanged(**values, changed=changed)] if changed else []
        case RemoveCustomer():
            return [] if state.details is None else [CustomerRemoved(customer_id=command.customer_id)]
        case _:
            assert_never(command)


def _details(message: ImportCustomer | CustomerRegistered | CustomerDetailsChanged) -> Details:
    return Details.model_validate(message.model_dump(include=set(Details.model_fields)))


customer = Aggregate(name="customer", id_field="customer_id", initial=Customer(), decide=decide, evolve=evolve)
