"""Two aggregates with the same fields, of which one seals two, and a view of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict

from headwater import Aggregate, Command, Event, Personal, Postgres, TableView, count, last


class PersonRegistered(Event, type="person.registered"):
    """Seals two fields."""

    person_id: str
    email: Annotated[str | None, Personal()]
    name: Annotated[str | None, Personal()]
    city: str


class RegisterPerson(Command, type="person.register"):
    """Likewise."""

    person_id: str
    email: Annotated[str | None, Personal()]
    name: Annotated[str | None, Personal()]
    city: str


class ShopRegistered(Event, type="shopper.registered"):
    """Seals none."""

    shopper_id: str
    email: str | None
    name: str | None
    city: str


class RegisterShopper(Command, type="shopper.register"):
    """Likewise."""

    shopper_id: str
    email: str | None
    name: str | None
    city: str


class Known(BaseModel):
    """How often somebody was registered."""

    model_config = ConfigDict(frozen=True)
    times: int = 0


def register_person(command: RegisterPerson, state: Known) -> Sequence[PersonRegistered]:
    """Everybody may be registered again."""
    return [PersonRegistered(**command.model_dump())]


def register_shopper(command: RegisterShopper, state: Known) -> Sequence[ShopRegistered]:
    """Likewise."""
    return [ShopRegistered(**command.model_dump())]


def after_person(state: Known, event: PersonRegistered) -> Known:
    """Once more."""
    return Known(times=state.times + 1)


def after_shopper(state: Known, event: ShopRegistered) -> Known:
    """Once more."""
    return Known(times=state.times + 1)


person = Aggregate("person", "person_id", Known(), register_person, after_person)
shopper = Aggregate("shopper", "shopper_id", Known(), register_shopper, after_shopper)

persons = TableView(
    name="persons",
    key="person_id",
    columns={
        "email": last({PersonRegistered: "email"}),
        "city": last({PersonRegistered: "city"}),
        "times": count(PersonRegistered),
    },
    stores=(Postgres(),),
)
in_clear = TableView(
    name="persons_in_clear",
    key="person_id",
    columns=persons.columns,
    stores=(Postgres(clear=("email",)),),
)
shoppers = TableView(
    name="shoppers",
    key="shopper_id",
    columns={
        "email": last({ShopRegistered: "email"}),
        "city": last({ShopRegistered: "city"}),
        "times": count(ShopRegistered),
    },
    stores=(Postgres(),),
)
