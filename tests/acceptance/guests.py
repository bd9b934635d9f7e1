"""A package whose fields become personal: its text before that, and after it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

SOURCE: Final = """
from datetime import timedelta
from typing import Annotated

from pydantic import BaseModel, ConfigDict

from headwater import (
    Aggregate, Command, Event, Observation, Personal, Postgres, Process, Reaction, TableView, collect, count, last
)


class Arrived(Event, type="guest.arrived"):
    guest_id: str
    email: Annotated[str | None, OF_GUEST]


class Left(Event, type="guest.left"):
    guest_id: str
    told: str | None


class Seen(Observation, type="seen"):
    guest_id: str
    place: Annotated[str | None, OF_SEEN]


class Guest(BaseModel):
    model_config = ConfigDict(frozen=True)
    email: Annotated[str | None, OF_GUEST] = None
    visits: int = 0


class Arrive(Command, type="guest.arrive"):
    guest_id: str
    email: Annotated[str | None, OF_GUEST] = None


class Leave(Command, type="guest.leave"):
    guest_id: str


def decide(command: Arrive | Leave, state: Guest) -> list[Event]:
    if isinstance(command, Arrive):
        return [Arrived(guest_id=command.guest_id, email=command.email)]
    return [Left(guest_id=command.guest_id, told=str(state.visits))]


def evolve(state: Guest, event: Arrived | Left) -> Guest:
    return Guest(email=event.email, visits=state.visits + 1) if isinstance(event, Arrived) else state


guest = Aggregate(name="guest", id_field="guest_id", initial=Guest(), decide=decide, evolve=evolve)


class Stay(BaseModel):
    model_config = ConfigDict(frozen=True)
    email: Annotated[str | None, OF_GUEST] = None
    arrivals: int = 0


def react(event: Arrived, state: Stay) -> Reaction[Stay]:
    arrivals = state.arrivals + 1
    commands = [Leave(guest_id=event.guest_id)] if arrivals == 2 else []
    return Reaction(Stay(email=event.email, arrivals=arrivals), commands, timers={"out": timedelta(days=30)})


stay = Process(name="stay", key="guest_id", initial=Stay(), starts=(Arrived,), react=react)

guests = TableView(
    name="guests",
    key="guest_id",
    columns={"emails": collect({Arrived: "email"}), "told": last({Left: "told"}), "arrivals": count(Arrived)},
    stores=(Postgres(),),
)
"""
BEFORE: Final = "OF_GUEST = OF_SEEN = 'in clear'"
AFTER: Final = "OF_GUEST, OF_SEEN = Personal(), Personal(of='guest_id')"


def write_guests(folder: Path) -> tuple[str, str]:
    """Write both texts as modules in a folder; their names."""
    head, begin, rest = SOURCE.partition("\n\nclass Arrived")
    names = ("guests_before", "guests_after")
    for mark, name in zip((BEFORE, AFTER), names, strict=True):
        (folder / f"{name}.py").write_text(f"{head}\n\n{mark}\n{begin}{rest}")
    return names
