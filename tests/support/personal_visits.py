"""A domain of observations with personal fields, and a stream view that passes them through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict

from headwater import (
    INTEGER,
    JSON,
    TEXT,
    Cache,
    Elasticsearch,
    Observation,
    Personal,
    Postgres,
    StreamView,
    Topic,
    observations,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ERASED = "(erased)"


class Companion(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    person_id: str
    phone: Annotated[str | None, Personal(of="person_id")] = None


class Visited(Observation, type="visited"):
    visitor_id: str
    room: str
    name: Annotated[str, Personal(of="visitor_id", erased_as=ERASED)]
    age: Annotated[int | None, Personal(of="visitor_id")] = None
    companions: list[Companion] | None = None


class Rang(Observation, type="rang"):
    room: str


def last_of_room(visits: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    last = f.max(f.struct("time", "id", "visitor_id", "name", "age", "companions")).alias("last")
    rows = visits.groupBy("room").agg(last, f.count("*").alias("visits"))
    return rows.select("room", "visits", "last.*").drop("time", "id")


last_visitor = StreamView(
    name="last_visitor",
    key="room",
    columns={
        "room": TEXT,
        "visits": INTEGER,
        "visitor_id": TEXT,
        "name": TEXT,
        "age": TEXT,
        "companions": JSON,
    },
    sealed=("name", "age", "companions"),
    sources={"visits": observations(Visited, late_after="1h")},
    late="keep",
    query=last_of_room,
    stores=(Postgres(), Elasticsearch(), Cache()),
)


def each_visit(visits: DataFrame) -> DataFrame:
    return visits.where("room <> 'R9'").select("id", "room", "name")


visits_at_once = StreamView(
    name="visits_at_once",
    key="id",
    columns={"id": TEXT, "room": TEXT, "name": TEXT},
    sealed=("name",),
    sources={"visits": observations(Visited, late_after="1h")},
    realtime=True,
    query=each_visit,
    stores=(Postgres(), Topic()),
)
