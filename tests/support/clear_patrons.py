"""Patrons, whose columns two stores have in plaintext, beside persons of other modules, whose columns none has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, assert_never

from pydantic import BaseModel, ConfigDict

from headwater import Aggregate, Command, Elasticsearch, Event, Personal, Postgres, TableView, count, last


class Enrolled(Event, type="patron.enrolled"):
    patron_id: str
    email: Annotated[str | None, Personal()]
    name: Annotated[str | None, Personal()]
    born: Annotated[int | None, Personal()] = None


class Gave(Event, type="patron.gave"):
    patron_id: str
    payee_id: str
    payee_name: Annotated[str | None, Personal(of="payee_id")]
    cents: int


class Patron(BaseModel):
    model_config = ConfigDict(frozen=True)


class Enrol(Command, type="patron.enrol"):
    patron_id: str
    email: Annotated[str | None, Personal()] = None
    name: Annotated[str | None, Personal()] = None
    born: Annotated[int | None, Personal()] = None


class Give(Command, type="patron.give"):
    patron_id: str
    payee_id: str
    payee_name: Annotated[str | None, Personal(of="payee_id")] = None
    cents: int


def decide(command: Enrol | Give, state: Patron) -> Sequence[Event]:
    match command:
        case Enrol():
            return [Enrolled(**command.model_dump())]
        case Give():
            return [Gave(**command.model_dump())]
        case _:
            assert_never(command)


def evolve(state: Patron, event: Enrolled | Gave) -> Patron:
    return state


patron = Aggregate(name="patron", id_field="patron_id", initial=Patron(), decide=decide, evolve=evolve)

known_patrons = TableView(
    name="known_patrons",
    key="patron_id",
    columns={
        "email": last({Enrolled: "email"}),
        "name": last({Enrolled: "name"}),
        "born": last({Enrolled: "born"}),
        "payee": last({Gave: "payee_name"}),
        "gifts": count(Gave),
    },
    stores=(
        Postgres(indexes=(("email",),), clear=("email", "born", "payee")),
        Elasticsearch(text=("email",), clear=("email", "born", "payee")),
    ),
)
unsearched_patrons = TableView(
    name="unsearched_patrons",
    key="patron_id",
    columns={"email": last({Enrolled: "email"}), "gifts": count(Gave)},
    stores=(Elasticsearch(clear=("email",)),),
)
sealed_patrons = TableView(
    name="sealed_patrons",
    key="patron_id",
    columns={"email": last({Enrolled: "email"}), "gifts": count(Gave)},
    stores=(Postgres(), Elasticsearch()),
)
