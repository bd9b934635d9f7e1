"""The history of an event: what it may say, and how older versions are read."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from headwater import Personal, convert, default, drop, move, rename, split, upcast
from headwater.commands.codec import fold, read_event, read_snapshot, write_snapshot
from headwater.commands.declaring import golden_files
from headwater.commands.declaring.aggregate import Aggregate, Command, Event
from headwater.commands.declaring.golden_files import GoldenFiles
from headwater.commands.declaring.history import Upcast
from headwater.commands.errors import DeclarationError, UnreadableEvent, UnreadableSnapshot
from headwater.eventlog.declaring import WrongArguments
from headwater.eventlog.envelope import Envelope
from headwater.eventlog.personal.sealed_text import withheld
from tests.support.event_histories import events, recorded
from tests.support.seeds import examples


def in_grams(data: dict[str, Any]) -> dict[str, Any]:
    """Weights were texts."""
    data["weight"] = int(data["weight"])
    return data


class Weighed(Event, type="parcel.weighed", version=3, history=[
    upcast(1, rename("grams", "weight"), drop("colour")),
    upcast(2, in_grams, default("scale", "old"), split("who", ("first", "last"), at=" ")),
]):  # fmt: skip
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


def aggregate(**changes: Any) -> Aggregate[Parcel]:
    declared: dict[str, Any] = {"name": "parcel", "id_field": "parcel_id", "initial": Parcel()}
    declared |= {"decide": decide, "evolve": evolve}
    return Aggregate(**declared | changes)


parcel = aggregate()
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
    assert FIRST["grams"] == "20", "upcasters change a copy"


@pytest.mark.parametrize(
    ("version", "data", "says"),
    [
        (4, THIRD, '"parcel.weighed" has version 4, but the newest known here is 3: .*deploy'),
        (0, THIRD, '"parcel.weighed" has no "dataversion"'),
        (1, FIRST | {"more": 1}, "more: Extra inputs"),
        (1, FIRST | {"grams": "a lot"}, r"upcast\(2, in_grams\) failed: ValueError: invalid literal"),
        (2, SECOND | {"who": 5}, r"upcast\(2, split\('who', .*\) failed: AttributeError"),
        (2, SECOND | {"who": None}, "first"),
        (2, {name: SECOND[name] for name in ("parcel_id", "who")}, r"upcast\(2, in_grams\) failed: KeyError: 'weight'"),
        (3, SECOND, "does not match"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(version: int, data: dict[str, Any], says: str) -> None:
    with pytest.raises(UnreadableEvent, match=says):
        read_event(parcel, envelope(version, data))


def changed(*upcasters: Any, data: dict[str, Any]) -> dict[str, Any]:
    """Data of version 1 after these upcasters."""

    class Changed(Event, type="parcel.changed", version=2, history=[upcast(1, *upcasters)]):
        parcel_id: str

    return Changed.history.upcast(1, data)


ROWS = {"pages": [{"rows": [[{"n": 1}], [], [{"n": 2}, {}]]}, {"rows": []}, None]}


@pytest.mark.parametrize(
    ("steps", "before", "after"),
    [
        ([rename("a", "b")], {"a": None}, {"b": None}),
        ([rename("a", "b")], {}, {}),
        ([rename("lines[].qty", "lines[].number")], {"lines": [{"qty": 1}, None]}, {"lines": [{"number": 1}, None]}),
        ([rename("to.a", "to.b")], {"to": None}, {"to": None}),
        ([default("a", [1])], {}, {"a": [1]}),
        ([default("a", 1)], {"a": None}, {"a": None}),
        ([default("to.a", 1)], {}, {}),
        ([default("to.a", 1)], {"to": {}}, {"to": {"a": 1}}),
        ([drop("to.a")], {"to": {"a": 1, "b": 2}}, {"to": {"b": 2}}),
        ([convert("a", int)], {"a": "5"}, {"a": 5}),
        ([convert("a", int)], {"a": None}, {"a": None}),
        ([convert("pages[].rows[][].n", str)], ROWS,
         {"pages": [{"rows": [[{"n": "1"}], [], [{"n": "2"}, {}]]}, {"rows": []}, None]}),
        ([split("a", ("b", "c"), at=", ")], {"a": "x, y, z"}, {"b": "x", "c": "y, z"}),
        ([split("a", ("b", "c"), at=",")], {"a": "x"}, {"b": "x", "c": ""}),
        ([split("a", ("b", "c"), at=",")], {"a": None}, {"b": None, "c": None}),
        ([split("to.a", ("b", "c"), at=",")], {"to": {"a": "x,y"}}, {"to": {"b": "x", "c": "y"}}),
        ([move("city", "to.city"), move("street", "to.street")], {"city": "Ulm", "street": None},
         {"to": {"city": "Ulm", "street": None}}),
        ([move("city", "to.city")], {"to": None, "city": "Ulm"}, {"to": {"city": "Ulm"}}),
        ([move("city", "to.city")], {"to": None}, {"to": None}),
        ([move("to", "to.city")], {"to": "Ulm"}, {"to": {"city": "Ulm"}}),
        ([move("to.city", "to")], {"to": {"city": "Ulm", "more": 1}}, {"to": "Ulm"}),
        ([move("to.note", "note")], {"to": {"city": "Ulm", "note": "ring"}}, {"to": {"city": "Ulm"}, "note": "ring"}),
        ([move("stops[].town", "stops[].at.city")], {"stops": [{"town": "Ulm", "at": {"zip": 1}}, {"town": "Bonn"}]},
         {"stops": [{"at": {"zip": 1, "city": "Ulm"}}, {"at": {"city": "Bonn"}}]}),
        ([lambda data: {"whole": data}], {"a": 1}, {"whole": {"a": 1}}),
    ],
)  # fmt: skip
def test_what_the_words_do(steps: list[Any], before: dict[str, Any], after: dict[str, Any]) -> None:
    assert changed(*steps, data=before) == after


@pytest.mark.parametrize(
    ("step", "data", "says"),
    [
        (rename("lines[].a", "lines[].b"), {"lines": {}}, '"lines" is not a list'),
        (rename("lines[].a", "lines[].b"), {"lines": [5]}, "a nested model is not an object"),
        (drop("to.city.a"), {"to": "Ulm"}, 'what should have "city" is not an object'),
        (convert("a", int), {"a": "two"}, "upcast(1, convert('a', int)) failed: ValueError: invalid literal"),
        (lambda data: None, {}, "upcast(1, <lambda>) returned None: return the data"),
        (
            lambda data: data | {"a": {1}},
            {},
            "upcast(1, <lambda>) made no JSON: Object of type set is not JSON",
        ),
        (lambda data: 1 / 0, {}, "upcast(1, <lambda>) failed: ZeroDivisionError"),
    ],
)
def test_an_upcaster_that_fails_is_named(step: Any, data: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        changed(step, data=data)


WRONG: list[tuple[int, list[Upcast], str]] = [
    (2, [], "the history has no upcast(1, …)"),
    (3, [upcast(1)], "the history has no upcast(2, …)"),
    (2, [upcast(1), upcast(1)], "appears twice"),
    (2, [upcast(1), upcast(2)], "is beyond version 2"),
    (1, [upcast(0)], "is beyond version 1"),
    (0, [], "versions are the integers from 1"),
]


@pytest.mark.parametrize(("version", "history", "says"), WRONG)
def test_a_history_that_does_not_lead_to_the_version_is_refused_at_the_start(
    version: int, history: list[Upcast], says: str
) -> None:
    with pytest.raises(DeclarationError, match=re.escape(says)) as error:

        class Wrong(Event, type="parcel.wrong", version=version, history=history):
            name: str
            size: int

    assert str(error.value).startswith('event "parcel.wrong": ')


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: rename("a", "to.b"), '"to.b" is not beside "a": write move("a", "to.b")'),
        (lambda: move("lines[].a", "a"), "leads into or out of the items of a list"),
        (lambda: move("a", "lines[].a"), "leads into or out of the items of a list"),
        (lambda: drop("lines[]"), '"lines[]" is no place of a field: write it like'),
        (lambda: drop("a..b"), '"a..b" is no place of a field'),
        (lambda: split("a", ("b",), at=","), "split() has one name in into"),
        (lambda: convert("a", 5), 'convert("a", …) is given 5, which is no function'),  # type: ignore[arg-type]
    ],
)
def test_a_word_that_cannot_be_is_refused(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(WrongArguments, match=re.escape(says)):
        make()


def test_a_default_that_only_python_would_know_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r'"size" has a default.*default\("size", …\)'):

        class Wrong(Event, type="parcel.wrong"):
            size: int = 0


def test_which_fields_a_history_changes() -> None:
    assert Weighed.history.changes(1, ["parcel_id"]) == ["a function"], "it may change any field"
    assert Weighed.history.changes(1, []) == []

    class Moved(Event, type="parcel.moved", version=4, history=[
        upcast(1, rename("a", "b"), drop("x")), upcast(2, rename("b", "c")), upcast(3, default("to.d", 1)),
    ]):  # fmt: skip
        c: int
        e: int
        to: dict[str, int]

    assert Moved.history.changes(1, ["c"]) == ["rename('a', 'b')", "rename('b', 'c')"]
    assert Moved.history.changes(2, ["c"]) == ["rename('b', 'c')"]
    assert Moved.history.changes(1, ["to"]) == ["default('to.d', 1)"]
    assert Moved.history.changes(1, ["e"]) == []
    assert [sorted(Moved.history.changed(names)) for names in (["c"], ["to"], ["e"])] == [[1, 2], [1, 2, 3], []]


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


def test_other_processes_import_the_event_whose_history_they_need() -> None:
    assert pickle.loads(pickle.dumps(Weighed.history)).upcast(1, FIRST) == THIRD

    class Local(Event, type="parcel.local", version=2, history=[upcast(1, lambda data: data)]):
        a: int

    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(Local.history)


class Person(BaseModel):
    name: Annotated[str | None, Personal()]


class Met(Event, type="parcel.met", version=3, history=[
    upcast(1, rename("mail", "email")),
    upcast(2, move("email", "who.name"), rename("people[].called", "people[].name")),
]):  # fmt: skip
    """Its ciphertexts were elsewhere before."""

    parcel_id: str
    who: Person
    people: list[Person]


SEALED = withheld("parcel.met", "mail")


def test_sealed_texts_are_moved_and_renamed_as_they_are() -> None:
    made = Met.history.upcast(1, {"mail": SEALED, "people": [{"called": SEALED}]})
    assert made == {"who": {"name": SEALED}, "people": [{"name": SEALED}]}


@pytest.mark.parametrize(
    "compute",
    [
        convert("name", str.title), convert("name", int), convert("name", str), convert("name", len),
        split("name", ("first", "last"), at=" "), convert("name", lambda name: f"{name}!"),
        convert("name", lambda name: name == "Ada"), convert("name", lambda name: name or "nobody"),
        convert("name", lambda name: name + "!"), convert("name", lambda name: {name: 1}),
    ],
)  # fmt: skip
def test_an_upcaster_that_computes_with_a_sealed_text_fails_and_says_so(compute: Any) -> None:
    with pytest.raises(ValueError, match="personal values are sealed: an upcaster can move and drop them"):
        changed(compute, data={"name": SEALED})
    assert changed(drop("name"), data={"name": SEALED}) == {}


def test_the_reason_has_no_value_of_an_event_with_personal_fields() -> None:
    class Aged(Event, type="parcel.aged", version=2, history=[upcast(1, convert("age", int))]):
        parcel_id: str
        age: Annotated[int | None, Personal()]

    with pytest.raises(ValueError, match=r"failed: ValueError$"):
        Aged.history.upcast(1, {"age": "forty"})


def test_a_golden_file_that_the_history_does_not_lead_from_is_refused_at_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(golden_files, "GoldenFiles", lambda: GoldenFiles(tmp_path))
    GoldenFiles(tmp_path).write(Weighed, 1, FIRST)
    GoldenFiles(tmp_path).write(Weighed, 3, THIRD)
    GoldenFiles(tmp_path).write(Weighed, 4, {"of": "a later version"})
    aggregate()
    GoldenFiles(tmp_path).write(Weighed, 2, {"parcel_id": "P", "weight": "20"})
    with pytest.raises(
        DeclarationError, match=r'"parcel.weighed": .*2.json is no valid .*first.*: correct its history'
    ):
        aggregate()
    GoldenFiles(tmp_path).write(Weighed, 2, {"parcel_id": "P", "who": "Ada"})
    with pytest.raises(DeclarationError, match=r"2.json is no valid .*in_grams\) failed: KeyError: 'weight'"):
        aggregate()
    GoldenFiles(tmp_path).write(Weighed, 2, SECOND)
    GoldenFiles(tmp_path).write(Weighed, 3, SECOND)
    with pytest.raises(DeclarationError, match=r"3.json is no valid .*: its fields have changed, so raise its version"):
        aggregate()


def test_a_snapshot_belongs_to_one_version_of_the_state() -> None:
    snapshot = write_snapshot(parcel, Parcel(weight=5), 7)
    assert read_snapshot(parcel, snapshot) == (Parcel(weight=5), 7)
    with pytest.raises(UnreadableSnapshot, match="state_version"):
        read_snapshot(aggregate(state_version=2), snapshot)
