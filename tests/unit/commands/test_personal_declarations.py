"""What may be declared as personal, and what errors say."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import orjson
import pytest
from pydantic import BaseModel, ConfigDict, Field, create_model

from headwater import Aggregate, Captured, Command, Event, ViewRow
from headwater.commands.declaring.aggregate import undocumented
from headwater.commands.declaring.field_kinds import field_kinds
from headwater.commands.declaring.personal import Personal
from headwater.commands.declaring.personal_reading import personal_fields
from headwater.commands.errors import DeclarationError
from headwater.eventlog.capturing.errors import SourceDeclarationError
from tests.support.personal_customers import Registered, customer


class Line(BaseModel):
    person: str
    email: Annotated[str | None, Personal(of="person")]
    note: Annotated[str | None, Personal(of="owner")] = None


def declared(**fields: Any) -> type[BaseModel]:
    made: dict[str, Any] = {"owner": (str, ...), **{name: (field, ...) for name, field in fields.items()}}
    return create_model("Declared", **made)


def paths(**fields: Any) -> list[str]:
    found = personal_fields(declared(**fields), "thing.made", ids=("owner",), subject="the id")
    return [] if found is None else [field.path for field in found.all]


def test_a_message_without_personal_fields_has_none() -> None:
    assert personal_fields(declared(a=str, b=list[int]), "thing.made") is None


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Annotated[str | None, Personal()], ["f"]),
        (Annotated[int | None, Personal(of="owner")], ["f"]),
        (Annotated[dict[str, Any] | None, Personal()], ["f"]),
        (Annotated[str, Field(min_length=3), Personal(erased_as="(erased)")], ["f"]),
        (Line, ["f.email", "f.note"]),
        (Line | None, ["f.email", "f.note"]),
        (list[Line], ["f.email", "f.note"]),
        (tuple[Line, ...] | None, ["f.email", "f.note"]),
        (dict[str, list[Line]], ["f.email", "f.note"]),
        (Annotated[list[Line | None], Field(max_length=3)], ["f.email", "f.note"]),
    ],
)
def test_fields_of_any_type_nested_models_and_lists_are_found(kind: Any, expected: list[str]) -> None:
    assert paths(f=kind) == expected


@dataclass
class Holder:
    email: Annotated[str | None, Personal()]


class Tree(BaseModel):
    children: list[Tree]
    email: Annotated[str | None, Personal()]


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (Annotated[str, Personal()], "null once its person is erased"),
        (Annotated[str, Field(min_length=9), Personal(erased_as="gone")], "erased_as that is no value of it"),
        (Annotated[int, Personal(erased_as="gone")], "erased_as that is no value of it"),
        (Annotated[str | None, Personal(of="nobody")], '"nobody", which is no field'),
        (Annotated[str | None, Personal(), Personal()], "several Personal"),
        (list[Annotated[str | None, Personal()]], "mark the whole field"),
        (Annotated[str, Personal(erased_as="")] | None, "mark the whole field"),
        (dict[str, Annotated[str | None, Personal()]], "mark the whole field"),
        (Line | int, "mark the whole field"),
        (Holder, "mark the whole field"),
        (Annotated[Line | None, Personal()], "mark one of both"),
        (Tree, "a model inside itself"),
    ],
)
def test_what_could_not_be_sealed_or_erased_is_refused(kind: Any, problem: str) -> None:
    with pytest.raises(DeclarationError, match=problem):
        paths(f=kind)


def test_the_person_must_be_a_required_text_that_is_not_personal() -> None:
    class Optional(BaseModel):
        person: str = ""
        email: Annotated[str | None, Personal(of="person")]

    class Number(BaseModel):
        person: int
        email: Annotated[str | None, Personal(of="person")]

    class Secret(BaseModel):
        person: Annotated[str, Personal(erased_as="")]
        email: Annotated[str | None, Personal(of="person")]

    for model, problem in ((Optional, "has a default"), (Number, "must be a text"), (Secret, "personal itself")):
        with pytest.raises(DeclarationError, match=problem):
            personal_fields(model, "thing.made", subject="the id")
    assert personal_fields(Optional, "thing", is_state=True) is not None


def test_ids_cannot_be_personal() -> None:
    class Named(BaseModel):
        email: Annotated[str, Personal(erased_as="")]

    with pytest.raises(DeclarationError, match="names a stream, an instance or a row"):
        personal_fields(Named, "thing.made", ids=("email",), subject="the id")


def test_captured_rows_and_rows_of_views_cannot_be_personal() -> None:
    with pytest.raises(SourceDeclarationError, match=r'column "email" of table "public\.people" is Personal'):

        class Person(Captured, table="public.people", key="id"):
            id: int
            email: Annotated[str, Personal(erased_as="")]

    with pytest.raises(DeclarationError, match='column "email" of view "people" is Personal'):

        class Row(ViewRow, view="people"):
            email: Annotated[str | None, Personal()]


def test_views_read_personal_fields_as_texts() -> None:
    kinds = field_kinds(Registered)
    assert (kinds["born"].kind, kinds["born"].nullable) == (str, True)
    assert (kinds["name"].kind, kinds["name"].nullable) == (str, False)


def test_a_state_with_a_new_personal_field_has_another_shape_and_others_keep_theirs() -> None:
    class Clear(BaseModel):
        email: str | None = None

    class Sealed(BaseModel):
        email: Annotated[str | None, Personal()] = None

    assert Clear.model_json_schema() == {**Sealed.model_json_schema(), "title": "Clear"}
    assert customer.is_personal
    unmarked = orjson.dumps(undocumented(type(customer.initial).model_json_schema()), option=orjson.OPT_SORT_KEYS)
    assert customer.shape != hashlib.blake2b(unmarked, digest_size=8).hexdigest()


def test_a_mark_without_parentheses_is_refused() -> None:
    with pytest.raises(DeclarationError, match="with parentheses"):
        paths(f=Annotated[str | None, Personal])


def test_the_default_may_be_a_word_of_a_literal() -> None:
    assert paths(f=Annotated[Literal["a", "x"], Personal(erased_as="x")]) == ["f"]


def test_types_that_are_declared_later_are_looked_into() -> None:
    fields = Early.sealed_fields
    assert fields is not None
    assert [field.path for field in fields.all] == ["own", "late.email"]
    assert later.is_personal


class Early(Event, type="later.early"):
    later_id: str
    own: Annotated[Late | None, Personal()]
    late: LateToo


class Late(BaseModel):
    street: str


class LateToo(BaseModel):
    email: Annotated[str | None, Personal(of="later_id")]


class Ask(Command, type="later.ask"):
    later_id: str


class State(BaseModel):
    model_config = ConfigDict(frozen=True)


def decide(command: Ask, state: State) -> list[Event]:
    return []


def evolve(state: State, event: Early) -> State:
    return state


later = Aggregate("later", "later_id", State(), decide, evolve)
