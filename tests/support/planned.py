"""A domain whose events have values that are no scalars, and views with these in every store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict

from headwater import (
    Aggregate,
    Cache,
    Command,
    Elasticsearch,
    Event,
    Lookup,
    Personal,
    Postgres,
    Ranking,
    TableView,
    collect,
    envelope,
    item,
    last,
    nested,
    top,
)
from headwater.eventlog.envelope import Envelope, Position, encode, partition_of, timestamp_ms
from headwater.projections.table.expressions import Source
from headwater.projections.table.folds.fold import Column
from headwater.projections.table.json_text import dumps
from headwater.projections.testing.rows import sealed_envelope


class Person(BaseModel):
    """Somebody who takes part."""

    model_config = ConfigDict(frozen=True)
    person_id: str
    name: Annotated[str | None, Personal(of="person_id")] = None
    age: int


class Part(BaseModel):
    """A part, with sizes of any kind."""

    model_config = ConfigDict(frozen=True)
    sku: str
    sizes: list[int | float]
    extra: dict[str, Any] | None = None


class Planned(Event, type="plan.planned"):
    """Everything is planned anew."""

    plan_id: str
    title: str
    rank: int
    price: Decimal
    details: dict[str, Any]
    note: str | list[str] | dict[str, Any] | None
    stage: Literal["draft", 1] | None
    parts: list[Part]
    people: list[Person]


class Plan(Command, type="plan.plan"):
    """Plan everything anew."""

    plan_id: str


class Known(BaseModel):
    """Nothing is known of a plan."""

    model_config = ConfigDict(frozen=True)


def decide(command: Plan, state: Known) -> Sequence[Event]:
    return []


def evolve(state: Known, event: Planned) -> Known:
    return state


plan = Aggregate(name="plan", id_field="plan_id", initial=Known(), decide=decide, evolve=evolve)

COLUMNS: Final[dict[str, Column]] = {
    "title": last({Planned: "title"}),
    "rank": last({Planned: "rank"}),
    "price": last({Planned: "price"}),
    "details": last({Planned: "details"}),
    "note": last({Planned: "note"}),
    "stage": last({Planned: "stage"}),
    "whole_parts": last({Planned: "parts"}),
    "people": last({Planned: "people"}),
    "record": last({Planned: envelope("record")}),
    "notes": collect({Planned: "note"}),
    "story": collect({Planned: {"details": "details", "note": "note", "rank": "rank"}}, limit=2),
    "best": top(2, {Planned: {"details": "details"}}, by="rank"),
    "parts": nested(
        "sku",
        {Planned: item("parts", "sku")},
        {"sizes": last({Planned: item("parts", "sizes")}), "extra": last({Planned: item("parts", "extra")})},
    ),
}
plans_in_postgres = TableView(name="plans_in_postgres", key="plan_id", columns=COLUMNS, stores=(Postgres(),))
plans_in_elasticsearch = TableView(
    name="plans_in_elasticsearch",
    key="plan_id",
    columns=COLUMNS,
    stores=(Elasticsearch(text=("title",), facets=("rank",)),),
)
plans_in_valkey = TableView(
    name="plans_in_valkey", key="plan_id", columns=COLUMNS, stores=(Cache(rankings=(Ranking("-rank"),)),)
)
plan_parts = TableView(
    name="plan_parts",
    key=item("parts", "sku"),
    key_name="sku",
    columns={"sizes": last({Planned: item("parts", "sizes")}), "plan": last({Planned: "plan_id"})},
    each={Planned: "parts"},
    lookups=(
        Lookup(
            "plans_in_postgres",
            on="plan",
            columns={"plan_details": "details", "plan_people": "people", "plan_story": "story"},
        ),
    ),
    stores=(Postgres(),),
)
STORES: Final = ("postgres", "elasticsearch", "valkey")
LONG: Final = 123456789012345678901234567890
"""An integer that no float has."""
DETAILS: Final = {"n": LONG, "deep": [{"a": [1, 2.5, None, True, "x", '"']}, []], "é ": "ü\n", "none": None}


def planned(plan_id: str = "P1", **data: Any) -> dict[str, Any]:
    """The data of an event, in clear."""
    return {
        "plan_id": plan_id,
        "title": "A plan",
        "rank": 1,
        "price": "12.50",
        "details": DETAILS,
        "note": ["of", "two"],
        "stage": 1,
        "parts": [{"sku": "S2", "sizes": [1, 2.50], "extra": {"n": LONG}}, {"sku": "S1", "sizes": [], "extra": None}],
        "people": [{"person_id": "ada", "name": "Ada", "age": LONG}, {"person_id": "nobody", "name": None, "age": 1}],
        **data,
    }


def sources(*given: dict[str, Any]) -> list[Source]:
    """These events of plans, one after another, sealed."""
    found: list[Source] = []
    for number, data in enumerate(given):
        stream, time = f"plan/{data['plan_id']}", datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number)
        version = 1 + sum(source.envelope.stream == stream for source in found)
        clear = Envelope(f"{stream}/{version}", Planned.type, stream, time, data, sequence=version)
        event = sealed_envelope(Planned, clear)
        place = Position(partition_of(stream, 4), number)
        found.append(Source(event, place, timestamp_ms(time), encode(event, dumps(event.data).encode()).decode()))
    return found


def answered(data: dict[str, Any], *, opened: bool) -> dict[str, Any]:
    """What answers have of one event in the columns of JSON and lists but the record; opened: also of persons."""
    note = data["note"]
    entry = {"details": data["details"], "note": note, "rank": data["rank"]}
    hidden = {"hidden": "personal"}
    people = [
        {**entry, "name": entry["name"] if opened or entry["name"] is None else hidden} for entry in data["people"]
    ]
    return {
        "details": data["details"],
        "note": note,
        "stage": None if data["stage"] is None else str(data["stage"]),
        "price": data["price"],
        "whole_parts": data["parts"],
        "people": people,
        "notes": [note],
        "story": [entry],
        "best": [{"details": data["details"]}],
        "parts": sorted(data["parts"], key=lambda each: str(each["sku"])),
    }
