"""Changes of events without a new version are found by the fields with which a version was deployed."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from pydantic import BaseModel

from headwater import drop, upcast
from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.event_versions import (
    FirstFields,
    changes,
    fields_of,
    nested_fields_of,
)

FIRST = {"box_id": "str", "cents": "int", "note": "str | null"}
HAD = "box_id: str, cents: int, note: str | null"


def event(version: int = 1, history: Any = (), **fields: Any) -> type[Event]:
    annotations = {"box_id": str, "cents": int, "note": str | None} | fields
    kept = {name: kind for name, kind in annotations.items() if kind is not None}
    return type("Packed", (Event,), {"__annotations__": kept}, type="box.packed", version=version, history=history)


def problem(declared: type[Event]) -> str:
    found = changes([declared], {("box.packed", 1): FirstFields(FIRST, {})})
    return " ".join(found.get("box.packed", [])).removeprefix('event "box.packed": ')


def test_what_is_recorded_of_an_event() -> None:
    assert fields_of(event(at=datetime, lines=list[int])) == FIRST | {"at": "datetime", "lines": "object"}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ""),
        ({"cents": int | None}, ""),
        ({"city": str}, '"city" was added after version 1 was deployed, so earlier events cannot be read: declare '
         'version=2, and upcast(1, default("city", …)) in its history'),
        ({"note": None}, '"note" was removed after version 1 was deployed, so earlier events cannot be read: declare '
         'version=2, and upcast(1, drop("note")) in its history'),
        ({"cents": float}, '"cents" was int and is float after version 1 was deployed, so earlier events cannot be '
         'read: declare version=2, and upcast(1, convert("cents", …)) in its history'),
        ({"note": str}, '"note" was str | null and is str after version 1 was deployed, so earlier events cannot be '
         'read: declare version=2, and upcast(1, convert("note", …)) in its history'),
        ({"note": None, "text": int, "city": int}, '"text", "city" were added, "note" was removed after version 1 was '
         'deployed, so earlier events cannot be read: declare version=2, and upcast(1, default("text", …), '
         'default("city", …), drop("note")) in its history'),
        ({"note": None, "text": str | None, "city": str}, '"text", "city" were added, "note" was removed after version '
         '1 was deployed, so earlier events cannot be read: declare version=2, and upcast(1, rename("note", "text"), '
         'default("city", …)) in its history'),
    ],
)  # fmt: skip
def test_a_change_without_a_version_says_what_to_write(fields: dict[str, Any], expected: str) -> None:
    assert problem(event(**fields)) == expected


def test_older_versions_are_the_history_s() -> None:
    assert problem(event(2, [upcast(1, drop("gone"))])) == ""


def test_an_event_that_was_not_deployed_may_change() -> None:
    assert changes([event(city=str)], {}) == {}


class Point(BaseModel):
    lat: float
    lon: float | None


class Line(BaseModel):
    sku: str
    quantity: int = 1
    parts: tuple[Line, ...] = ()
    at: Point | None = None


class Exact(Line, extra="forbid"):
    price: int


NESTED = {
    "place.lat": "float", "place.lon": "float | null", "lines[].sku": "str", "lines[].quantity": "int | null",
    "lines[].parts": "object | null", "lines[].at": "object | null", "lines[].at.lat": "float",
    "lines[].at.lon": "float | null",
}  # fmt: skip


def test_what_is_recorded_of_what_is_inside_an_event() -> None:
    declared = event(place=Point, lines=list[Line], tags=list[str])
    assert nested_fields_of(declared) == NESTED
    assert nested_fields_of(event()) == {}


@pytest.mark.parametrize(
    ("had", "expected"),
    [
        (NESTED, ""),
        ({**NESTED, "lines[].sku": "int"}, '"lines[].sku" was int and is str after version 1 was deployed, so earlier '
         'events cannot be read: declare version=2, and upcast(1, convert("lines[].sku", …)) in its history'),
        ({name: kind for name, kind in NESTED.items() if name != "lines[].sku"}, '"lines[].sku" was added after '
         'version 1 was deployed, so earlier events cannot be read: declare version=2, and upcast(1, '
         'default("lines[].sku", …)) in its history'),
        ({name: kind for name, kind in NESTED.items() if name != "lines[].quantity"}, ""),
        ({name: kind for name, kind in NESTED.items() if ".at" not in name}, ""),
        ({**NESTED, "lines[].lon": "float"}, ""),
        ({**NESTED, "place.lon": "float"}, ""),
        ({**NESTED, "place.lat": "float | null"}, '"place.lat" was float | null and is float after version 1 was '
         'deployed, so earlier events cannot be read: declare version=2, and upcast(1, convert("place.lat", …)) in its '
         'history'),
    ],
    ids=["as before", "another kind", "added", "added with a default", "a model that may lack", "removed",
         "null is allowed now", "null is not allowed any more"],
)  # fmt: skip
def test_a_change_inside_without_a_version_says_what_to_write(had: dict[str, str], expected: str) -> None:
    declared = event(place=Point, lines=list[Line])
    found = changes([declared], {("box.packed", 1): FirstFields(fields_of(declared), had)})
    assert " ".join(found.get("box.packed", [])).removeprefix('event "box.packed": ') == expected


def test_a_field_that_was_removed_from_a_model_that_forbids_others_is_named() -> None:
    declared = event(lines=list[Exact])
    had = {**nested_fields_of(declared), "lines[].gone": "int"}
    (said,) = changes([declared], {("box.packed", 1): FirstFields(fields_of(declared), had)})["box.packed"]
    assert 'upcast(1, drop("lines[].gone")) in its history' in said
