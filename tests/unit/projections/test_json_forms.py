"""What the JSON texts in rows stand for: told by the types of the fields that they were read from."""

from __future__ import annotations

import json
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, PlainSerializer, RootModel

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.field_kinds import JsonValues, json_values
from headwater.projections.stores.declared import Postgres
from headwater.projections.stream.view import late_view
from headwater.projections.table.computations import envelope, when
from headwater.projections.table.folds import collect, last
from headwater.projections.table.json_text import MAX_LEVELS, JsonForm, JsonForms, Made, dumps, json_value, with_json
from headwater.projections.table.view import TableView
from headwater.projections.testing.rows import Row
from headwater.testing import rows_of
from tests.support.captured_things import by_id as captured_view
from tests.support.noted import NOTES, ODD, Line, Noted
from tests.support.personal_visits import last_visitor
from tests.support.planned import Planned, answered, planned, plans_in_postgres

PEOPLE = [{"person_id": "ada", "name": "Ada", "age": 36}]
TEXTS, OTHERS, EITHER = JsonValues.TEXTS, JsonValues.OTHERS, JsonValues.EITHER


def shown(row: Row, forms: JsonForms, made: Made = orjson.Fragment, stored: Row | None = None) -> Row:
    """One row."""
    (found,) = with_json([row], forms, made, stored=None if stored is None else [stored])
    return found


class Mixed(Enum):
    """Values of two kinds."""

    ONE = 1
    TWO = "two"


class Pair(BaseModel):
    """A model."""

    left: int


class Words(RootModel[list[str]]):
    """A model of a list."""


class Kinds(Event, type="kinds.seen"):
    """A field of every kind that a column of JSON may have."""

    price: Decimal
    words: list[str]
    pairs: dict[str, Pair] | None
    pair: Pair | None
    rooted: Words
    either: str | list[str]
    mixed: Mixed
    numbers: int | bool
    numbers_or_null: Literal[1, True, None]
    anything: Any
    priced: Decimal | int
    written: Annotated[list[str], PlainSerializer(" ".join)]
    written_at_last: Annotated[list[str] | None, PlainSerializer(str)]
    raw: bytes | None
    flag: bool


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("price", TEXTS),
        ("words", OTHERS),
        ("pairs", OTHERS),
        ("pair", OTHERS),
        ("rooted", OTHERS),
        ("either", EITHER),
        ("mixed", EITHER),
        ("numbers", OTHERS),
        ("numbers_or_null", OTHERS),
        ("anything", EITHER),
        ("priced", EITHER),
        ("written", EITHER),
        ("written_at_last", EITHER),
        ("raw", TEXTS),
    ],
)
def test_a_type_says_whether_values_are_texts(name: str, values: JsonValues) -> None:
    assert json_values(Kinds, name) is values


@pytest.mark.parametrize(
    ("values", "text", "answered"),
    [
        (OTHERS, '{"a":[1,"x",null]}', {"a": [1, "x", None]}),
        (OTHERS, "[]", []),
        (OTHERS, "5", 5),
        (OTHERS, "true", True),
        (OTHERS, "null", None),
        (OTHERS, "", ""),
        (OTHERS, "of an older version", "of an older version"),
        (OTHERS, "NaN", "NaN"),
        (OTHERS, "sealed:1:x", "sealed:1:x"),
        (OTHERS, '["' + chr(92) + 'ud800"]', '["' + chr(92) + 'ud800"]'),
        (EITHER, '{"a":1}', {"a": 1}),
        (EITHER, "[1]", [1]),
        (EITHER, "{not json", "{not json"),
        (EITHER, "5", "5"),
        (EITHER, "007", "007"),
        (EITHER, "true", "true"),
        (EITHER, "null", "null"),
        (EITHER, '"quoted"', '"quoted"'),
        (TEXTS, "12.50", "12.50"),
        (TEXTS, "[1]", "[1]"),
    ],
)
def test_a_text_is_answered_as_what_it_stands_for(values: JsonValues, text: str, answered: Any) -> None:
    forms = {"value": JsonForm(values)}
    row = {"key": "5", "value": text}
    assert json.loads(orjson.dumps(shown(row, forms))) == {"key": "5", "value": answered}
    assert shown(row, forms, json_value) == {"key": "5", "value": answered}
    assert row == {"key": "5", "value": text}
    assert shown({"key": "5", "value": None}, forms) == {"key": "5", "value": None}
    assert shown({"key": "5"}, forms) == {"key": "5"}


NUMBERS = ("1" + 40 * "0", "-123456789012345678901234567890", "0.1000000000000000055511151231257827", "-0.0", "1.50")


@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_are_answered_as_they_are_written(number: str) -> None:
    text = f'{{"n":{number},"of":[{number}]}}'
    assert orjson.dumps(shown({"value": text}, {"value": JsonForm(OTHERS)})) == f'{{"value":{text}}}'.encode()


