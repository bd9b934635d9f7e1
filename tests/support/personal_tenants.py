"""Members of tenants: ids have a part that the API fills with a claim, and persons may have one id in two tenants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict

from headwater import Aggregate, Claim, Command, Event, Personal, Postgres, TableView, last


class Joined(Event, type="member.joined"):
    tenant: str
    member_id: str
    person_id: str
    name: Annotated[str | None, Personal(of="person_id")]


class Member(BaseModel):
    model_config = ConfigDict(frozen=True)


class Join(Command, type="member.join"):
    tenant: Annotated[str, Claim("tenant")]
    member_id: str
    person_id: str
    name: Annotated[str | None, Personal(of="person_id")]


def decide(command: Join, state: Member) -> Sequence[Event]:
    return [Joined(**command.model_dump())]


def evolve(state: Member, event: Joined) -> Member:
    return state


member = Aggregate(name="member", id_field=("tenant", "member_id"), initial=Member(), decide=decide, evolve=evolve)

members = TableView(
    name="members",
    key=("tenant", "member_id"),
    columns={"name": last({Joined: "name"})},
    stores=(Postgres(),),
    readable_by={"tenant": Claim("tenant")},
)

persons = TableView(
    name="member_of",
    key="person_id",
    columns={"tenant": last({Joined: "tenant"})},
    stores=(Postgres(),),
    readable_by={"tenant": Claim("tenant")},
)
