"""What a team has of its own, and both versions load: rows of a captured table in views, and as causes of commands."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from pydantic import BaseModel, ConfigDict

from headwater import (
    Aggregate,
    Captured,
    Command,
    Deleted,
    Elasticsearch,
    Event,
    Postgres,
    Process,
    Reaction,
    Source,
    TableView,
    current,
)


class Customer(Captured, table="public.customers", key="id"):
    id: int
    name: str
    credit_limit: Decimal | None


crm = Source(name="crm", tables=(Customer,))

customers = TableView(
    name="customers",
    key="id",
    columns={"name": current(Customer, "name"), "credit_limit": current(Customer, "credit_limit")},
    deleted_by=(Deleted(Customer),),
    stores=(Postgres(), Elasticsearch()),
)


class Nothing(BaseModel):
    model_config = ConfigDict(frozen=True)


class Named(Event, type="contact.named"):
    contact_id: str
    name: str


class Name(Command, type="contact.name"):
    contact_id: str
    name: str


def decide(command: Name, state: Nothing) -> Sequence[Event]:
    return [Named(contact_id=command.contact_id, name=command.name)]


def evolve(state: Nothing, event: Named) -> Nothing:
    return state


contact = Aggregate(name="contact", id_field="contact_id", initial=Nothing(), decide=decide, evolve=evolve)


def react(event: Customer, state: Nothing) -> Reaction[Nothing]:
    return Reaction(state, [Name(contact_id=str(event.id), name=event.name)], ended=True)


naming = Process(name="naming", key="contact_id", initial=Nothing(), starts=(Customer,), react=react, begins="origin")