@pytest.mark.parametrize("levels", [1, MAX_LEVELS, MAX_LEVELS + 1, 1_000, 100_000])
def test_a_value_of_too_many_levels_is_a_text(levels: int) -> None:
    text = "[" * levels + "]" * levels
    answer = orjson.dumps(shown({"value": text}, {"value": JsonForm(EITHER)}))
    assert answer.startswith(b'{"value":[') is (levels <= MAX_LEVELS)
    assert json.dumps(json.loads(answer), indent=1)
    assert isinstance(shown({"value": text}, {"value": JsonForm(EITHER)}, json_value)["value"], str) is (
        levels > MAX_LEVELS
    )


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("a1[{\"' é"), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_any_value_that_is_no_text_is_answered_as_it_is(value: Any) -> None:
    forms = {"value": JsonForm(OTHERS)}
    assert json.loads(orjson.dumps(shown({"value": dumps(value)}, forms))) == {"value": value}
    assert shown({"value": dumps(value)}, forms, json_value) == {"value": value}


@given(st.text() | st.sampled_from(ODD))
def test_any_text_in_any_column_gives_an_answer_that_can_be_read(text: str) -> None:
    text = text.encode(errors="replace").decode()  # as stores have it
    for values in JsonValues:
        found = json.loads(orjson.dumps(shown({"value": text}, {"value": JsonForm(values)})))
        assert found == {"value": text} or values is not TEXTS


def test_the_columns_of_a_view_and_what_their_texts_may_be() -> None:
    forms = NOTES.json_forms
    assert {name: form.values for name, form in forms.items() if isinstance(form, JsonForm)} == {
        "value": EITHER,
        "lines_now": OTHERS,
        "record": OTHERS,
    }
    value, tags = JsonForm(EITHER, ((Noted, "value"),)), JsonForm(OTHERS, ((Line, "tags"),))
    weight = JsonForm(OTHERS, ((Line, "weight"),))
    assert {name: form for name, form in forms.items() if not isinstance(form, JsonForm)} == {
        "story": {"value": value},
        "values": {"_value": value},
        "best": {"value": value},
        "lines": {"weight": weight, "tags": tags},
    }
    assert forms["lines_now"] == JsonForm(OTHERS, ((Noted, "lines"),))


class Other(Event, type="kinds.other"):
    """Another event with some of the fields."""

    words: str | list[str]
    price: Decimal
    tags: list[str]


def test_a_column_of_several_fields_may_have_what_each_may_have() -> None:
    view = TableView(
        name="kinds",
        key=envelope("stream"),
        key_name="stream",
        columns={
            "words": last({Kinds: "words", Other: "words"}),
            "chosen": last({Kinds: when("flag", "words", "either")}),
            "whole": last({Kinds: when("flag", "pair", "rooted")}),
            "prices": collect({Kinds: {"price": "price"}, Other: {"price": "price"}}),
            "tags": last({Kinds: "words", Other: "tags"}),
            "texts": collect({Kinds: envelope("id")}),
        },
        stores=(Postgres(),),
    )
    assert view.json_forms["words"] == JsonForm(EITHER, ((Kinds, "words"), (Other, "words")))
    assert view.json_forms["chosen"] == JsonForm(EITHER, ((Kinds, "words"), (Kinds, "either")))
    assert view.json_forms["whole"] == JsonForm(OTHERS, ((Kinds, "pair"), (Kinds, "rooted")))
    assert view.json_forms["tags"] == JsonForm(OTHERS, ((Kinds, "words"), (Other, "tags")))
    assert view.json_forms["prices"] == {"price": JsonForm(TEXTS, ((Kinds, "price"), (Other, "price")))}
    assert "texts" not in view.json_forms


def test_tests_of_views_have_the_values() -> None:
    data = planned(
        details={"n": [2**63 - 1, 1.5]}, parts=[{"sku": "s", "sizes": [1, 2.5], "extra": {"a": []}}], people=PEOPLE
    )
    row = rows_of(plans_in_postgres, Planned.model_validate_json(dumps(data)))["P1"]
    wanted = answered(data, opened=True)
    assert {name: row[name] for name in wanted} == wanted
    assert row["record"]["type"] == "plan.planned"


def test_documents_of_captured_tables_may_be_anything() -> None:
    assert {name for name in captured_view.json_forms} == {"extra", "tags", "numbers"}
    assert {*captured_view.json_forms.values()} == {JsonForm(EITHER)}


def test_stream_views_write_json_texts_themselves() -> None:
    late = late_view(last_visitor)
    assert late is not None
    assert late.json_forms == {"data": JsonForm(OTHERS)}


def test_an_opened_text_is_a_value_and_no_json_text() -> None:
    forms = {"value": JsonForm(OTHERS), "other": JsonForm(OTHERS)}
    stored = {"value": f"sealed:1:{24 * 'a'}:t:f:x", "other": "5"}
    opened = {"value": "5", "other": "5"}
    assert shown(opened, forms, json_value, stored) == {"value": "5", "other": 5}
    hidden = {"value": {"hidden": "personal"}, "other": "5"}
    assert shown(hidden, forms, json_value, stored) == hidden | {"other": 5}
