"""Histories that reach inside nested models and lists: what older events are read as, and what is refused."""

from __future__ import annotations

import json
import random
import re
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.lineages import recorded_path
from headwater.commands.declaring.personal import Personal
from headwater.commands.declaring.steps import (
    Change,
    after,
    convert,
    default,
    drop,
    move,
    parsed,
    recoded,
    rename,
    scaled,
    split,
)
from headwater.commands.errors import DeclarationError
from headwater.commands.testing.drawing import recordings
from tests.support.nested_histories import nested_event, nested_source
from tests.support.seeds import examples, seed_of


class Place(BaseModel):
    latitude: float
    height: int | None = None


class Address(BaseModel):
    city: str
    street: str | None
    place: Place | None = None


class Line(BaseModel):
    sku: str
    quantity: int


class Delivered(Event, type="parcel.delivered", version=3, history=(
    after(1, move("city", "to.city"), move("street", "to.street"), move("latitude", "to.place.latitude")),
    after(
        2,
        rename("lines[].number", "lines[].quantity"), convert("lines[].quantity", parsed(int)),
        drop("lines[].colour"), move("to.note", "note"),
    ),
)):  # fmt: skip
    """The address was flat, and the note in it."""

    parcel_id: str
    to: Address | None
    lines: list[Line | None]
    note: str | None = None


FLAT = {"parcel_id": "P", "city": "Ulm", "street": None, "latitude": 48.4}
LINES = [{"sku": "a", "number": "2", "colour": 1}, None, {"sku": "b", "number": None}]
READ = [{"sku": "a", "quantity": 2}, None, {"sku": "b", "quantity": None}]
NESTED = {"city": "Ulm", "street": None, "place": {"latitude": 48.4}}


@pytest.mark.parametrize(
    ("version", "data", "reads"),
    [
        (1, FLAT | {"lines": LINES}, {"parcel_id": "P", "to": NESTED, "lines": READ}),
        (1, FLAT | {"lines": []}, {"parcel_id": "P", "to": NESTED, "lines": []}),
        (1, FLAT | {"lines": None}, {"parcel_id": "P", "to": NESTED, "lines": None}),
        (1, {"city": "Ulm"}, {"to": {"city": "Ulm"}}),
        (1, {"city": None, "street": "Am Fluss"}, {"to": {"city": None, "street": "Am Fluss"}}),
        (1, {"city": None, "street": None, "latitude": None}, {"to": None, "note": None}),
        (1, {}, {}),
        (2, {"to": NESTED | {"note": "ring"}}, {"to": NESTED, "note": "ring"}),
        (2, {"to": NESTED}, {"to": NESTED}),
        (2, {"to": None}, {"to": None, "note": None}),
        (2, {}, {}),
    ],
)
def test_nested_fields_are_read_as_the_current_ones(version: int, data: dict[str, Any], reads: dict[str, Any]) -> None:
    assert Delivered.history.upcast(version, data) == reads


def test_a_field_may_be_put_into_a_model_that_has_its_name_and_out_again() -> None:
    class Town(BaseModel):
        city: str

    class In(Event, type="parcel.put_in", version=2, history=[after(1, move("to", "to.city"))]):
        to: Town

    class Out(Event, type="parcel.put_out", version=2, history=[after(1, move("city.city", "city"))]):
        city: str

    assert In.history.upcast(1, {"to": "Ulm"}) == {"to": {"city": "Ulm"}}
    assert Out.history.upcast(1, {"city": {"city": "Ulm", "more": 1}}) == {"city": "Ulm"}


def test_items_change_at_every_depth() -> None:
    class Rows(BaseModel):
        rows: list[list[Line]]

    class Counted(Event, type="parcel.counted", version=2, history=[
        after(1, default("pages[].rows[][].sku", "?"), convert("pages[].rows[][].quantity", scaled(10))),
    ]):  # fmt: skip
        pages: list[Rows]

    recorded = {"pages": [{"rows": [[{"quantity": 1}], [], [{"quantity": 2}, {}]]}, {"rows": []}]}
    assert Counted.history.upcast(1, recorded) == {
        "pages": [
            {"rows": [[{"sku": "?", "quantity": 10}], [], [{"sku": "?", "quantity": 20}, {"sku": "?"}]]},
            {"rows": []},
        ]
    }


