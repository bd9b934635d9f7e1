"""A domain with personal fields: of its own person, of two persons in one event, nested, and of any type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, assert_never

from pydantic import BaseModel, ConfigDict

from headwater import (
    Aggregate,
    Cache,
    Command,
    Elasticsearch,
    Event,
    Personal,
    Postgres,
    Process,
    Reaction,
    Rejected,
    TableView,
    Topic,
    collect,
    count,
    last,
)

ERASED = "(erased)"


class Contact(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    person_id: str
    phone: Annotated[str | None, Personal(of="person_id")] = None
    note: Annotated[str | None, Personal()] = None


class Registered(Event, type="customer.registered"):
    customer_id: str
    email: Annotated[str | None, Personal()]
    name: Annotated[str, Personal(erased_as=ERASED)]
    born: Annotated[int | None, Personal()] = None
    contacts: list[Contact] | None = None


class Paid(Event, type="customer.paid"):
    customer_id: str
    payee_id: str
    payer_name: Annotated[str | None, Personal()]
    payee_name: Annotated[str | None, Personal(of="payee_id")]
    cents: int


class Mailed(Event, type="customer.mailed"):
    customer_id: str
    address: Annotated[str | None, Personal()]


class Customer(BaseModel):
    model_config = ConfigDict(frozen=True)
    email: Annotated[str | None, Personal()] = None
    name: Annotated[str, Personal(erased_as=ERASED)] = ""
    contacts: tuple[Contact, ...] = ()
    paid_cents: int = 0


def evolve(state: Customer, event: Registered | Paid | Mailed) -> Customer:
    match event:
        case Registered():
            return Customer(email=event.email, name=event.name, contacts=tuple(event.contacts or ()))
        case Paid():
            return state.model_copy(update={"paid_cents": state.paid_cents + event.cents})
        case Mailed():
            return state
        case _:
            assert_never(event)


class Register(Command, type="customer.register"):
    customer_id: str
    email: Annotated[str | None, Personal()] = None
    name: Annotated[str, Personal(erased_as=ERASED)]
    born: Annotated[int | None, Personal()] = None
    contacts: list[Contact] | None = None


class Pay(Command, type="customer.pay"):
    customer_id: str
    payee_id: str
    payee_name: Annotated[str | None, Personal(of="payee_id")] = None
    cents: int


class Mail(Command, type="customer.mail"):
    customer_id: str
    address: Annotated[str | None, Personal()] = None


class Break(Command, type="customer.break"):
    customer_id: str
    secret: Annotated[str | None, Personal()] = None


def decide(command: Register | Pay | Mail | Break, state: Customer) -> Sequence[Event]:
    match command:
        case Register():
            if state.name:
                raise Rejected("registered", f'"{command.name}" cannot be registered: {state.name} is there')
            return [
                Registered(
                    customer_id=command.customer_id,
                    email=command.email,
                    name=command.name,
                    born=command.born,
                    contacts=command.contacts,
                )
            ]
        case Pay():
            return [
                Paid(
                    customer_id=command.customer_id,
                    payee_id=command.payee_id,
                    payer_name=state.name or None,
                    payee_name=command.payee_name,
                    cents=command.cents,
                )
            ]
        case Mail():
            return [Mailed(customer_id=command.customer_id, address=command.address)]
        case Break():
            raise ValueError(f"a rule that says {command.secret} and {state.email}")
        case _:
            assert_never(command)


customer = Aggregate(name="customer", id_field="customer_id", initial=Customer(), decide=decide, evolve=evolve)


class Greeting(BaseModel):
    model_config = ConfigDict(frozen=True)
    email: Annotated[str | None, Personal()] = None


def react(event: Registered | Paid, state: Greeting) -> Reaction[Greeting]:
    match event:
        case Registered():
            return Reaction(Greeting(email=event.email))
        case Paid():
            return Reaction(state, [Mail(customer_id=event.customer_id, address=state.email)])
        case _:
            assert_never(event)


greeting = Process(name="greeting", key="customer_id", initial=Greeting(), starts=(Registered,), react=react)

customers = TableView(
    name="customers",
    key="customer_id",
    columns={
        "email": last({Registered: "email"}),
        "name": last({Registered: "name"}),
        "born": last({Registered: "born"}),
        "payees": collect({Paid: "payee_name"}),
        "payments": count(Paid),
    },
    stores=(Postgres(),),
)

everywhere = TableView(
    name="customers_everywhere",
    key="customer_id",
    columns={"email": last({Registered: "email"}), "contacts": last({Registered: "contacts"})},
    stores=(Postgres(), Elasticsearch(), Cache(), Topic()),
)
