"""An aggregate whose rules do, at the word of a command, whatever a user's rules may do by mistake."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import count
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from headwater.commands.declaring.aggregate import Aggregate, Command, Event
from headwater.commands.errors import Rejected

MIB = 1024 * 1024


class Item(BaseModel):
    model_config = ConfigDict(frozen=True)
    quantity: Annotated[int, Field(ge=0)] = 0


class Done(Event, type="wild.done"):
    wild_id: str
    what: str
    number: int
    share: float
    items: tuple[Item, ...]


class Never(Event, type="wild.never"):
    wild_id: str


class Wild(BaseModel):
    model_config = ConfigDict(frozen=True)
    done: int = 0
    text: str = ""
    number: Annotated[int, Field(ge=0)] = 0
    share: float = 0.0
    anything: Any = None


class Do(Command, type="wild.do"):
    wild_id: str
    what: str = "good"

    @field_validator("what")
    @classmethod
    def _check(cls, what: str) -> str:
        if what == "validator exits":
            raise SystemExit(4)
        return what


class Broken(Rejected):
    """A Rejected that forgot to call its parent."""

    def __init__(self) -> None:
        pass


class Code(StrEnum):
    NO = "no"


def done(command: Do, **changes: Any) -> Done:
    return Done(wild_id=command.wild_id, what=command.what, number=1, share=0.5, items=()).model_copy(update=changes)


def unvalidated(**fields: Any) -> Done:
    return Done.model_construct(**fields)


def endless(number: int) -> Any:
    return endless(number + 1) + 1


def yielded(command: Do, events: Iterable[int]) -> Iterator[Done]:
    for _ in events:
        yield done(command)


RAISED: dict[str, BaseException] = {
    "message is an error": Rejected("x", ValueError("boom")),  # type: ignore[arg-type]
    "message is None": Rejected("x", None),  # type: ignore[arg-type]
    "code is a number": Rejected(7, "seven"),  # type: ignore[arg-type]
    "message is half a pair": Rejected("x", "\ud800"),
    "code is half a pair": Rejected("\udfff", "x"),
    "message is huge": Rejected("x", "m" * 5 * MIB),
    "code is huge": Rejected("c" * 5 * MIB, "x"),
    "broken Rejected": Broken(),
    "rejected": Rejected("no", "a rule said no"),
    "rejected with an enum": Rejected(Code.NO, "a rule said no"),
    "exit": SystemExit(3),
    "interrupt": KeyboardInterrupt(),
    "generator exit": GeneratorExit(),
    "memory": MemoryError(),
    "stop": StopIteration(),
}


def decide(command: Do, state: Wild) -> Iterable[Event]:
    if command.what in RAISED:
        raise RAISED[command.what]
    answers: dict[str, Any] = {
        "None": None,
        "recursion": lambda: endless(0),
        "one event": lambda: done(command),
        "text": "wild.done",
        "a number": 7,
        "no events": [1, 2],
        "a class": [Done],
        "undeclared event": lambda: [Never(wild_id=command.wild_id)],
        "other stream": lambda: [done(command, wild_id="another")],
        "wrong type": lambda: [done(command, number="one")],
        "wrong inside": lambda: [done(command, items=(Item().model_copy(update={"quantity": -1}),))],
        "missing field": lambda: [unvalidated(wild_id=command.wild_id)],
        "not a number": lambda: [done(command, share=float("nan"))],
        "large integer": lambda: [done(command, number=2**70)],
        "half a pair": lambda: [done(command, what="\ud800")],
        "large event": lambda: [done(command, what="x" * 5 * MIB)],
        "large events": lambda: yielded_large(command),
        "20,000 events": lambda: [done(command)] * 20_000,
        "no end": lambda: yielded(command, count()),
        "generator": lambda: yielded(command, range(3)),
        "generator fails": lambda: failing(command),
    }
    answer = answers.get(command.what, lambda: [done(command)])
    decided: Iterable[Event] = answer() if callable(answer) else answer
    return decided


def yielded_large(command: Do) -> Iterator[Done]:
    for _ in range(5):
        yield done(command, what="x" * 2 * MIB)


def failing(command: Do) -> Iterator[Done]:
    yield done(command)
    raise ZeroDivisionError("after the first")


def evolve(state: Wild, event: Done) -> Any:
    after = state.model_copy(update={"done": state.done + 1})
    changes: dict[str, dict[str, Any]] = {
        "state is text": {"number": "one"},
        "state out of bounds": {"number": -1},
        "state not a number": {"share": float("inf")},
        "state half a pair": {"text": "\ud800"},
        "state no JSON": {"anything": object()},
        "state nested": {"anything": nested(252)},
        "state of 6 MiB": {"text": "x" * 6 * MIB},
        "state of 2 MiB": {"text": state.text + "x" * 2 * MIB},
    }
    match event.what:
        case "evolve fails":
            raise ZeroDivisionError("in evolve")
        case "evolve exits":
            raise SystemExit(5)
        case "evolve None":
            return None
        case "evolve other":
            return Item()
        case _:
            return after.model_copy(update=changes.get(event.what, {}))


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


wild = Aggregate(name="wild", id_field="wild_id", initial=Wild(), decide=decide, evolve=evolve)

BAD_SAYINGS = (
    "message is an error", "message is None", "code is a number", "message is half a pair", "code is half a pair",
    "message is huge", "code is huge", "broken Rejected",
)  # fmt: skip
BAD_ENDS = (
    "recursion", "exit", "interrupt", "generator exit", "memory", "stop", "generator fails", "evolve fails",
    "evolve exits",
)  # fmt: skip
BAD_COMMANDS = ("validator exits",)
"""These cannot be made where they are sent from either."""
BAD_EVENTS = (
    "None", "one event", "text", "a number", "no events", "a class", "undeclared event", "other stream", "wrong type",
    "wrong inside", "missing field", "not a number", "large integer", "half a pair", "large event", "large events",
    "20,000 events", "no end",
)  # fmt: skip
BAD_STATES = (
    "evolve None", "evolve other", "state is text", "state out of bounds", "state not a number",
    "state half a pair", "state no JSON", "state nested", "state of 6 MiB",
)  # fmt: skip
BAD = (*BAD_SAYINGS, *BAD_ENDS, *BAD_COMMANDS, *BAD_EVENTS, *BAD_STATES)
CODES = {
    "state of 6 MiB": "state_too_large",
    "large event": "event_too_large",
    "large events": "too_many_events",
    "20,000 events": "too_many_events",
    "no end": "too_many_events",
}
"""What the client is told, if that is more than an error id."""
