"""Parcels, with one of everything that needs rights of its own: a process, an observation, and views of each kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from headwater import (
    TEXT,
    Aggregate,
    Cache,
    Command,
    Event,
    Observation,
    Postgres,
    Process,
    Ranking,
    Reaction,
    StreamView,
    TableView,
    Topic,
    last,
    observations,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Sent(Event, type="parcel.sent"):
    parcel_id: str
    city: str
    grams: int


class Labelled(Event, type="parcel.labelled"):
    parcel_id: str
    label: str


class Send(Command, type="parcel.send"):
    parcel_id: str
    city: str
    grams: int


class Label(Command, type="parcel.label"):
    parcel_id: str
    label: str


class Parcel(BaseModel):
    model_config = ConfigDict(frozen=True)


def decide(command: Send | Label, state: Parcel) -> Sequence[Event]:
    if isinstance(command, Send):
        return [Sent(**command.model_dump())]
    return [Labelled(**command.model_dump())]


def evolve(state: Parcel, event: Sent | Labelled) -> Parcel:
    return state


parcel = Aggregate(name="parcel", id_field="parcel_id", initial=Parcel(), decide=decide, evolve=evolve)


def react(event: Sent, state: Parcel) -> Reaction[Parcel]:
    return Reaction(state, [Label(parcel_id=event.parcel_id, label=f"to {event.city}")], ended=True)


labelling = Process(
    name="labelling", key="parcel_id", initial=Parcel(), starts=(Sent,), react=react, begins="origin"
)  # fmt: skip


class Seen(Observation, type="parcel_seen"):
    parcel_id: str
    city: str


parcels = TableView(
    name="parcels",
    key="parcel_id",
    columns={
        "city": last({Sent: "city"}),
        "grams": last({Sent: "grams"}),
        "label": last({Labelled: "label"}),
    },
    stores=(Postgres(),),
)
weights = TableView(
    name="weights",
    key="parcel_id",
    columns={"city": last({Sent: "city"}), "grams": last({Sent: "grams"})},
    stores=(Cache(rankings=(Ranking("-grams", within=("city",)),)),),
)


def as_seen(seen: DataFrame) -> DataFrame:
    return seen.select("id", "parcel_id", "city")


sightings = StreamView(
    name="sightings",
    key="id",
    columns={"id": TEXT, "parcel_id": TEXT, "city": TEXT},
    sources={"seen": observations(Seen, late_after="1h")},
    realtime=True,
    stores=(Postgres(), Topic()),
    query=as_seen,
)
