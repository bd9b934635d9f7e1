"""Filters as they are written: lists, quotes, `or`, operators and what is said of those that do not fit."""

from __future__ import annotations

import re
import sys
from datetime import date
from decimal import Decimal
from urllib.parse import parse_qsl
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.api.errors import BadParameter
from headwater.api.requests.filters import AnyOf, Condition, Filter, folded, in_either_case, operators, read_filters
from headwater.projections.registry import ViewRegistry
from headwater.projections.table.types import ColumnType
from tests.contracts.exact_views import EXACT_BY_GROUP
from tests.support.filtered import fulfils

VIEW = ViewRegistry.load(["listings"]).views["listings"]
NASTY = [
    "",
    ",",
    '"',
    '","',
    "a,b",
    '"a"',
    'a"b',
    '""',
    " a ",
    "(",
    ")",
    "(a,b)",
    "a=b",
    "=",
    "\n",
    "%",
    "\\",
    "é",
    "🏠",
]
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)


def read(query: str) -> tuple[Condition, ...]:
    return read_filters(VIEW, parse_qsl(query, keep_blank_values=True), ())


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def test_lists_are_split_at_commas() -> None:
    assert read("city.in=Galt,Lodi") == (Filter("city", "in", ("Galt", "Lodi")),)
    assert read("city.in=Galt&city.in=Lodi,Ione&city=A,B") == (Filter("city", "in", ("Galt", "Lodi", "Ione", "A,B")),)
    assert read("city.in=") == (Filter("city", "in", ("",)),)
    assert read("city.in=a,,b") == (Filter("city", "in", ("a", "", "b")),)
    assert read('city.in=Galt,"Lodi, CA",5" pipe') == (Filter("city", "in", ("Galt", "Lodi, CA", '5" pipe')),)
    assert read("price.not_in=1,2&price.ne=3") == (Filter("price", "not_in", (1, 2, 3)),)


@given(st.lists(TEXT, min_size=1, max_size=5))
@example(NASTY)
def test_any_value_survives_in_quotes(values: list[str]) -> None:
    written = ",".join(map(quoted, values))
    expected = Filter("city", "in", tuple(values))
    assert read_filters(VIEW, [("city.in", written)], ()) == (expected,)
    alternatives = f"(city.in=({written}),{','.join(f'zip={quoted(value)}' for value in values)})"
    assert read_filters(VIEW, [("or", alternatives)], ()) == (
        AnyOf((expected, *(Filter("zip", "in", (value,)) for value in values))),
    )


@given(TEXT.filter(lambda text: not text.startswith('"') and "," not in text))
def test_a_value_without_comma_and_quote_needs_none(value: str) -> None:
    assert read_filters(VIEW, [("city.in", f"{value},x")], ()) == (Filter("city", "in", (value, "x")),)


def test_alternatives() -> None:
    galt, beds = Filter("city", "in", ("GALT",)), Filter("beds", "gte", (3,))
    assert read("or=(city=GALT,beds.gte=3)") == (AnyOf((galt, beds)),)
    assert read("or=(city.eq=GALT)") == (AnyOf((galt,)),)
    assert read("beds.gte=3&or=(city=GALT)&or=(beds.gte=3,sold_for.is_null=true)") == (
        beds,
        AnyOf((galt,)),
        AnyOf((beds, Filter("sold_for", "is_null", (True,)))),
    )
    assert read("or=(city.ne=A=B,city.prefix=)") == (
        AnyOf((Filter("city", "not_in", ("A=B",)), Filter("city", "prefix", ("",)))),
    )


@pytest.mark.parametrize(
    "text",
    [
        *("", "(", "()", "city=GALT", "(city=GALT", "(city=GALT))", "(city=GALT,)", "(city=GALT)x", "((city=GALT))"),
        *("(city)", "(city=a(b)", '(city="a"b)', '(city="a)', "(=x)", "(or=(city=a))"),
        *("(city.in=(a)", "(city.in=(a,(b)))"),
    ],
)
def test_alternatives_that_cannot_be_read(text: str) -> None:
    with pytest.raises(BadParameter) as refused:
        read_filters(VIEW, [("or", text)], ())
    assert refused.value.parameter == "or"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("price.near=1", '"price.near" uses "near", which is not an operator for price; use one of price.eq,'),
        ("city.=1", '"city." uses "", which is not an operator for city; use one of city.eq'),
        ("price.prefix=1", '"price.prefix" uses "prefix", which is not an operator for price; use one of price.eq'),
        ("or=(price.near=1)", '"or" has "price.near", which uses "near", which is not an operator for price; use'),
        ("or=(town=1)", '"or" has "town", which is not a column of "listings"; use one of listing_id'),
        ("or=(price=cheap)", '"or" has "price", which is "cheap": send a whole number'),
        ("or=[1]", '"or" cannot be parsed from "[1]" on: send or=(city=GALT,beds.gte=3'),
        ("or=(city=1", '"or" cannot be parsed from its end on: send or='),
        ('city.in="a', '"city.in" has an unclosed quote: put a value with a comma in double quotes'),
        ('city.in="a"b', '"city.in" has text after a closing quote: put a value with a comma'),
        ("sold_for.is_null=1", '"sold_for.is_null" is "1": send true or false'),
        ("sold_for.is_null=true&sold_for.is_null=false", '"sold_for.is_null" is given more than once'),
        ("city.iprefix=" + "x" * 151, '"city.iprefix" has 151 characters: at most 150'),
        (
            "listed_at.gte=2026-01-01T00:00:00",
            '"2026-01-01T00:00:00" has no zone: write it like 2026-01-31T12:00:00Z',
        ),
        ("listed_at.gte=2026-01-01", '"2026-01-01" has no time of day: write it like'),
        ("&".join(f"price.in={n},{n}" for n in range(501)), '"price.in" has more than 1000 values'),
        ("&".join(f"city.prefix={n}" for n in range(101)), '"city.prefix" has more than 100 values'),
        ("or=(" + ",".join(f"price={n}" for n in range(101)) + ")", '"or" has more than 100 conditions'),
        ("&".join("or=(price=1)" for _ in range(21)), '"or" is given more than 20 times'),
    ],
)
def test_what_does_not_fit_is_named_with_what_to_write(query: str, said: str) -> None:
    with pytest.raises(BadParameter, match=re.escape(said)):
        read(query)


