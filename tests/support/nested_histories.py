"""Random histories that reach inside nested models and lists, and what each version may have recorded."""

import random
from collections.abc import Callable
from typing import Any, get_args, get_origin
from weakref import WeakKeyDictionary

from pydantic import BaseModel

from headwater import convert, default, drop, move, rename, upcast
from headwater.commands.declaring.aggregate import Event
from headwater.projections.stores.declared import Postgres
from headwater.projections.table.expressions import Source
from headwater.projections.table.folds import count, last
from headwater.projections.table.items import item
from headwater.projections.table.json_text import make_canonical
from headwater.projections.table.view import TableView
from tests.support.spark_rows import Patches
from tests.support.versioned import versioned


class Place(BaseModel):
    latitude: float
    height: int | None
    name: str | None


class Address(BaseModel):
    city: str
    postcode: str | None
    number: int
    place: Place | None


class Line(BaseModel):
    sku: str
    quantity: int
    price: float | None
    note: str | None
    made: Address | None
    places: list[Place]


class Nested(BaseModel):
    probe: str
    text: str | None
    number: int | None
    real: float | None
    address: Address | None
    other: Address | None
    lines: list[Line | None] | None
    rows: list[list[Place]] | None


# orjson reads integers of more bits than 64 as floats
ODD = [None, True, 0, 2**63, 1.0, 1e22, -0.0, 0.1, "", "1", 'x"\\\u2028', [], ["1", 1, None], {}, {"a": "1"}]
TEXTS = [
    "",
    " ",
    "a b c",
    "a.b",
    "é\u2028😀",
    "null",
    "12",
    "-0",
    "1e3",
    "1e400",
    "+5",
    "it's",
    'say "no"',
    "\\",
    "{",
    "[1]",
]
WHOLES = [0, 1, -1, 7, 1000, 2**62, 2**63 - 1, -(2**63)]
REALS = [0.5, 1.5, -2.5, 1e308, 5e-324, 0.005, 12345678.9, 1.0, 1e22, 3, -0.0]
OF_KIND: dict[Any, list[Any]] = {str: TEXTS, int: WHOLES, float: REALS}

Before = Callable[[dict[str, Any], random.Random], None]


def _lines(data: dict[str, Any]) -> list[Any]:
    return [each for each in data["lines"] if isinstance(each, dict)] if isinstance(data.get("lines"), list) else []


def _quantities_were_texts(data: dict[str, Any], chance: random.Random) -> None:
    for line in _lines(data):
        line["qty"] = chance.choice(TEXTS) if chance.randrange(5) == 0 else str(line.pop("quantity", 1))


def _city_was_outside(data: dict[str, Any], _: random.Random) -> None:
    if isinstance(data.get("address"), dict):
        data["city"] = data["address"].pop("city", None)


def _text_was_inside(data: dict[str, Any], _: random.Random) -> None:
    if isinstance(data.get("other"), dict | None):
        data["other"] = {**(data.get("other") or {}), "text": data.pop("text", None)}


def _notes_were_missing(data: dict[str, Any], chance: random.Random) -> None:
    for line in _lines(data):
        line.pop("note", None)
        line["colour"] = chance.choice(ODD)


def _heights_were_feet(data: dict[str, Any], _: random.Random) -> None:
    for row in data["rows"] if isinstance(data.get("rows"), list) else []:
        for place in row if isinstance(row, list) else []:
            if isinstance(place, dict) and "height" in place:
                place["high"] = place.pop("height")


def _to_real(data: dict[str, Any]) -> dict[str, Any]:
    if isinstance(data.get("real"), int):
        data["real"] = 2.0 * data["real"]
    return data


STEPS: list[tuple[list[Any], Before]] = [
    ([rename("lines[].qty", "lines[].quantity"), convert("lines[].quantity", int)], _quantities_were_texts),
    ([move("city", "address.city")], _city_was_outside),
    ([move("other.text", "text")], _text_was_inside),
    ([default("lines[].note", "none"), drop("lines[].colour")], _notes_were_missing),
    ([rename("rows[][].high", "rows[][].height")], _heights_were_feet),
    ([_to_real], lambda data, chance: None),
]
"""What changed from one version to the next, and what makes data of the version before."""
PAST: WeakKeyDictionary[type[Event], list[Before]] = WeakKeyDictionary()


def nested_event(chance: random.Random) -> type[Event]:
    """An event class of several versions with the fields of `Nested`."""
    some = chance.sample(STEPS, chance.randint(1, 3))
    changes = [upcast(number, *steps) for number, (steps, _) in enumerate(some, 1)]
    namespace = {"__annotations__": dict(Nested.__annotations__), "__module__": __name__}
    made = type("Probed", (Event,), namespace, type="probe.probed", version=len(some) + 1, history=changes)
    assert issubclass(made, Event)
    PAST[made] = [before for _, before in some]
    return made


def nested_source(number: int, event: type[Event], chance: random.Random) -> Source:
    """A record of any version; in some, one in a few values is absent, null, or of another type."""
    version, oddness = chance.randint(1, event.version), chance.choice([0, 6, 20])
    data = _recorded(chance, Nested, oddness)
    for before in reversed(PAST[event][version - 1 :]):
        before(data, chance)
    return versioned(number, event, version, data | {"probe": chance.choice(TEXTS)})


def _recorded(chance: random.Random, model: type[BaseModel], oddness: int) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for name, info in chance.sample(list(model.model_fields.items()), len(model.model_fields)):
        fate = chance.randrange(2 * oddness) if oddness else 2
        if fate > 0:
            data[name] = chance.choice(ODD) if fate == 1 else _value(chance, info.annotation, oddness)
    return data


def _value(chance: random.Random, annotation: Any, oddness: int) -> Any:
    members = [argument for argument in get_args(annotation) if argument is not type(None)]
    if get_origin(annotation) is list:
        return [_value(chance, members[0], oddness) for _ in range(chance.randrange(3))]
    if members:
        return None if chance.randrange(10) == 0 else _value(chance, members[0], oddness)
    if issubclass(annotation, BaseModel):
        return _recorded(chance, annotation, oddness)
    return chance.choice(OF_KIND[annotation])


def nested_views(event: type[Event]) -> list[TableView]:
    """A view of all fields, and one of the items of a list."""
    fields = {name: last({event: name}) for name in Nested.model_fields if name != "probe"}
    items = {name: last({event: item("lines", name)}) for name in ("quantity", "price", "note")}
    return [
        TableView("probed", "probe", {**fields, "events": count(event)}, (Postgres(),)),
        TableView("lines", item("lines", "sku"), items, (Postgres(),), each={event: "lines"}, key_name="sku"),
    ]


def in_rows(view: TableView, found: Patches) -> Patches:
    """The changes of a view, with JSON texts as in rows."""
    own = {place: dict(change) for place, change in found.items() if place[0].startswith(f"{view.tag}/")}
    for change in own.values():
        make_canonical(change, view.layout.json_texts)
    return own
