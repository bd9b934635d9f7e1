"""The kinds of fields are what pydantic reads, however a declaration writes them; and a null of theirs is a null."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, NewType
from uuid import UUID

import pytest
from pydantic import AfterValidator, AwareDatetime, BaseModel, Field, RootModel, create_model
from typing_extensions import TypeAliasType

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.field_kinds import FieldKind, field_kinds, is_required
from headwater.eventlog.envelope import Envelope, Position, encode, timestamp_ms
from headwater.projections.reading.reader import lift
from headwater.projections.stores.declared import Postgres
from headwater.projections.table.event_data import problem
from headwater.projections.table.expressions import Source
from headwater.projections.table.folds import last
from headwater.projections.table.types import ColumnType, field_types, item_model
from headwater.projections.table.view import TableView
from tests.unit.projections.test_folding import check


class Colour(enum.Enum):
    RED = "red"
    NONE = None


class Size(enum.IntEnum):
    SMALL = 1


class Mixed(enum.Enum):
    ONE = 1
    TWO = "two"


class Name(RootModel[str | None]):
    pass


class Line(BaseModel):
    sku: str


class Lines(RootModel[list[Line]]):
    pass


Alias = TypeAliasType("Alias", "str | None")
Listed = TypeAliasType("Listed", list[Line])
Id = NewType("Id", str)
Cents = NewType("Cents", int)
Checked = Annotated[str, AfterValidator(str.strip)]

KINDS: list[tuple[Any, Any, bool]] = [
    (str, str, False),
    (str | None, str, True),
    (None | int, int, True),
    (Literal["a", None], str, True),
    (Literal["a", "b"], str, False),
    (Literal[1, "a"], object, False),
    (Literal[True, False], bool, False),
    (Literal["a"] | Literal["b", None], str, True),
    (Literal[Colour.RED], str, False),
    (Colour, str, True),
    (Colour | None, str, True),
    (Size, int, False),
    (Mixed, object, False),
    (Alias, str, True),
    (Name, str, True),
    (Id, str, False),
    (Id | None, str, True),
    (Cents, int, False),
    (Checked, str, False),
    (Annotated[int, Field(ge=0)] | None, int, True),
    (AwareDatetime, datetime, False),
    (datetime | None, datetime, True),
    (float, float, False),
    (int | float, object, False),
    (UUID, object, False),
    (UUID | None, object, True),
    (Decimal, object, False),
    (date, object, False),
    (Any, object, True),
    (object, object, True),
    (dict[str, Any], object, False),
    (list[str | None], object, False),
    (Line, object, False),
    (Line | None, object, True),
    (Lines, object, False),
]


@pytest.mark.parametrize(("annotation", "kind", "nullable"), KINDS, ids=[str(each) for each, _, _ in KINDS])
def test_the_kind_of_a_field(annotation: Any, kind: Any, nullable: bool) -> None:
    model = create_model("Model", value=(annotation, Field(alias="a value")))
    (found,) = field_kinds(model).items()
    assert found == ("a value", FieldKind(kind, nullable, found[1].form))
    # as pydantic itself reads a null
    try:
        model.model_validate_json('{"a value": null}')
        reads_null = True
    except ValueError:
        reads_null = False
    assert reads_null == nullable


class Coloured(Event, type="thing.coloured"):
    thing_id: str
    colour: Colour
    name: Name
    alias: Alias
    choice: Literal["a"] | Literal["b", None]
    cents: Cents
    anything: Any
    owner: Id


Coloured.id_field = "thing_id"
COLUMNS = ("colour", "name", "alias", "choice", "cents", "anything")
THINGS = TableView(
    name="things", key="owner", columns={name: last({Coloured: name}) for name in COLUMNS}, stores=(Postgres(),)
)


def coloured(version: int, **data: Any) -> Source:
    time = datetime(2026, 1, 1, tzinfo=UTC)
    body = {"thing_id": "T", "owner": "o", "cents": 5, **dict.fromkeys(COLUMNS[:4]), "anything": None, **data}
    made = Envelope(f"thing/T/{version}", "thing.coloured", "thing/T", time, body, sequence=version)
    return Source(made, Position(0, version), timestamp_ms(time), encode(made).decode())


def test_a_null_is_a_null_and_no_dead_letter() -> None:
    full = {"colour": "red", "name": "n", "alias": "a", "choice": "b", "anything": {"x": 1.0}}
    sources = [coloured(1, **full), coloured(2)]
    assert [problem([THINGS.plan], source.envelope) for source in sources] == [None, None]
    assert problem([THINGS.plan], coloured(3, cents=None).envelope) is not None
    ((first,), (second,)) = (lift(THINGS, source) for source in sources)
    assert {name: first.fields[name] for name in COLUMNS} == {**full, "cents": 5, "anything": '{"x":1.0}'}
    assert [second.fields[name] for name in COLUMNS] == [None, None, None, None, 5, None]
    check(THINGS, sources)
    Coloured.model_validate_json(encode(sources[1].envelope).partition(b'"data":')[2][:-1])


def test_columns_have_the_resolved_types() -> None:
    assert {name: kind for name, kind in field_types(Coloured).items() if kind is not ColumnType.TEXT} == {
        "cents": ColumnType.INTEGER,
        "anything": ColumnType.JSON,
    }
    assert not is_required(Coloured, "colour")
    assert is_required(Coloured, "cents")


@pytest.mark.parametrize(
    "annotation",
    [
        list[Line],
        list[Line] | None,
        Sequence[Line],
        tuple[Line, ...],
        Lines,
        Listed,
        Annotated[list[Line], Field(max_length=3)],
    ],
)
def test_the_items_of_a_list_however_it_is_declared(annotation: Any) -> None:
    model = create_model("Model", lines=(annotation, ...))
    assert item_model(model, "lines") is Line


@pytest.mark.parametrize("annotation", [list[str], Line, dict[str, Line], str, tuple[Line, str]])
def test_what_is_no_list_of_objects(annotation: Any) -> None:
    with pytest.raises(ValueError, match="is not a list of objects"):
        item_model(create_model("Model", lines=(annotation, ...)), "lines")


class Early(Event, type="thing.early"):
    thing_id: str
    label: str | None
    later: list[Later] | None


class Later(BaseModel):
    at: int


def test_a_class_may_be_declared_below() -> None:
    assert {name: kind.kind for name, kind in field_kinds(Early).items()} == {
        "thing_id": str,
        "label": str,
        "later": object,
    }
    assert not field_kinds(Early)["thing_id"].nullable
    Early.model_rebuild()
    assert field_kinds(Early)["later"] == FieldKind(object, nullable=True)
    assert item_model(Early, "later") is Later
