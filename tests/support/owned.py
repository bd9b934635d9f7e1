"""Accounts of their owners, whose commands and observations have fields that the API fills."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict

from headwater import AcceptedAt, Aggregate, Claim, Command, Event, Observation, Rejected


class Opened(Event, type="account.opened"):
    account_id: str
    owner: str
    at: datetime


class Account(BaseModel):
    model_config = ConfigDict(frozen=True)
    owner: str = ""


class Open(Command, type="account.open"):
    account_id: str
    owner: Annotated[str, Claim("sub")]
    tenant: Annotated[str, Claim("tenant")] = "none"
    at: Annotated[datetime, AcceptedAt()]


class Looked(Observation, type="account_looked"):
    account_id: str
    who: Annotated[str, Claim("sub")]
    at: Annotated[datetime, AcceptedAt()]


def decide(command: Open, state: Account) -> Sequence[Event]:
    if state.owner:
        raise Rejected("already_open", f'account "{command.account_id}" is open already')
    return [Opened(account_id=command.account_id, owner=f"{command.owner}@{command.tenant}", at=command.at)]


def evolve(state: Account, event: Opened) -> Account:
    return Account(owner=event.owner)


account = Aggregate(name="account", id_field="account_id", initial=Account(), decide=decide, evolve=evolve)
