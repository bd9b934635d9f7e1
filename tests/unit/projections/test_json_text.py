"""JSON texts in rows have one form: whoever read the event, and however its producer wrote the numbers."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.projections.loading.decoding import read_into
from headwater.projections.stores.store import Batch
from headwater.projections.table.json_text import as_text, canonical_text, dumps, loads, make_canonical
from headwater.projections.table.view import TableView
from tests.support.noted import NOTES, ODD, VIEWS, doubles, noted
from tests.support.seeds import seed_of
from tests.support.states import differences, expected_states
from tests.unit.projections.test_folding import states as rows_as_states
from tests.unit.projections.test_folding import whole

FINITE = st.floats(allow_nan=False, allow_infinity=False)
WORDS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | FINITE | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


def as_java_writes(number: float) -> str:
    """The text of a double by Java's rules: with an exponent below 10^-3 and from 10^7 on."""
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return json.dumps(number)
    digits = "".join(filter(str.isdigit, repr(number).partition("e")[0])).strip("0")
    two = f"{number:.1e}"
    if len(digits) == 1 and float(two) == number:  # the nearest text of two digits, as of the smallest numbers
        digits = "".join(filter(str.isdigit, two.partition("e")[0]))
    exponent = f"{number:.17e}".partition("e")[2]
    return f"{'-' if number < 0 else ''}{digits[0]}.{digits[1:] or '0'}E{int(exponent)}"


def as_spark_writes(value: object) -> str:
    match value:
        case dict():
            inner = ",".join(f"{json.dumps(name)}:{as_spark_writes(each)}" for name, each in value.items())
            return f"{{{inner}}}"
        case list():
            return f"[{','.join(map(as_spark_writes, value))}]"
        case float():
            return as_java_writes(value)
        case _:
            return json.dumps(value)


@given(FINITE)
@example(1e22)
@example(-0.0)
@example(5e-324)
@example(12345678.9)
@example(1e-4)
def test_every_double_has_one_text(number: float) -> None:
    text = canonical_text(as_java_writes(number))
    assert text == dumps(number)
    assert (loads(text.encode()), str(loads(text.encode()))) == (number, str(number))
    assert canonical_text(text) == text


@given(FINITE)
@example(59689421.0)
@example(5.960464477539063e-08)
@example(1e22)
@example(5e-324)
def test_a_number_that_should_be_a_text_is_as_java_writes_it(number: float) -> None:
    assert as_text(number) == as_java_writes(number)


@given(VALUES)
def test_every_value_has_one_text(value: object) -> None:
    if isinstance(value, str):
        return  # a text is as it is
    text = canonical_text(as_spark_writes(value))
    assert text == dumps(value)
    assert loads(text.encode()) == value
    assert canonical_text(text) == text
    assert loads(dumps(loads(json.dumps(value, indent=1).encode())).encode()) == value


@given(WORDS)
@example("1.50")
@example("12345678901234567890.50")
@example("1E+2")
@example("007")
@example("{not json")
def test_a_text_stays_as_it_is(text: str) -> None:
    if text[:1] not in ("{", "["):
        assert canonical_text(text) == text


@pytest.mark.parametrize("levels", [10, 300, 100_000])
@pytest.mark.parametrize("number", ["1.0E8", "1" + 30 * "0"])
def test_any_depth_stops_nothing(levels: int, number: str) -> None:
    text = canonical_text("[" * levels + number + "]" * levels)
    assert canonical_text(text) == text
    assert (number in text) == (number != "1.0E8" or levels > 1_000)


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_compiled_views_write_the_texts_of_the_reference(view: TableView) -> None:
    sources = noted([*ODD * 3, *map(repr, doubles(seed_of(1), 500))])
    rows, reasons = whole(view, sources)
    assert reasons == {}
    assert differences(rows_as_states(view, rows), expected_states(view, sources)) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("1.50", "1.50"),
        (12345678.9, "1.23456789E7"),
        (-1e8, "-1.0E8"),
        (1e-4, "1.0E-4"),
        (0.001, "0.001"),
        (9999999.0, "9999999.0"),
        (5e-324, "4.9E-324"),
        (1e-323, "9.9E-324"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (10**30, "1" + 30 * "0"),
        (True, "true"),
        ([1e8, {"a": 1e-5}], '[1.0E8,{"a":1.0E-5}]'),
    ],
)
def test_a_value_that_should_be_a_text_is_as_spark_writes_it(value: object, text: str) -> None:
    assert as_text(value) == text


def test_a_record_is_kept_as_it_is_in_the_log() -> None:
    assert set(NOTES.layout.json_texts) == {
        "value",
        "lines_now",
        *(text for text in NOTES.layout.json_texts if "_" in text),
    }
    assert "record" not in NOTES.layout.json_texts


def test_a_patch_gets_them_when_it_is_decoded() -> None:
    batch = Batch(0)
    value = {"value": "1.0E8", "lines_now": '[{"weight": 1.23456789E7}]', "record": '{"a": 1.0E8}'}
    record = {"p": 0, "o": 1, "i": 0, "t": 1, "c": value}
    read_into(batch, b"notes@1/n", json.dumps(record).encode(), json_texts={"notes@1": NOTES.layout.json_texts})
    (patch,) = batch.patches["notes@1"]
    assert patch.fields == {"value": "100000000.0", "lines_now": '[{"weight":12345678.9}]', "record": '{"a": 1.0E8}'}


def test_other_values_are_left_alone() -> None:
    fields = {"value": None, "lines_now": 5, "other": "1.0E8"}
    make_canonical(fields, NOTES.layout.json_texts)
    assert fields == {"value": None, "lines_now": 5, "other": "1.0E8"}
