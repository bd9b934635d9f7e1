"""Times that no view could read are refused where they come in, and with the rule that makes them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, NaiveDatetime, PlainValidator

from headwater.commands.codec import read_back, read_command
from headwater.commands.declaring.aggregate import Aggregate, Command, Event
from headwater.commands.declaring.observation import Observation, ObservationRegistry
from headwater.commands.declaring.registry import CommandType
from headwater.commands.declaring.times import is_outside, is_time, may_hold_times
from headwater.commands.errors import BadDecision, MalformedCommand, MalformedObservation
from headwater.commands.sending.prepared_command import prepare
from tests.support.edge_times import INSIDE, OUTSIDE

FAR_OFFSETS = ("2026-01-01T00:00:00+18:00", "2026-01-01T00:00:00-23:59")


class Stop(BaseModel):
    """A place where a bus stops."""

    place: str
    at: datetime | None = None


@dataclass
class Pause:
    """When a driver rests."""

    until: datetime


class Plan(Command, type="tour.plan"):
    """Has times everywhere."""

    tour_id: str
    begins: datetime
    stops: list[Stop] = Field(default_factory=list)
    pauses: dict[str, Pause] = Field(default_factory=dict)
    closes: datetime | None = None
    own: Annotated[Any, PlainValidator(lambda text: text and datetime.fromisoformat(text))] = None


class Planned(Event, type="tour.planned"):
    """Has times too."""

    tour_id: str
    begins: datetime
    stops: list[Stop]


class Counted(Event, type="tour.counted"):
    """Has none."""

    tour_id: str
    count: Annotated[int, Field(ge=0)]


class Tour(BaseModel):
    model_config = ConfigDict(frozen=True)


def decide(command: Plan, state: Tour) -> Iterable[Event]:
    return [Planned(tour_id=command.tour_id, begins=command.begins, stops=command.stops)]


def evolve(state: Tour, event: Planned | Counted) -> Tour:
    return state


PLAN = CommandType(Aggregate("tour", "tour_id", Tour(), decide, evolve), Plan)


class Arrived(Observation, type="arrived"):
    """Has times."""

    at: datetime
    stops: list[Stop] = Field(default_factory=list)


ARRIVED = ObservationRegistry([("here", Arrived)])


def refused(**body: Any) -> list[tuple[Any, str]]:
    """Where a command has times that are refused, and why."""
    text = {"tour_id": "T", "begins": "2026-01-31T12:00:00+01:00", **body}
    with pytest.raises(MalformedCommand) as error:
        read_command(PLAN, json.dumps(text).encode())
    assert {detail["type"] for detail in error.value.details} == {"time_out_of_range"}
    return [(detail["loc"], detail["msg"]) for detail in error.value.details]


@pytest.mark.parametrize("text", OUTSIDE)
def test_a_command_with_a_time_that_no_store_has_is_refused_with_its_place(text: str) -> None:
    found = refused(
        begins=text,
        stops=[{"place": "A"}, {"place": "B", "at": text}],
        pauses={"lunch": {"until": text}},
        closes=text,
        own=text,
    )
    assert [place for place, _ in found] == [
        ("begins",), ("stops", 1, "at"), ("pauses", "lunch", "until"), ("closes",), ("own",),
    ]  # fmt: skip
    assert all("send a time that is in these years" in reason for _, reason in found)


@pytest.mark.parametrize("text", FAR_OFFSETS)
def test_an_offset_that_views_do_not_read_is_refused(text: str) -> None:
    assert not is_time(text)
    ((place, reason),) = refused(begins=text)
    assert place == ("begins",)
    assert "send it in UTC" in reason


@pytest.mark.parametrize("text", INSIDE)
def test_the_first_and_the_last_times_are_accepted(text: str) -> None:
    body = {"tour_id": "T", "begins": text, "stops": [{"place": "A", "at": text}], "own": text}
    command = read_command(PLAN, json.dumps(body).encode()).command
    assert command.model_dump()["begins"] == datetime.fromisoformat(text)


def test_a_text_that_is_not_declared_as_a_time_may_be_any() -> None:
    read_command(PLAN, json.dumps({"tour_id": OUTSIDE[0], "begins": "2026-01-31T12:00:00Z"}).encode())


@pytest.mark.parametrize("text", [*OUTSIDE, *FAR_OFFSETS])
def test_an_observation_with_a_time_that_no_view_reads_is_refused_with_its_place(text: str) -> None:
    data = {"at": text, "stops": [{"place": "A", "at": text}]}
    with pytest.raises(MalformedObservation) as error:
        ARRIVED.read("arrived", json.dumps({"id": "1", "source": "s", "data": data}).encode())
    assert [detail["loc"] for detail in error.value.details] == [("data", "at"), ("data", "stops", 0, "at")]


@pytest.mark.parametrize(
    "time",
    [
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))),
        datetime(9999, 12, 31, 23, 59, tzinfo=timezone(timedelta(hours=-1))),
        datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=19))),
    ],
)
def test_a_rule_that_makes_such_a_time_is_named(time: datetime) -> None:
    good = datetime(2026, 1, 1, tzinfo=UTC)
    for event, place in (
        (Planned(tour_id="T", begins=time, stops=[]), "begins"),
        (Planned(tour_id="T", begins=good, stops=[Stop(place="A", at=time)]), "stops.0.at"),
    ):
        with pytest.raises(BadDecision, match=f'"tour.planned" has a time that views cannot read in "{place}": '):
            read_back(event, event.model_dump_json().encode())
    event = Planned(tour_id="T", begins=good, stops=[Stop(place="A", at=good)])
    assert read_back(event, event.model_dump_json().encode()) == event


def test_which_texts_are_times() -> None:
    for text in INSIDE:
        assert (is_time(text), is_outside(text)) == (True, False)
    for text in OUTSIDE:
        assert (is_time(text), is_outside(text)) == (False, True)
    for other in ("2026-02-30T00:00:00Z", "2026-01-31", "now", "", None, 7, ["2026-01-31T00:00:00Z"]):
        assert (is_time(other), is_outside(other)) == (False, False)


def test_messages_without_times_are_not_searched() -> None:
    assert not may_hold_times(Counted)
    assert may_hold_times(Planned)
    assert may_hold_times(Plan)
    assert may_hold_times(Arrived)


class Alarm(Command, type="tour.alarm"):
    """Has a local time on purpose."""

    tour_id: str
    at: NaiveDatetime


ALARM = CommandType(Aggregate("tour", "tour_id", Tour(), decide, evolve), Alarm)

UNCLEAR = ("2026-01-31T12:00:00", "2026-01-31 12:00:00.5", "1700000000", "+1700000000", "1700000000.5", "-1")


def unclear(**body: Any) -> list[tuple[Any, str]]:
    """Where a new command has times that say too little, and why."""
    text = {"tour_id": "T", "begins": "2026-01-31T12:00:00+01:00", **body}
    with pytest.raises(MalformedCommand) as error:
        prepare(PLAN, json.dumps(text).encode(), datetime.now(UTC))
    assert {detail["type"] for detail in error.value.details} == {"time_unclear"}
    return [(detail["loc"], detail["msg"]) for detail in error.value.details]


@pytest.mark.parametrize("text", UNCLEAR)
def test_a_new_command_with_a_time_that_says_too_little_is_refused(text: str) -> None:
    found = unclear(
        begins=text,
        stops=[{"place": "A"}, {"place": "B", "at": text}],
        pauses={"lunch": {"until": text}},
        closes=text,
    )
    assert [place for place, _ in found] == [
        ("begins",), ("stops", 1, "at"), ("pauses", "lunch", "until"), ("closes",),
    ]  # fmt: skip
    assert all("write it like 2026-01-31T12:00:00Z" in reason for _, reason in found)


@pytest.mark.parametrize("text", ["2026-01-31T12:00:00Z", "2026-01-31 12:00:00+02:00", "2026-01-31t12:00z"])
def test_a_time_with_its_offset_is_taken(text: str) -> None:
    body = {"tour_id": "T", "begins": text, "stops": [{"place": "A", "at": text}]}
    assert prepare(PLAN, body, datetime.now(UTC)).stream == "tour/T"


@pytest.mark.parametrize("text", UNCLEAR)
def test_a_command_that_is_in_the_log_is_read_as_it_was_accepted(text: str) -> None:
    assert read_command(PLAN, {"tour_id": "T", "begins": text}).stream == "tour/T"


def test_a_field_may_have_local_times() -> None:
    assert prepare(ALARM, {"tour_id": "T", "at": "2026-01-31T12:00:00"}, datetime.now(UTC)).stream == "tour/T"
    with pytest.raises(MalformedCommand):
        prepare(ALARM, {"tour_id": "T", "at": "2026-01-31T12:00:00Z"}, datetime.now(UTC))
