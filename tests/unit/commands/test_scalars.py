"""Which events need no reading back: none that JSON would change, whoever made it and however."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.scalars import is_as_in_json, scalar_fields


class Plain(Event, type="thing.plain"):
    thing_id: str
    count: int
    share: float
    new: bool
    note: str | None


VALUES: dict[str, Any] = {"thing_id": "T1", "count": 1, "share": 0.5, "new": True, "note": None}
ANYTHING = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.lists(st.integers())


@given(st.fixed_dictionaries(dict.fromkeys(VALUES, ANYTHING)))
def test_what_is_as_in_json_is_read_back_as_an_equal_event(values: dict[str, Any]) -> None:
    event = Plain.model_construct(**values)
    if is_as_in_json(event):
        assert Plain.model_validate_json(event.model_dump_json()) == event


@given(st.text(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.none() | st.text())
def test_a_validated_event_of_scalars_needs_no_reading_back(
    thing_id: str, count: int, share: float, new: bool, note: str | None
) -> None:
    assert is_as_in_json(Plain(thing_id=thing_id, count=count, share=share, new=new, note=note))


class Name(str):
    pass


class Colour(StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    "changed",
    [
        {"count": "1"},
        {"count": True},
        {"count": 1.0},
        {"share": 1},
        {"share": float("nan")},
        {"share": float("inf")},
        {"thing_id": None},
        {"thing_id": b"T1"},
        {"thing_id": Name("T1")},
        {"note": Colour.RED},
        {"note": ["a"]},
    ],
    ids=repr,
)
def test_a_value_that_was_never_validated_takes_a_reading_back(changed: dict[str, Any]) -> None:
    assert not is_as_in_json(Plain.model_construct(**VALUES | changed))
    assert not is_as_in_json(Plain(**VALUES).model_copy(update=changed))


def test_a_missing_value_takes_a_reading_back() -> None:
    assert not is_as_in_json(Plain.model_construct(**{"thing_id": VALUES["thing_id"]}))


class Constrained(BaseModel):
    count: Annotated[int, Field(gt=0)]


class Aliased(BaseModel):
    count: int = Field(alias="number")


class Validated(BaseModel):
    count: int

    @field_validator("count")
    @classmethod
    def doubled(cls, value: int) -> int:
        return value * 2


class Hidden(BaseModel):
    count: int
    _seen: int = PrivateAttr(0)


class Configured(BaseModel):
    model_config = ConfigDict(str_to_lower=True)
    name: str


class Excluded(BaseModel):
    count: int = Field(exclude=True)


class Timed(BaseModel):
    at: datetime


class Listed(BaseModel):
    tags: list[str]


class Nested(BaseModel):
    inner: Constrained


class Defaulted(BaseModel):
    count: int = 3


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    count: int


@pytest.mark.parametrize(
    "kind",
    [Constrained, Aliased, Validated, Hidden, Configured, Excluded, Timed, Listed, Nested, Defaulted],
    ids=lambda kind: kind.__name__,
)
def test_a_class_with_more_than_scalars_takes_a_reading_back(kind: type[BaseModel]) -> None:
    assert scalar_fields(kind) is None


def test_fields_that_nobody_declared_take_a_reading_back() -> None:
    assert not is_as_in_json(Plain(**VALUES).model_copy(update={"more": 1}))
    assert not is_as_in_json(Open(count=1, more=datetime.now()))
