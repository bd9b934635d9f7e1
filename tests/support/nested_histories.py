"""Random histories that reach inside nested models and lists, and what each version may have recorded."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.field_paths import ITEMS, Path, place_of
from headwater.commands.declaring.shapes import Shape, Shapes, shapes_of
from headwater.commands.declaring.steps import (
    Change,
    Step,
    after,
    convert,
    default,
    drop,
    move,
    parsed,
    recoded,
    rename,
    rounded,
    scaled,
    split,
    widened,
    written,
)
from headwater.commands.declaring.undoing import undo
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
CONVERSIONS: dict[Any, list[Any]] = {
    int: [scaled(100), scaled(2**40), rounded(100), parsed(int)],
    float: [scaled(0.5), scaled(1e200), parsed(float), widened()],
    str: [written(), recoded({"a b c": 'it\'s \\ "x"', "": "nothing"})],
}


def nested_event(chance: random.Random) -> type[Event]:
    """An event class of several versions with the fields of `Nested`."""
    shapes = dict(shapes_of(Nested))
    version, names = chance.randint(2, 4), itertools.count()
    changes: list[Change] = []
    for number in range(version - 1, 0, -1):
        steps: list[Step] = []
        for _ in range(chance.randint(1, 6)):
            before = dict(shapes)
            try:
                step = _step(chance, shapes, f"old{next(names)}")
                undo(step, before)
            except ValueError:
                continue
            steps.insert(0, step)
            shapes = before
        changes.append(after(number, *steps))
    namespace = {"__annotations__": dict(Nested.__annotations__), "__module__": __name__}
    made = type("Probed", (Event,), namespace, type="probe.probed", version=version, history=changes)
    assert issubclass(made, Event)
    return made


def _step(chance: random.Random, shapes: Shapes, old: str) -> Step:
    """A step to these shapes, which may be impossible."""
    fields = dict(_fields(shapes, ()))
    path = chance.choice([each for each in fields if each != ("probe",)])
    kind, place, beside = fields[path].kind, place_of(path), place_of((*path[:-1], old))
    texts = [place_of(each) for each, shape in fields.items() if shape.kind is str and each[:-1] == path[:-1] != ()]
    match chance.randrange(8):
        case 0:
            return rename(beside, place)
        case 1:
            return drop(beside)
        case 2:
            return default(place, chance.choice([None, *OF_KIND.get(kind, [[], {}])]))
        case 3 | 4 | 5:
            return move(chance.choice(_elsewhere(shapes, old)), place)
        case 6 if len(texts) > 1:
            return split(beside, tuple(texts[:2]), chance.choice([" ", ".", "\\"]))
        case _:
            return convert(place, chance.choice(CONVERSIONS.get(kind, [recoded({})])))


def _fields(shapes: Shapes, around: Path) -> Iterator[tuple[Path, Shape]]:
    """All fields whose kind is known, with their places."""
    for name, shape in shapes.items():
        path: Path = (*around, name)
        if shape.kind is not None:
            yield path, shape
        inside = shape
        while inside.items is not None:
            path, inside = (*path, ITEMS), inside.items()
        if inside.fields is not None:
            yield from _fields(inside.fields(), path)


def _elsewhere(shapes: Shapes, old: str) -> list[str]:
    """Places in all models, also in new ones."""
    around = {each[:-1] for each, _ in _fields(shapes, ()) if len(each) < 6} | {()}
    return [place_of((*each, *more)) for each in sorted(around) for more in ((old,), (f"{old}_model", old))]


def nested_source(number: int, event: type[Event], chance: random.Random) -> Source:
    """A record of any version; in some, one in a few values is absent, null, or of another type."""
    version, oddness = chance.randint(1, event.version), chance.choice([0, 6, 20])
    data = _recorded(chance, event.history.shapes_of(version), oddness)
    return versioned(number, event, version, data | {"probe": chance.choice(TEXTS)})


def _recorded(chance: random.Random, shapes: Shapes, oddness: int) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for name, shape in chance.sample(list(shapes.items()), len(shapes)):
        fate = chance.randrange(2 * oddness) if oddness else 2
        if fate > 0:
            data[name] = chance.choice(ODD) if fate == 1 or shape.kind is None else _value(chance, shape, oddness)
    if oddness and chance.randrange(10) == 0:
        data["more"] = chance.choice(ODD)
    return data


def _value(chance: random.Random, shape: Shape, oddness: int) -> Any:
    if shape.nullable and chance.randrange(10) == 0:
        return None
    if shape.fields is not None:
        return _recorded(chance, shape.fields(), oddness)
    if shape.items is not None:
        return [_value(chance, shape.items(), oddness) for _ in range(chance.randrange(3))]
    return chance.choice(OF_KIND.get(shape.kind, ODD))


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
