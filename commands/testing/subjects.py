"""`given`, the first call in every test of an aggregate or a process."""

from __future__ import annotations

from typing import Any, TypeVar, overload

from pydantic import BaseModel

from headwater.commands.declaring.aggregate import Aggregate
from headwater.commands.declaring.process import Process
from headwater.commands.testing.instances import GivenInstance, Seen
from headwater.commands.testing.past import Happened
from headwater.commands.testing.streams import GivenStream, given_stream

State = TypeVar("State", bound=BaseModel)


@overload
def given(subject: Aggregate[State], *happened: Happened) -> GivenStream[State]: ...
@overload
def given(subject: Process[State], *happened: Seen) -> GivenInstance[State]: ...
def given(subject: Any, *happened: Any) -> Any:
    """An aggregate or an instance of a process after events.

    subject: the Aggregate or Process. happened: for an aggregate, the events of one stream; for a process, what one
    instance has seen: events of any streams, rows of captured tables (`Customer(id=1, …)`, and `RowDeleted(Customer,
    "1")` for a deleted one) and of stream views, `TimedOut(…)` for a timer that fired, and `Refused(…)` for a command
    that changed nothing. Use `recorded(…)` for an event of an older version of the code, and `at(…)` to set its time.

    Everything is stored and read back as in production. Raises the errors that are `failed` or a dead letter in
    production, TypeError for an event that the subject does not handle, and ValueError for events of several streams or
    instances.
    """
    if isinstance(subject, Aggregate):
        return given_stream(subject, happened)
    if isinstance(subject, Process):
        return GivenInstance(subject, happened)
    raise TypeError(f"{subject!r} is not an Aggregate or a Process; for a TableView use headwater.testing.rows_of")
