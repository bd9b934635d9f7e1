"""Accounts of tenants: the tenant is part of their id, and the API fills it. Two tenants may have one account id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict

from headwater import (
    Aggregate,
    Claim,
    Command,
    Event,
    Postgres,
    Process,
    Reaction,
    Rejected,
    TableView,
    count,
    envelope,
    last,
)


class Opened(Event, type="account.opened"):
    tenant: str
    account_id: str
    owner: str


class Account(BaseModel):
    model_config = ConfigDict(frozen=True)
    owner: str = ""


class Open(Command, type="account.open"):
    tenant: Annotated[str, Claim("tenant")]
    account_id: str
    owner: str = ""


def decide(command: Open, state: Account) -> Sequence[Event]:
    if state.owner:
        raise Rejected("already_open", "this account is open already")
    return [Opened(tenant=command.tenant, account_id=command.account_id, owner=command.owner or "nobody")]


def evolve(state: Account, event: Opened) -> Account:
    return Account(owner=event.owner)


account = Aggregate(name="account", id_field=("tenant", "account_id"), initial=Account(), decide=decide, evolve=evolve)


class Counted(Event, type="tally.counted"):
    shelf: int
    place: str


class Count(Command, type="tally.count"):
    shelf: int
    place: str


def decide_tally(command: Count, state: Account) -> Sequence[Event]:
    return [Counted(shelf=command.shelf, place=command.place)]


def evolve_tally(state: Account, event: Counted) -> Account:
    return state


tally = Aggregate(
    name="tally", id_field=("shelf", "place"), initial=Account(), decide=decide_tally, evolve=evolve_tally
)


class Counting(BaseModel):
    model_config = ConfigDict(frozen=True)


def react(event: Opened, state: Counting) -> Reaction[Counting]:
    return Reaction(state, [Count(shelf=7, place=f"{event.tenant}/{event.account_id}")])


counting = Process(name="counting", key=("tenant", "account_id"), initial=Counting(), starts=(Opened,), react=react)

accounts = TableView(
    name="accounts",
    key=envelope("stream"),
    key_name="stream",
    columns={"tenant": last({Opened: "tenant"}), "owner": last({Opened: "owner"}), "opened": count(Opened)},
    stores=(Postgres(indexes=(("tenant",),)),),
    readable_by={"tenant": Claim("tenant")},
)
