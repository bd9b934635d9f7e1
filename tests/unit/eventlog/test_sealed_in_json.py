"""Sealed texts inside of JSON texts: only they change, and all else stays as it was written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.eventlog.personal.sealed_text import changed_texts

SEALED = f"sealed:1:{24 * 'a'}:type:field:AbC-_"
OTHERS = ["sealed:", "sealed:1:a", "sealed: yes", f"{SEALED}!", f"x{SEALED}", f'"{SEALED}']
WORDS = st.text("a\\\"',:{}[] é\n") | st.just(SEALED) | st.sampled_from(OTHERS)
VALUES = st.recursive(
    st.none() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


def opened(text: str) -> Any:
    return {"opened": [text, 'a "word"', None]}


def expected(value: Any) -> Any:
    match value:
        case str() if value == SEALED:
            return opened(value)
        case list():
            return [expected(each) for each in value]
        case dict():
            return {name: expected(each) for name, each in value.items()}
    return value


@pytest.mark.parametrize("number", ["1" + 40 * "0", "0.1000000000000000055511151231257827", "-0.0", "1.50"])
def test_numbers_beside_a_sealed_text_keep_their_digits(number: str) -> None:
    text = f'{{"n":{number}, "name" : "{SEALED}","list":["{SEALED}",{number}]}}'
    assert changed_texts(text, lambda _: None) == f'{{"n":{number}, "name" : null,"list":[null,{number}]}}'


@given(st.lists(VALUES, max_size=3) | st.dictionaries(WORDS, VALUES, max_size=3))
def test_a_json_text_changes_as_its_value_does(value: Any) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, separators=(",", ":"))):
        assert json.loads(changed_texts(text, opened)) == expected(value)


def test_what_is_no_json_stays() -> None:
    assert changed_texts(f'{{"a": "{SEALED}"', opened) == f'{{"a": "{SEALED}"'
    assert changed_texts("x", opened) == "x"
