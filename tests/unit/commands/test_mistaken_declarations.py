"""Mistakes in the declarations of the write side: each error names what is declared, and says what to write."""

# mypy: disable-error-code="arg-type, call-arg, dict-item, list-item, misc"

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, computed_field, create_model

from headwater import (
    Aggregate,
    Command,
    Event,
    Observation,
    Process,
    Reaction,
    ViewRow,
    convert,
    default,
    drop,
    rename,
    split,
    upcast,
)
from headwater.commands.declaring.observation import ObservationRegistry
from headwater.commands.errors import DeclarationError
from headwater.eventlog.declaring import WrongDeclaration


class Lit(Event, type="lamp.lit"):
    lamp_id: str


class Light(Command, type="lamp.light"):
    lamp_id: str


class Lamp(BaseModel):
    model_config = ConfigDict(frozen=True)


class Loose(BaseModel):
    """Not frozen."""


def decide(command: Light, state: Lamp) -> Sequence[Event]:
    return []


def evolve(state: Lamp, event: Lit) -> Lamp:
    return state


def react(event: Lit, state: Lamp) -> Reaction[Lamp]:
    return Reaction(state)


class Bulb(ViewRow, view="bulbs"):
    lamp_id: str


def of_rows(event: Bulb, state: Lamp) -> Reaction[Lamp]:
    return Reaction(state)


async def later(command: Light, state: Lamp) -> Sequence[Event]:
    return []


def unreadable(command: Nowhere, state: Lamp) -> Sequence[Event]:  # type: ignore[name-defined]  # noqa: F821
    return []


def lamp(**changes: Any) -> Aggregate[Lamp]:
    declared = {"name": "lamp", "id_field": "lamp_id", "initial": Lamp(), "decide": decide, "evolve": evolve}
    return Aggregate(**declared | changes)


def process(**changes: Any) -> Process[Lamp]:
    declared = {"name": "lighting", "key": "lamp_id", "initial": Lamp(), "starts": (Lit,), "react": react}
    return Process(**declared | changes)


def event(version: Any = 2, history: Any = ()) -> type:
    return message(Event, type="lamp.dimmed", version=version, history=history)


def message(kind: type, name: str = "Dimmed", **words: Any) -> type:
    return type(name, (kind,), {"__annotations__": {"lamp_id": "str"}}, **words)


