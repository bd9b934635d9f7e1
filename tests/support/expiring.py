"""Views whose rows expire: sessions that were not seen for an hour, in several stores, and what looks them up."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from pydantic import BaseModel, ConfigDict

from headwater import (
    Aggregate,
    Cache,
    Command,
    Elasticsearch,
    Event,
    Lookup,
    Postgres,
    TableView,
    count,
    envelope,
    last,
)
from headwater.projections.table.folds.fold import Column


class Seen(Event, type="session.seen"):
    session_id: str
    user: str
    day: date


class See(Command, type="session.see"):
    session_id: str
    user: str
    day: date


class Session(BaseModel):
    model_config = ConfigDict(frozen=True)


def decide(command: See, state: Session) -> Sequence[Event]:
    return [Seen(**command.model_dump())]


def evolve(state: Session, event: Seen) -> Session:
    return state


session = Aggregate(name="session", id_field="session_id", initial=Session(), decide=decide, evolve=evolve)
COLUMNS: dict[str, Column] = {
    "user": last({Seen: "user"}),
    "seen_at": last({Seen: envelope("time")}),
    "day": last({Seen: "day"}),
    "times": count(Seen),
}

sessions = TableView(
    name="sessions",
    key="session_id",
    columns=COLUMNS,
    stores=(Postgres(), Elasticsearch(text=("user",), facets=("user",)), Cache()),
    expires={"seen_at": "1h"},
)
plain_sessions = TableView(
    name="plain_sessions", key="session_id", columns=COLUMNS, stores=(Postgres(),), expires={"seen_at": "1h"}
)
days = TableView(
    name="days",
    key=("user", "day"),
    columns={"times": count(Seen)},
    stores=(Postgres(indexes=(("day",),)), Elasticsearch(), Cache()),
    expires={"day": "30d"},
)
users = TableView(
    name="users",
    key="user",
    columns={"session": last({Seen: "session_id"})},
    stores=(Postgres(),),
    lookups=(Lookup("sessions", on="session", columns={"times": "times"}),),
)
