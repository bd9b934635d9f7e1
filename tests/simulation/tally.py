"""An aggregate made to be checked: a command records several events, and a rule says no from time to time."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from headwater.commands.declaring.aggregate import Aggregate, Command, Event
from headwater.commands.errors import Rejected

TOO_MANY = "too_many"


class Added(Event, type="tally.added"):
    """One of the `times` that a command asked for; `count` is the tally after it."""

    tally_id: str
    mark: str
    count: int


class Tally(BaseModel):
    """What the rule needs to know."""

    model_config = ConfigDict(frozen=True)
    count: int = 0


class Add(Command, type="tally.add"):
    """Add `times`, but never so that the tally exceeds `at_most`. `mark` is the command's own."""

    tally_id: str
    mark: str
    times: int
    at_most: int


def decide(command: Add, state: Tally) -> Sequence[Event]:
    """As many events as the command asks for, or none at all."""
    if state.count + command.times > command.at_most:
        raise Rejected(TOO_MANY, f"{state.count} and {command.times} exceed {command.at_most}")
    return [
        Added(tally_id=command.tally_id, mark=command.mark, count=state.count + step)
        for step in range(1, command.times + 1)
    ]


def evolve(state: Tally, event: Added) -> Tally:
    """The tally after `event`."""
    return Tally(count=event.count)


tally = Aggregate(name="tally", id_field="tally_id", initial=Tally(), decide=decide, evolve=evolve)