def test_a_field_moves_within_each_item() -> None:
    class Stop(BaseModel):
        at: Address

    class Driven(Event, type="parcel.driven", version=2, history=[after(1, move("stops[].town", "stops[].at.city"))]):
        stops: list[Stop]

    recorded = {"stops": [{"town": "Ulm", "at": {"street": None}}, {"town": "Bonn"}]}
    assert Driven.history.upcast(1, recorded) == {
        "stops": [{"at": {"street": None, "city": "Ulm"}}, {"at": {"city": "Bonn"}}]
    }


@pytest.mark.parametrize(
    ("version", "data", "place"),
    [
        (1, {"lines": [{}, {"number": "two"}]}, "lines[].quantity"),
        (1, {"lines": [5]}, "lines[]"),
        (1, {"lines": {}}, "lines"),
        (1, {"to": "Ulm", "city": "Ulm"}, "to"),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_place(version: int, data: dict[str, Any], place: str) -> None:
    says = f'recorded with another type than version {version} has: .*"{re.escape(place)}"'
    with pytest.raises(ValueError, match=says):
        Delivered.history.upcast(version, data)


WRONG: list[tuple[list[Change], str]] = [
    ([after(1, rename("to.zip", "to.postcode"))], 'it renames to "to.postcode", which the next version does not have'),
    ([after(1, rename("to.city", "to.street"))], 'it renames from "to.city", which the next version also has'),
    ([after(1, rename("city", "to.city"))], '"city" is not beside "to.city": write move("city", "to.city")'),
    ([after(1, rename("to.town", "town"))], 'write move("to.town", "town")'),
    ([after(1, move("to.town", "to.city"))], "leaves the field in its place: write rename()"),
    ([after(1, move("city", "from.city"))], 'it moves into "from", which the next version does not have; it has "li'),
    ([after(1, move("city", "to.town"))], 'it moves to "to.town", which the next version does not have; it has "to.ci'),
    ([after(1, move("to.city", "note"))], 'it moves from "to.city", which the next version also has'),
    ([after(1, move("sku", "lines[].sku"))], "leads into or out of the items of a list"),
    ([after(1, drop("form.city"))], 'it is about "form", which the next version does not have'),
    ([after(1, drop("to.where.city"))], 'it is about "to.where", which the next version does not have'),
    ([after(1, drop("lines.colour"))], '"lines" is a list: write "lines[].name"'),
    ([after(1, drop("to[].colour"))], '"to" is no list: write "to.name"'),
    ([after(1, drop("note.colour"))], '"note" holds a str, which has no fields that are known here: declare it'),
    ([after(1, drop("lines[0].colour"))], '"lines[0].colour" is no place of a field: write it like'),
    ([after(1, drop("lines[]"))], '"lines[]" names no field of the items: write it like "lines[].price"'),
    ([after(1, drop("to..city"))], '"to..city" is no place of a field'),
    ([after(1, convert("lines[].quantity", recoded({})))], '"lines[].quantity": recoded() gives a str, not a int'),
    ([after(1, default("lines[].quantity", "x"))], "\"lines[].quantity\" holds a int, but its default is 'x'"),
    ([after(1, default("to.city", None))], '"to.city" must not be null, but its default is None'),
    ([after(1, split("to.name", ("to.city", "note"), at=" "))], '"note" is not beside "to.name"'),
    ([after(1, split("to.name", ("to.city", "to.place"), at=" "))], '"to.place" holds a other value'),
]


@pytest.mark.parametrize(("history", "says"), WRONG)
def test_a_history_that_does_not_lead_to_the_models_is_refused(history: list[Change], says: str) -> None:
    with pytest.raises(DeclarationError, match=re.escape(says)) as error:

        class Wrong(Event, type="parcel.wrong", version=2, history=history):
            to: Address
            lines: list[Line]
            note: str

    assert str(error.value).startswith('event "parcel.wrong": after(1, …): ')


def test_a_model_that_was_dropped_later_may_have_had_any_fields() -> None:
    class Left(Event, type="parcel.left", version=3, history=[
        after(1, rename("to.zip", "to.postcode"), move("city", "to.town.name"), drop("to.rows[].old")),
        after(2, drop("to")),
    ]):  # fmt: skip
        parcel_id: str

    assert Left.history.upcast(1, {"parcel_id": "P", "city": "Ulm", "to": {"zip": 1}}) == {"parcel_id": "P"}
    made = Left.history.upcast(1, {"city": "Ulm", "to": {"zip": 1, "rows": [{"old": 1}]}}, until=2)
    assert made == {"to": {"postcode": 1, "rows": [{}], "town": {"name": "Ulm"}}}


def test_a_name_with_a_dot_is_in_backquotes() -> None:
    class Dotted(Event, type="parcel.dotted", version=2, history=[after(1, rename("`a.b`", "ab"), drop("`to.x`"))]):
        ab: int

    assert Dotted.history.upcast(1, {"a.b": 5, "to.x": 6}) == {"ab": 5}


class Person(BaseModel):
    name: Annotated[str | None, Personal()]


class Met(Event, type="parcel.met", version=3, history=(
    after(1, rename("mail", "email")),
    after(2, move("email", "who.name"), rename("people[].called", "people[].name")),
)):  # fmt: skip
    """Its sealed texts were elsewhere before."""

    parcel_id: str
    who: Person
    people: list[Person]


def test_sealed_texts_are_moved_and_renamed_as_they_are() -> None:
    lineages = Met.history.lineages(1)
    assert recorded_path(lineages["who"], ("name",)) == ("mail",)
    assert recorded_path(lineages["people"], ("name",)) == ("people", "called")
    assert recorded_path(Delivered.history.lineages(1)["to"], ("place", "latitude")) == ("latitude",)
    assert recorded_path(Delivered.history.lineages(2)["note"]) == ("to", "note")
    made = Met.history.upcast(1, {"mail": "sealed:1:…", "people": [{"called": "sealed:1:…"}]})
    assert made == {"who": {"name": "sealed:1:…"}, "people": [{"name": "sealed:1:…"}]}


@pytest.mark.parametrize(
    ("step", "place"),
    [
        (convert("who.name", recoded({"a": "b"})), "who.name"),
        (convert("people[].name", recoded({"a": "b"})), "people[].name"),
        (split("who.both", ("who.name", "who.nick"), at=" "), "who.name"),
        (drop("sealed.city"), "sealed"),
    ],
)
def test_no_step_computes_from_a_sealed_text_or_looks_into_it(step: Any, place: str) -> None:
    class Known(BaseModel):
        name: Annotated[str | None, Personal()]
        nick: str

    with pytest.raises(DeclarationError, match=re.escape(f'"{place}" is personal, so events have a sealed text')):

        class Computed(Event, type="parcel.computed", version=2, history=[after(1, step)]):
            who: Known
            people: list[Person]
            sealed: Annotated[Address | None, Personal()]


def test_upcasting_in_one_go_is_upcasting_version_by_version() -> None:
    for number in range(examples(20)):
        chance = random.Random(seed_of(number))
        event = nested_event(chance)
        recorded = [nested_source(at, event, chance).envelope for at in range(60)]
        for envelope in recorded:
            if envelope.data_version == event.version:
                continue
            version, data = envelope.data_version, {**envelope.data}
            data.pop("more", None)
            try:
                step = whole = event.history.upcast(version, data)
                step = data
                for each in range(version, event.version):
                    step = event.history.upcast(each, step, until=each + 1)
            except ValueError:
                continue
            assert json.dumps(step, sort_keys=True) == json.dumps(whole, sort_keys=True), (number, event.history, data)


@given(st.data())
@settings(max_examples=examples(40), deadline=None)
def test_random_recordings_of_older_versions_are_valid_events(data: st.DataObject) -> None:
    version = data.draw(st.integers(1, 2))
    recorded = data.draw(recordings(Delivered, version))
    made = Delivered.history.upcast(version, recorded)
    assert Delivered.model_validate_json(json.dumps(made)).parcel_id == recorded["parcel_id"]