def exact(query: str) -> tuple[Condition, ...]:
    return read_filters(EXACT_BY_GROUP, parse_qsl(query, keep_blank_values=True), ())


def test_decimals_dates_and_uuids_are_read_exactly() -> None:
    long = "-" + "9" * 60 + "." + "1" * 60
    assert exact(f"price.gt=12.50&wide.in=1,{long}") == (
        Filter("wide", "in", (Decimal(1), Decimal(long))),
        Filter("price", "gt", (Decimal("12.50"),)),
    )
    assert exact("due=2026-01-31&reference.ne=6F9619FF-8B86-D011-B42D-00C04FC964FF") == (
        Filter("due", "in", (date(2026, 1, 31),)),
        Filter("reference", "not_in", (UUID("6f9619ff-8b86-d011-b42d-00c04fc964ff"),)),
    )


@pytest.mark.parametrize(
    ("query", "said"),
    [
        *(
            (f"price={text}", f'"price" is "{text}": send a number without an exponent')
            for text in ("1e5", "NaN", "Infinity", "1_0", ".5", "5.", "", "٣")
        ),
        (f"price={'1' * 61}", '"price" is "'),
        *(
            (f"due={text}", f'"due" is "{text}": send a date such as')
            for text in ("2026-02-30", "2026-1-1", "0000-01-01")
        ),
        (
            "reference=6f9619ff8b86d011b42d00c04fc964ff",
            '"reference" is "6f9619ff8b86d011b42d00c04fc964ff": send a UUID',
        ),
        ("price.prefix=1", '"price.prefix" uses "prefix", which is not an operator for price'),
    ],
)
def test_what_is_no_decimal_date_or_uuid_is_named(query: str, said: str) -> None:
    with pytest.raises(BadParameter, match=re.escape(said)):
        exact(query)


def test_what_cannot_be_compared_has_no_operator() -> None:
    assert operators(ColumnType.POINT) == ("is_null",)
    assert operators(ColumnType.LIST) == operators(ColumnType.JSON) == ()


@given(TEXT, TEXT)
@example("straße ΣÅé.*[a]^$\\-_ \n", "STRASSE")
@example("ǆ", "ǅ")
@example("\u212a", "k")
def test_either_case_is_of_single_characters(text: str, other: str) -> None:
    pattern = re.compile(in_either_case(text), re.DOTALL)
    for candidate in (text, text.upper(), text.lower(), text.title(), other):
        wanted = Filter("city", "ieq", (text,))
        assert (pattern.fullmatch(candidate) is not None) == fulfils({"city": candidate}, wanted)


@pytest.mark.complete
def test_case_is_ignored_on_both_sides_alike() -> None:
    """All characters with a case, so that no store finds another row for `a` than for `A`."""
    cased = {form for each in map(chr, range(sys.maxunicode + 1)) for form in forms(each)}
    assert len(cased) > 2_700
    patterns = {each: re.compile(in_either_case(each)) for each in cased}
    for each in cased:
        assert len(each) == 1
        for other in forms(each) | {folded(each)}:
            matched = patterns[each].fullmatch(other) is not None
            assert matched == (patterns[other].fullmatch(each) is not None), (each, other)
            assert matched == (folded(each) == folded(other)), (each, other)


def forms(character: str) -> set[str]:
    """The character in each of its cases, if it has several."""
    found = {character, *(made for made in (character.lower(), character.upper(), character.title()) if len(made) == 1)}
    return found if len(found) > 1 else set()


ALIKE = [
    "\u03c3\u03c2\u03a3",  # sigma, also at the end of a word
    "\u00df\u1e9e",  # sharp s
    "kK\u212a",  # the Kelvin sign
    "\u00e5\u00c5\u212b",  # the Angstrom sign
    "sS\u017f",  # the long s
    "iI",
    "\u0131",  # without a dot
    "\u0130",  # with one
    "\u01c6\u01c5\u01c4",  # in title case, too
]


@pytest.mark.parametrize("alike", ALIKE)
def test_characters_that_differ_in_case_only(alike: str) -> None:
    pattern = re.compile(in_either_case(alike[0]))
    for each in "".join(ALIKE):
        assert (pattern.fullmatch(each) is not None) == (each in alike), each


def test_no_pattern_is_longer_than_elasticsearch_takes() -> None:
    widest = max((chr(code) for code in range(0x20000) if not 0xD800 <= code < 0xE000), key=_units)
    assert 150 * _units(widest) + len(".*") <= 1000


def _units(character: str) -> int:
    return len(in_either_case(character).encode("utf-16-le")) // 2
