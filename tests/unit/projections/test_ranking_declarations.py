"""Declarations of rankings: what is refused, what is in a fingerprint, and where a row is in a sorted set."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from headwater import BOOLEAN, FLOAT, INTEGER, JSON, TEXT, TIME, Cache, Lookup, Postgres, Ranking, StreamView
from headwater.projections.errors import ViewDeclarationError
from headwater.projections.stores.valkey.rankings import Ranked, changed_places, ranked_of
from headwater.projections.table.decimals import EXACT, decimal_text
from headwater.projections.table.types import ColumnType
from tests.contracts.view_histories import BY_THING
from tests.support.observed import gate_view

COLUMNS = {"gate": TEXT, "number": INTEGER, "open": BOOLEAN, "weight": FLOAT, "at": TIME, "note": JSON}
ABLE = "sort by number, weight, at"


def ranked(*rankings: Any, **changes: Any) -> StreamView:
    return gate_view(key="gate", columns=COLUMNS, stores=(Cache(rankings=rankings),), **changes)


@pytest.mark.parametrize(
    ("rankings", "problem"),
    [
        (Ranking("-number"), 'is not a tuple: write Cache(rankings=(Ranking("-column"),))'),
        ("-number", 'is not a tuple: write Cache(rankings=(Ranking("-column"),))'),
        (("-number",), "'-number' is not a ranking: write Cache(rankings=(Ranking(\"-column\"),))"),
        ((Ranking("-weight"), Ranking("size")), f'"size" is not a column that is stored: {ABLE}'),
        ((Ranking(""),), f'"" is not a column that is stored: {ABLE}'),
        ((Ranking("--number"),), f'"-number" is not a column that is stored: {ABLE}'),
        ((Ranking(5),), "sort is not a text: write the name of a column (number, weight, at)"),  # type: ignore[arg-type]
        (
            (Ranking("-number,gate"),),
            "it sorts by one column, and rows with equal values are in the order of their keys",
        ),
        ((Ranking("gate"),), f'"gate" is TEXT, which has no place in a sorted set: {ABLE}'),
        ((Ranking("-open"),), f'"open" is BOOLEAN, which has no place in a sorted set: {ABLE}'),
        ((Ranking("-number", within="at"),), 'within is not a tuple of columns: write within=("column",)'),  # type: ignore[arg-type]
        ((Ranking("-number", within=(5,)),), 'within is not a tuple of columns: write within=("column",)'),  # type: ignore[arg-type]
        (
            (Ranking("-number", within=("day",)),),
            'within names "day", which is not a column that is stored: use number, ',
        ),
        ((Ranking("-number", within=("weight",)),), 'within names "weight", which is FLOAT and cannot be equal'),
        ((Ranking("-number", within=("note",)),), 'within names "note", which is JSON and cannot be equal'),
        ((Ranking("-number", within=("gate",)),), 'within names the key "gate", so each row would be alone'),
        ((Ranking("-number", within=("number",)),), 'within names "number", by which it also sorts'),
        ((Ranking("-number", within=("at", "at")),), "within names a column more than once"),
        ((Ranking("at"), Ranking("-at"), Ranking("at")), "Ranking(sort='at', within=()) is declared more than once"),
        (
            (Ranking("-number", within=("at", "open")), Ranking("-number", within=("open", "at"))),
            "within=('open', 'at')) is declared more than once: remove one",
        ),
    ],
)
def test_what_is_refused(rankings: Any, problem: str) -> None:
    with pytest.raises(ViewDeclarationError) as refused:
        gate_view(key="gate", columns=COLUMNS, stores=(Postgres(), Cache(rankings=rankings)))
    assert problem in str(refused.value)


def test_a_view_with_no_column_to_rank_by_is_told_which_types_have_an_order() -> None:
    with pytest.raises(ViewDeclarationError, match="INTEGER, FLOAT, TIME, DATE, DECIMAL, of which this view has"):
        gate_view(key="gate", columns={"gate": TEXT}, stores=(Cache(rankings=(Ranking("gate"),)),))


def test_a_looked_up_column_is_not_stored() -> None:
    lookups = (Lookup(view="gates", on="gate", columns={"size": "number"}),)
    with pytest.raises(ViewDeclarationError, match='"size" is not a column that is stored'):
        ranked(Ranking("-size"), lookups=lookups)


def test_a_table_view_can_have_rankings_by_columns_that_are_derived_too() -> None:
    view = replace(BY_THING, stores=(Cache(rankings=(Ranking("-average"), Ranking("latest", within=("flag",)))),))
    assert [(span.name, span.kind) for span in ranked_of(view)] == [
        ("-average", ColumnType.FLOAT),
        ("latest/flag", ColumnType.TIME),
    ]
    with pytest.raises(ViewDeclarationError, match='"tags" is JSON'):
        replace(BY_THING, stores=(Cache(rankings=(Ranking("tags"),)),))


def test_rankings_are_in_the_fingerprint_and_a_cache_without_is_as_before() -> None:
    assert Cache().declaration == Cache(rankings=()).declaration == "Cache()"
    views = [
        ranked(),
        ranked(Ranking("number")),
        ranked(Ranking("-number")),
        ranked(Ranking("-number", within=("at",))),
        ranked(Ranking("-number"), Ranking("at")),
    ]
    assert len({view.fingerprint for view in views}) == len(views)
    assert "Cache(rankings=['-number/at'])" in views[3].declaration


INEXACT = (2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2, 2**63 - 1, 2**64 - 1)
INTEGERS = sorted({sign * each for each in (*INEXACT, 0, 1, 2**62, 2**62 + 1, 2**63, 2**63 + 1) for sign in (1, -1)})


@pytest.mark.parametrize("sort", ["number", "-number"])
def test_integers_are_in_their_exact_order(sort: str) -> None:
    ranking = Ranked(Ranking(sort), ColumnType.INTEGER)
    places = [ranking.place(number, key) for number in INTEGERS for key in ("", "a", "b")]
    in_order = [(number, key) for number in INTEGERS for key in ("", "a", "b")]
    by_place = [each for _, each in sorted(zip(places, in_order, strict=True), key=lambda pair: pair[0])]
    assert by_place == sorted(in_order, key=lambda pair: (-pair[0] if ranking.ranking.descending else pair[0], pair[1]))
    for place, (number, key) in zip(places, in_order, strict=True):
        read = ranking.read(place.member, place.score)
        exact = None if abs(number) < 2**53 else -number if ranking.ranking.descending else number
        assert (read.key, read.exact) == (key, exact)
    assert ranking.place(7.0, "a") == ranking.place(7, "a"), "JSON may have a whole number in either form"
    for wrong in ("7", 7.5, [7]):
        with pytest.raises(TypeError):
            ranking.place(wrong, "a")


@pytest.mark.parametrize("sort", ["price", "-price"])
def test_decimals_are_in_their_exact_order(sort: str) -> None:
    ranking = Ranked(Ranking(sort), ColumnType.decimal(38, 10))
    edges = (0, 1, 2**53 - 1, 2**53, 2**53 + 1, 2**64, 10**37, 10**38 - 2, 10**38 - 1)
    texts = [decimal_text(EXACT.scaleb(Decimal(sign * edge), -10), 10) for edge in edges for sign in (1, -1)]
    places = {text: ranking.place(text, "k") for text in texts}
    in_order = sorted(places, key=Decimal, reverse=ranking.ranking.descending)
    assert sorted(places, key=lambda text: (places[text].score, places[text].member)) == in_order
    for text, place in places.items():
        assert ranking.read(place.member, place.score).key == "k"
        assert ranking.place(Decimal(text), "k") == place


def test_a_date_is_its_day_in_any_form() -> None:
    ranking = Ranked(Ranking("due"), ColumnType.DATE)
    assert ranking.place("2026-03-01", "a") == ranking.place(date(2026, 3, 1), "a")
    assert ranking.place("1969-12-31", "a").score + 1 == ranking.place("1970-01-01", "a").score


def test_a_member_that_others_wrote_is_shown_as_it_is() -> None:
    ranking = Ranked(Ranking("number"), ColumnType.INTEGER)
    for member in (b"", b"a", b"not by Headwater", bytes(9)):
        assert ranking.read(member, 2.0**60).exact is None


@pytest.mark.parametrize("sort", ["weight", "-weight"])
@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_a_number_that_json_does_not_have_is_last_like_a_null(sort: str, value: float | None) -> None:
    ranking = Ranked(Ranking(sort), ColumnType.FLOAT)
    assert ranking.place(value, "ä") == (math.inf, "ä".encode())
    assert ranking.place(1e308, "a") < ranking.place(value, "")
    assert ranking.place(-1e308, "a") < ranking.place(value, "")


def test_a_time_is_its_milliseconds_in_any_form() -> None:
    ranking = Ranked(Ranking("-at"), ColumnType.TIME)
    time = datetime(2026, 1, 1, tzinfo=UTC)
    assert (
        ranking.place("2026-01-01T00:00:00.000Z", "a") == ranking.place(time, "a") == (-time.timestamp() * 1000, b"a")
    )
    assert ranking.place("9999-12-31T23:59:59.999Z", "a").score == -253402300799999.0
    with pytest.raises(TypeError):
        ranking.place("2026-01-01T00:00:00", "a")


def test_only_what_changes_is_written() -> None:
    ranking = Ranked(Ranking("-number"), ColumnType.INTEGER)
    one, same, more = ranking.place(1, "a"), ranking.place(1, "a"), ranking.place(2, "a")
    large, other = ranking.place(2**60, "a"), ranking.place(2**60 + 1, "a")
    assert list(changed_places({"set": one}, {"set": same})) == []
    assert list(changed_places({"set": one}, {"set": more})) == [("set", -2.0, b"a")]
    assert list(changed_places({"set": one}, {"new": one})) == [("set", "", b"a"), ("new", -1.0, b"a")]
    assert list(changed_places({"set": large}, {"set": other})) == [
        ("set", "", large.member),
        ("set", other.score, other.member),
    ]
    assert list(changed_places({"set": one}, {})) == [("set", "", b"a")]


def test_rankings_go_to_executors_with_the_writer() -> None:
    (ranking,) = ranked_of(ranked(Ranking("-number", within=("at", "open"))))
    assert pickle.loads(pickle.dumps(ranking)) == ranking
    assert ranking.group(["2026-01-01T00:00:00.000Z", True]) == ranking.group([datetime(2026, 1, 1, tzinfo=UTC), True])
    assert ranking.group([None, True]) is None
