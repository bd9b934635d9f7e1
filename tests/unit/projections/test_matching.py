"""Searches behind an index find what a look at all of them finds."""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.samples.saved_searches.matching import cells_of_home, found, matches, with_search, words_of
from tests.support.seeds import examples

latitudes, longitudes = (st.one_of(st.sampled_from(edges), st.floats(-limit, limit)) for edges, limit in (
    ([48.3, 48.31, -90.0, 90.0, 0.0], 90),
    ([14.2, 14.21, 180.0, -180.0, 0.0], 180),
))  # fmt: skip
prices = st.one_of(st.sampled_from([0, 1, 2, 3, 4, 7, 8, 100, 127, 128, 10**10]), st.integers(0, 10**10))
words = st.lists(st.sampled_from(["Lift", "lift", "Süd-Ost", "garden", ""]), max_size=3).map(", ".join)


class Home(NamedTuple):
    """What matching reads of an offer."""

    price: int
    beds: int
    description: str | None
    latitude: float
    longitude: float


homes = st.builds(Home, prices, st.integers(0, 4), st.one_of(st.none(), words), latitudes, longitudes)
distances = st.one_of(st.just(None), st.sampled_from([0.001, 1.0, 5.0, 499.9]))


@st.composite
def searches(draw: st.DrawFn) -> list[Any]:
    lowest, highest = draw(st.one_of(st.none(), prices)), draw(st.one_of(st.none(), prices))
    within_km = draw(distances)
    place = [None, None] if within_km is None else [draw(latitudes), draw(longitudes)]
    return [lowest, highest, draw(st.integers(0, 4)), words_of(draw(words)), *place, within_km]


changes = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.one_of(st.none(), searches())), max_size=20)


@given(changes, st.lists(homes, max_size=10))
@settings(max_examples=examples(50))
def test_the_index_finds_what_a_look_at_all_searches_finds(
    made: list[tuple[str, list[Any] | None]], offered: list[Home]
) -> None:
    state: dict[str, Any] = {"searches": {}, "index": {}}
    kept = dict[str, list[Any]]()
    for id_, search in made:
        state = orjson.loads(orjson.dumps(with_search(state, id_, search)))
        kept.pop(id_, None)
        if search is not None:
            kept[id_] = search
    near = [home._replace(latitude=each[4], longitude=each[5]) for home in offered for each in kept.values() if each[6]]
    for home in (*offered, *near):
        expected = [id_ for id_ in sorted(kept) if matches(kept[id_], home, set(words_of(home.description or "")))]
        assert list(found(state, home)) == expected


def test_an_index_of_no_searches_is_empty() -> None:
    state: dict[str, Any] = {"searches": {}, "index": {}}
    search = [100_000, 400_000, 2, ["lift"], 48.3, 14.3, 2.0]
    assert with_search(with_search(state, "a", search), "a", None) == {"searches": {}, "index": {}}


def test_few_searches_are_looked_at() -> None:
    """Of searches with a place, a word or a price, a home's cells have only some."""
    state: dict[str, Any] = {"searches": {}, "index": {}}
    for number in range(1_000):
        low = 100_000 + number * 500
        with_search(state, f"price-{number}", [low, low + 50_000, 2, [], None, None, None])
        with_search(state, f"place-{number}", [None, None, 0, [], 48.0 + number / 1_000, 14.0, 1.0])
    home = Home(300_000, 3, "lift", 48.5, 14.0)
    seen = list(found(state, home))
    assert 50 < len(seen) < 150
    looked_at = {each for cell in cells_of_home(home, {"lift"}) for each in state["index"].get(cell, ())}
    assert len(looked_at) < 400
