"""Searches of a city behind an index, as a value that JSON can hold; see `search_alerts`.

A search is `[min_price, max_price, beds, words, latitude, longitude, within_km]`, with None for what does not matter.
The index has each search in a few cells. The cells of a home have all searches that can match it, and some more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import asin, cos, floor, radians, sin, sqrt
from typing import Any, Final

EARTH_KM: Final = 6_371.0
KM_PER_DEGREE: Final = 111.0
"""Less than there are, so that no place at the edge is missed."""
CELLS_PER_DEGREE: Final = 20
MAX_CELLS: Final = 16
"""A search that would be in more cells is indexed by something else."""
WORD: Final = re.compile(r"\w+")


def words_of(text: str) -> list[str]:
    """Its different words, sorted."""
    return sorted(set(WORD.findall(text.casefold())))


def matches(search: list[Any], home: Any, words: set[str]) -> bool:
    """Whether a search finds a home. words: of its description."""
    lowest, highest, beds, wanted, latitude, longitude, within_km = search
    return (
        (lowest is None or home.price >= lowest)
        and (highest is None or home.price <= highest)
        and home.beds >= beds
        and words.issuperset(wanted)
        and (within_km is None or distance_km(latitude, longitude, home.latitude, home.longitude) <= within_km)
    )


def cells_of_search(search: list[Any]) -> list[str]:
    """Where the index has a search: by its place, else by its longest word, else by its price and beds."""
    lowest, highest, beds, words, latitude, longitude, within_km = search
    if within_km is not None and (around := _around(latitude, longitude, within_km)):
        return around
    if words:
        return [f"w{max(words, key=len)}"]
    if lowest is not None and highest is not None:
        steps = range(_price_step(lowest), _price_step(highest) + 1)
        if len(steps) <= MAX_CELLS:
            return [f"p{step}/{beds}" for step in steps]
    return [f"b{beds}"]


def cells_of_home(home: Any, words: set[str]) -> Iterator[str]:
    """Where the index has the searches that can find a home."""
    yield _place_cell(floor(home.latitude * CELLS_PER_DEGREE), floor(home.longitude * CELLS_PER_DEGREE))
    yield from (f"w{word}" for word in words)
    step = _price_step(home.price)
    for beds in range(home.beds + 1):
        yield f"p{step}/{beds}"
        yield f"b{beds}"


def found(state: Mapping[str, Any], home: Any) -> Iterator[str]:
    """The ids of the searches that find a home, sorted."""
    words = set(words_of(home.description or ""))
    searches, index = state["searches"], state["index"]
    candidates = {search for cell in cells_of_home(home, words) for search in index.get(cell, ())}
    yield from (candidate for candidate in sorted(candidates) if matches(searches[candidate], home, words))


def with_search(state: dict[str, Any], id_: str, search: list[Any] | None) -> dict[str, Any]:
    """The state after a search was saved or changed; None: after it was deleted."""
    searches, index = state["searches"], state["index"]
    for cell in cells_of_search(searches.pop(id_)) if id_ in searches else ():
        index[cell].remove(id_)
        if not index[cell]:
            del index[cell]
    if search is not None:
        searches[id_] = search
        for cell in cells_of_search(search):
            index.setdefault(cell, []).append(id_)
    return state


def distance_km(latitude: float, longitude: float, other_latitude: float, other_longitude: float) -> float:
    """The distance of two places, by the haversine formula."""
    here, there = radians(latitude), radians(other_latitude)
    half = sin((there - here) / 2) ** 2 + cos(here) * cos(there) * sin(radians(other_longitude - longitude) / 2) ** 2
    return 2 * EARTH_KM * asin(min(1.0, sqrt(half)))


def _around(latitude: float, longitude: float, within_km: float) -> list[str]:
    """The cells of all places within a distance; empty if they are too many, or at a pole or the date line."""
    north = within_km / KM_PER_DEGREE
    farthest = abs(latitude) + north
    if farthest >= 89:
        return []
    east = north / cos(radians(farthest))
    if abs(longitude) + east >= 180:
        return []
    rows = range(floor((latitude - north) * CELLS_PER_DEGREE), floor((latitude + north) * CELLS_PER_DEGREE) + 1)
    columns = range(floor((longitude - east) * CELLS_PER_DEGREE), floor((longitude + east) * CELLS_PER_DEGREE) + 1)
    if len(rows) * len(columns) > MAX_CELLS:
        return []
    return [_place_cell(row, column) for row in rows for column in columns]


def _place_cell(row: int, column: int) -> str:
    return f"@{row}/{column}"


def _price_step(price: int) -> int:
    """Four steps each time the price doubles; a higher price never has a lower step."""
    bits = price.bit_length()
    return bits * 4 + (price >> max(bits - 3, 0)) % 4
