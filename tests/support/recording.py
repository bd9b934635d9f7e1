"""Aggregates of events that tests write to the log themselves, because a view of events without one is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Union

from pydantic import BaseModel, ConfigDict

from headwater.commands.declaring.aggregate import Aggregate, Command, Event


class Nothing(BaseModel):
    model_config = ConfigDict(frozen=True)


def recording(name: str, id_field: str, *events: type[Event]) -> Aggregate[Nothing]:
    """An aggregate that records these events, and decides one command without any."""

    class Ask(Command, type=f"{name}.ask"):
        __annotations__ = {id_field: str}

    def decide(command: Any, state: Nothing) -> Sequence[Event]:
        return []

    def evolve(state: Nothing, event: Any) -> Nothing:
        return state

    decide.__annotations__["command"] = Ask
    evolve.__annotations__["event"] = Union[events]  # noqa: UP007 - the events are known only here
    return Aggregate(name=name, id_field=id_field, initial=Nothing(), decide=decide, evolve=evolve)