WRONG = [
    (lambda: lamp(nam="lamp"), 'aggregate "lamp": it has no "nam" (did you mean "name"?)'),
    (lambda: lamp(color=1), 'aggregate "lamp": it has no "color" (it has name, id_field, initial, decide, evolve, '),
    (lambda: Aggregate(name="lamp"), 'aggregate "lamp": it lacks "id_field", "initial", "decide", "evolve": add id_fi'),
    (lambda: lamp(name=5), '"5" is not an aggregate name: use a-z, 0-9 and _'),
    (lambda: lamp(id_field=""), 'aggregate "lamp": id_field is empty: write id_field="lamp_id"'),
    (lambda: lamp(id_field=5), 'aggregate "lamp": id_field is 5, which is no text: write id_field="lamp_id"'),
    (lambda: lamp(initial=Lamp), 'aggregate "lamp": initial is the class Lamp, and not a state: write initial=Lamp()'),
    (lambda: lamp(initial={}), 'aggregate "lamp": initial is {}, and not a state: write the first state, of a frozen'),
    (lambda: lamp(initial=Loose()), "its state is mutable: write model_config = ConfigDict(frozen=True) in Loose"),
    (lambda: lamp(decide=Light), "decide is the class Light, which is no function: write def decide(command,"),
    (lambda: lamp(decide=None), "decide is None, which is no function: write def decide(command, state): …"),
    (lambda: lamp(decide=later), 'decide is asynchronous: write it with "def"'),
    (lambda: lamp(decide=lambda command: []), "decide must take command and state (too many positional arguments)"),
    (lambda: lamp(decide=unreadable), 'the annotations of "unreadable" cannot be read (name \'Nowhere\' is not'),
    (lambda: lamp(decide=evolve), '"evolve" of "lamp" needs an argument "command" annotated with its Command classes'),
    (lambda: lamp(evolve=lambda state, event: state), 'needs an argument "event" annotated with its Event classes,'),
    (lambda: lamp(state_version="2"), "state_version is '2': versions are the integers from 1"),
    (lambda: process(key_field="x"), 'process "lighting": it has no "key_field" (it has name, key, initial, starts, '),
    (lambda: process(start=(Lit,)), 'process "lighting": it has no "start" (did you mean "starts"?)'),
    (lambda: process(key=""), 'process "lighting": key is empty: write key="order_id"'),
    (lambda: process(key=()), 'process "lighting": key is a tuple with no name: write key="order_id"'),
    (lambda: process(key=("lamp_id",)), 'process "lighting": key is a tuple with one name: write key="lamp_id"'),
    (lambda: process(key=["lamp_id", "b"]), "key is ['lamp_id', 'b'], which is no tuple: write key=('lamp_id', 'b')"),
    (lambda: process(key=("lamp_id", "lamp_id")), 'process "lighting": key has "lamp_id" twice: remove one'),
    (lambda: process(key=("lamp_id", "b")), '"lamp.lit" has no field "b", the key of process "lighting"'),
    (lambda: process(key=("lamp_id", "b"), react=of_rows), "several fields, so it cannot handle rows of \"Bulb\""),
    (lambda: process(starts=Lit), "starts=the class Lit is no tuple of classes: write starts=(Lit,)"),
    (lambda: process(starts=("lamp.lit",)), "starts has 'lamp.lit', which is no class: write starts=(Placed,)"),
    (lambda: process(starts=(Lit, Lit)), "starts has the class Lit twice: remove one"),
    (lambda: process(starts=()), 'process "lighting" has no event that begins an instance: write starts=(Placed,)'),
    (lambda: process(initial=Lamp), 'process "lighting": initial is the class Lamp, and not a state: write'),
    (lambda: process(react=5), 'process "lighting": react is 5, which is no function: write def react(event,'),
    (lambda: process(react=unreadable), 'process "lighting": the annotations of "unreadable" cannot be read'),
    (lambda: process(name=None), '"None" is not a process name: use a-z, 0-9 and _'),
    (lambda: message(Event, typ="lamp.dimmed"), '"Dimmed" has no "typ" (did you mean "type"?)'),
    (lambda: message(Event, type=5), '"Dimmed": 5 is not a message type: write it like "listing.price_changed"'),
    (lambda: message(Event, type="Dimmed"), '"Dimmed": "Dimmed" is not a message type: write it like'),
    (lambda: message(Command, type="lamp.dim", version=2), '"Dimmed" has no "version" (it has type)'),
    (lambda: message(Observation, type="lamp.dim"), '"Dimmed": "lamp.dim" is not an observation type: write it like'),
    (lambda: message(Observation, type=5), '"Dimmed": 5 is not an observation type: write it like "listing_viewed"'),
    (lambda: message(Observation, type="dimmed", version="1"), "observation \"dimmed\": version is '1': versions"),
    (lambda: message(Observation, typ="dimmed"), '"Dimmed" has no "typ" (did you mean "type"?)'),
    (lambda: message(ViewRow, veiw="dimmed"), '"Dimmed" has no "veiw" (did you mean "view"?)'),
    (lambda: message(ViewRow, view=5), '"Dimmed": 5 is not the name of a view: use a-z, 0-9 and _'),
    (lambda: event("2"), "event \"lamp.dimmed\": version is '2': versions are the integers from 1"),
    (lambda: event(True), 'event "lamp.dimmed": version is True: versions are the integers from 1'),
    (lambda: event(2, upcast(1)), 'event "lamp.dimmed": history is one upcast: write it as a list, as in history=[upc'),
    (lambda: event(2, "after"), "event \"lamp.dimmed\": history is 'after', which is no list of upcasts: write"),
    (lambda: event(2, [drop("a")]), "event \"lamp.dimmed\": history has drop('a') without its version: write"),
    (lambda: event(2, [upcast("1")]), "event \"lamp.dimmed\": upcast('1', …) names no version: write history=["),
    (lambda: event(2, [upcast(1, "drop")]), "event \"lamp.dimmed\": upcast(1, …) has 'drop', which is no function: wr"),
    (lambda: event(2, [upcast(1, [drop("a")])]), "upcast(1, …) has [drop('a')], which is no function: write history=["),
    (lambda: event(2, [upcast(1, recorded_as=5)]), "has recorded_as=5, which is no type of a message: write it like"),
    (lambda: drop(5), "the field of drop() is 5, which is no text: write drop("),
    (lambda: rename("", "a"), "the old name of rename() is empty: write rename("),
    (lambda: default(None, 1), "the field of default() is None, which is no text"),
    (lambda: convert("a", 5), 'convert("a", …) is given 5, which is no function'),
    (lambda: split("a", ("b", "b"), ","), 'into of split() has "b" twice: remove one'),
    (lambda: split("a", ("b", "c"), 5), "at of split() is 5, which is no text: write split("),
    (lambda: rename("a"), 'rename() lacks "new": write rename("amount", "cents")'),
    (lambda: default("a", valu=1), 'default() has no "valu" (did you mean "value"?): write default("currency", "USD")'),
    (lambda: split("a", "bc", ","), "into of split() is 'bc', which is no tuple: write split("),
]  # fmt: skip


