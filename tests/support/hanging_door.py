"""An aggregate whose rule does not return until a file exists, for handlers in processes of their own."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from headwater import Aggregate, Command, Event


class Passed(Event, type="door.passed"):
    door_id: str


class Door(BaseModel):
    model_config = ConfigDict(frozen=True)


class Pass(Command, type="door.pass"):
    door_id: str
    waits: bool = False


def decide(command: Pass, state: Door) -> Sequence[Event]:
    while command.waits and not Path(os.environ["DOOR_OPENED"]).exists():
        time.sleep(0.05)
    return [Passed(door_id=command.door_id)]


def evolve(state: Door, event: Passed) -> Door:
    return state


door = Aggregate(name="door", id_field="door_id", initial=Door(), decide=decide, evolve=evolve)
