"""The history of an event: what it may say, and how older versions are read."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from headwater.commands.codec import fold, read_event, read_snapshot, write_snapshot
from headwater.commands.declaring.aggregate import Aggregate, Command, Event
from headwater.commands.declaring.steps import (
    Change,
    Conversion,
    after,
    convert,
    default,
    drop,
    parsed,
    recoded,
    rename,
    rounded,
    scaled,
    split,
    widened,
    written,
)
from headwater.commands.errors import DeclarationError, UnreadableEvent, UnreadableSnapshot
from headwater.eventlog.envelope import Envelope
from tests.support.event_histories import events, recorded
from tests.support.seeds import examples


class Weighed(Event, type="parcel.weighed", version=3, history=(
    after(1, rename("grams", "weight"), drop("colour")),
    after(2, default("scale", "old"), convert("weight", parsed(int)), split("who", ("first", "last"), at=" ")),
)):  # fmt: skip
    """Two changes ago this was `grams` as text, and one `who`."""

    parcel_id: str
    weight: int
    scale: str
    first: str
    last: str


class Weigh(Command, type="parcel.weigh"):
    parcel_id: str


class Parcel(BaseModel):
    model_config = ConfigDict(frozen=True)
    weight: int = 0


def decide(command: Weigh, state: Parcel) -> Sequence[Event]:
    return []


def evolve(state: Parcel, event: Weighed) -> Parcel:
    return Parcel(weight=state.weight + event.weight)


parcel = Aggregate(name="parcel", id_field="parcel_id", initial=Parcel(), decide=decide, evolve=evolve)
FIRST = {"parcel_id": "P", "grams": "20", "who": "Ada King Lovelace", "colour": 5}
SECOND = {"parcel_id": "P", "weight": "20", "who": "Ada King Lovelace"}
THIRD = {"parcel_id": "P", "weight": 20, "scale": "old", "first": "Ada", "last": "King Lovelace"}


def envelope(version: int, data: dict[str, Any], sequence: int = 1) -> Envelope:
    time = datetime(2026, 1, 2, tzinfo=UTC)
    return Envelope("parcel/P/1", "parcel.weighed", "parcel/P", time, data, data_version=version, sequence=sequence)


def test_every_version_is_read_as_the_current_one() -> None:
    read = [read_event(parcel, envelope(version, data)) for version, data in ((1, FIRST), (2, SECOND), (3, THIRD))]
    assert read == [Weighed(**THIRD)] * 3  # type: ignore[arg-type]
    mixed = [envelope(1, FIRST), envelope(3, THIRD, 2), envelope(2, SECOND, 3)]
    assert fold(parcel, mixed) == (Parcel(weight=60), 3)
    assert Weighed.history.upcast(1, FIRST, until=2) == SECOND
    assert Weighed.history.fields_of(2) == {"parcel_id": str, "weight": str, "who": str}


@pytest.mark.parametrize(
    ("version", "data", "says"),
    [
        (4, THIRD, '"parcel.weighed" has version 4, but the newest known here is 3: .*deploy'),
        (0, THIRD, '"parcel.weighed" has no "dataversion"'),
        (1, SECOND, 'version 1 has no field "weight"'),
        (1, FIRST | {"grams": 20}, 'another type than version 1 has: "weight"'),
        (1, FIRST | {"grams": "a lot"}, '"weight"'),
        (2, SECOND | {"who": None}, "first"),
        (2, {name: SECOND[name] for name in ("parcel_id", "who")}, "weight"),
        (3, SECOND, "does not match"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(version: int, data: dict[str, Any], says: str) -> None:
    with pytest.raises(UnreadableEvent, match=says):
        read_event(parcel, envelope(version, data))


@pytest.mark.parametrize(
    ("how", "recorded_as", "reads"),
    [
        (scaled(100), 3, 300),
        (scaled(100), 2**62, None),
        (rounded(100), 0.125, 12),
        (rounded(), 2.5, 2),
        (rounded(), -1.5, -2),
        (rounded(1e300), 1e300, None),
        (parsed(int), "-007", -7),
        (parsed(int), "1.0", None),
        (parsed(int), " 1", None),
        (parsed(int), "9223372036854775808", None),
        (parsed(int), "٣", None),
    ],
)
def test_whole_numbers_are_converted_or_refused(how: Conversion, recorded_as: Any, reads: int | None) -> None:
    class Converted(Event, type="parcel.converted", version=2, history=[after(1, convert("amount", how))]):
        amount: int

    if reads is None:
        with pytest.raises(ValueError, match='"amount"'):
            Converted.history.upcast(1, {"amount": recorded_as})
    else:
        assert Converted.history.upcast(1, {"amount": recorded_as}) == {"amount": reads}


@pytest.mark.parametrize(
    ("how", "recorded_as", "reads"),
    [(written(), -5, "-5"), (recoded({"Condo": "flat"}), "Condo", "flat"), (recoded({"Condo": "flat"}), "x", "x")],
)
def test_texts_are_converted(how: Conversion, recorded_as: Any, reads: str) -> None:
    class Converted(Event, type="parcel.converted", version=2, history=[after(1, convert("word", how))]):
        word: str

    assert Converted.history.upcast(1, {"word": recorded_as}) == {"word": reads}


@pytest.mark.parametrize(
    ("how", "recorded_as", "reads"), [(scaled(0.5), 3, 1.5), (widened(), 3, 3.0), (parsed(float), "1.5e3", 1500.0)]
)
def test_floats_are_converted(how: Conversion, recorded_as: Any, reads: float) -> None:
    class Converted(Event, type="parcel.converted", version=2, history=[after(1, convert("size", how))]):
        size: float

    made = Converted.history.upcast(1, {"size": recorded_as})
    assert (made, type(made["size"])) == ({"size": reads}, float)


WRONG: list[tuple[int, list[Change], str]] = [
    (2, [], "the history has no after(1, …)"),
    (3, [after(1)], "the history has no after(2, …)"),
    (2, [after(1), after(1)], "appears twice"),
    (2, [after(1), after(2)], "is beyond version 2"),
    (1, [after(0)], "is beyond version 1"),
    (0, [], "versions are the integers from 1"),
    (2, [after(1, rename("a", "b"))], 'it renames to "b", which the next version does not have'),
    (2, [after(1, rename("name", "size"))], 'it renames from "name", which the next version also has'),
    (2, [after(1, default("a", 1))], 'it adds "a", which the next version does not have'),
    (2, [after(1, default("size", "big"))], "\"size\" holds a int, but its default is 'big'"),
    (2, [after(1, default("size", None))], '"size" must not be null'),
    (2, [after(1, drop("size"))], 'it drops "size", which the next version also has'),
    (2, [after(1, convert("a", written()))], 'it converts "a"'),
    (2, [after(1, convert("size", written()))], "written() gives a str, not a int"),
    (2, [after(1, convert("size", scaled(0.1)))], "scaled(0.1) does not give a int"),
    (2, [after(1, split("all", ("name", "size"), at=","))], '"size" holds a int'),
    (2, [after(1, split("all", ("name", "a"), at=","))], 'it splits into "a"'),
    (2, [after(1, split("all", ("name",), at=","))], "at least two names"),
    (2, [after(1, rename("size", "name"), rename("name", "size"))], '"name"'),
]


@pytest.mark.parametrize(("version", "history", "says"), WRONG)
def test_a_history_that_does_not_lead_to_the_event_is_refused_at_the_start(
    version: int, history: list[Change], says: str
) -> None:
    with pytest.raises(DeclarationError, match=re.escape(says)) as error:

        class Wrong(Event, type="parcel.wrong", version=version, history=history):
            name: str
            size: int

    assert str(error.value).startswith('event "parcel.wrong": ')


def test_a_default_that_only_python_would_know_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r'"size" has a default.*default\("size", …\)'):

        class Wrong(Event, type="parcel.wrong"):
            size: int = 0


def test_a_number_beyond_64_bits_scales_nothing() -> None:
    with pytest.raises(ValueError, match="64 bits"):
        scaled(2**63)


@given(st.data())
@settings(max_examples=examples(60), deadline=None)
def test_upcasting_in_one_go_is_upcasting_version_by_version(data: st.DataObject) -> None:
    event = data.draw(events())
    first = data.draw(recorded(event, 1, oddness=0))
    try:
        whole = event.history.upcast(1, first)
    except ValueError:
        return
    step = first
    for version in range(1, event.version):
        step = event.history.upcast(version, step, until=version + 1)
    assert json.dumps(step, sort_keys=True) == json.dumps(whole, sort_keys=True)


def test_a_snapshot_belongs_to_one_version_of_the_state() -> None:
    snapshot = write_snapshot(parcel, Parcel(weight=5), 7)
    assert read_snapshot(parcel, snapshot) == (Parcel(weight=5), 7)
    raised = Aggregate(
        name="parcel", id_field="parcel_id", initial=Parcel(), decide=decide, evolve=evolve, state_version=2
    )
    with pytest.raises(UnreadableSnapshot, match="state_version"):
        read_snapshot(raised, snapshot)