@pytest.mark.parametrize(("declare", "problem"), WRONG)
def test_a_mistake_is_named_with_what_to_write(declare: Callable[[], object], problem: str) -> None:
    with pytest.raises(WrongDeclaration) as wrong:
        declare()
    assert problem in str(wrong.value)
    assert "\n" not in str(wrong.value)


def test_arguments_of_other_classes_that_a_message_derives_from_are_theirs() -> None:
    class Coloured:
        colour = ""

        def __init_subclass__(cls, *, colour: str = "", **others: Any) -> None:
            super().__init_subclass__(**others)
            cls.colour = colour

    class Red(Event, Coloured, type="lamp.red", colour="red"):
        lamp_id: str

    assert (Red.type, Red.colour) == ("lamp.red", "red")
    with pytest.raises(DeclarationError, match='"Blue" has no "color"'):

        class Blue(Event, Coloured, type="lamp.blue", color="blue"):
            lamp_id: str


class Watt(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    number: int = Field(0, alias="No")


class Computed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    @computed_field
    @property
    def twice(self) -> int:
        return 2


@pytest.mark.parametrize(
    ("field", "config", "says"),
    [
        ((int, Field(0, alias="No")), {}, 'field "count" of ".*" has an alias'),
        ((int, Field(0, validation_alias="No")), {}, 'field "count" of ".*" has an alias'),
        ((int, Field(0, serialization_alias="No")), {"populate_by_name": True}, 'field "count" of ".*" has an alias'),
        ((int, 0), {"alias_generator": str.upper}, 'field ".*" of ".*" has an alias'),
        ((int, Field(0, exclude=True)), {}, 'field "count" of ".*" is excluded'),
        ((list[Watt], []), {}, 'field "number" of "Watt" has an alias'),
        ((dict[str, Watt | None], {}), {}, 'field "number" of "Watt" has an alias'),
        ((Computed, Computed()), {}, 'computed field "twice"'),
    ],
)
def test_what_is_not_written_as_it_is_read_is_no_declaration(field: Any, config: dict[str, Any], says: str) -> None:
    """Values would be lost in silence, and an event would never be decided."""

    def model(base: type[BaseModel], **named: Any) -> Any:
        both: Any = {"frozen": True, **config}
        parent = type("Base", (base,), {"model_config": both, "__module__": __name__})
        return create_model("Made", __base__=parent, __cls_kwargs__=named, count=field, lamp_id=(str, ""))

    state = model(BaseModel)
    with pytest.raises(DeclarationError, match=says):
        Aggregate("lamp", "lamp_id", state(), decide, evolve)
    with pytest.raises(DeclarationError, match=says):
        Process(name="lamps", key="lamp_id", initial=state(), starts=(Lit,), react=react)
    command = model(Command, type="lamp.dim")

    def decides(command: Light, state: Lamp) -> Sequence[Event]:
        return []

    decides.__annotations__["command"] = command
    with pytest.raises(DeclarationError, match=says):
        Aggregate("lamp", "lamp_id", Lamp(), decides, evolve)
    with pytest.raises(DeclarationError, match=says):
        ObservationRegistry([("here", model(Observation, type="seen"))])
