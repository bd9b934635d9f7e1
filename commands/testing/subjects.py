"""The word that every test of an aggregate or a process begins with."""

from __future__ import annotations

from typing import Any, TypeVar, overload

from pydantic import BaseModel

from commands.declaring.aggregate import Aggregate
from commands.declaring.process import Process
from commands.testing.instances import GivenInstance, Seen
from commands.testing.past import Happened
from commands.testing.streams import GivenStream, given_stream

State = TypeVar("State", bound=BaseModel)


@overload
def given(subject: Aggregate[State], *happened: Happened) -> GivenStream[State]: ...
@overload
def given(subject: Process[State], *happened: Seen) -> GivenInstance[State]: ...
def given(subject: Any, *happened: Any) -> Any:
    """An aggregate or a process to which something has happened.

    subject: as it is declared. happened: the events of one stream, or what one instance of the process has seen: events
    of any streams, its timers that ran out (`TimedOut`) and its commands that changed nothing (`Refused`). An event may
    be `recorded(…)` by an older version of the code, or `at(…)` a time.

    Everything is stored and read back as in production; raises what production would answer `failed` to or make a dead
    letter of, TypeError for what does not belong to the subject, and ValueError for several streams or instances.
    """
    if isinstance(subject, Aggregate):
        return given_stream(subject, happened)
    if isinstance(subject, Process):
        return GivenInstance(subject, happened)
    raise TypeError(f"{subject!r} is no Aggregate and no Process; for a TableView use projections.testing.rows_of")
