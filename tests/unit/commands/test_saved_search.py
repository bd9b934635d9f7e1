"""A saved search: what is refused, and what a change does."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.samples.saved_searches.domain import (
    Change,
    Delete,
    Save,
    SearchChanged,
    SearchDeleted,
    SearchSaved,
    saved_search,
)
from headwater.testing import given

ANY: dict[str, Any] = {
    "min_price": None, "max_price": None, "beds": 0, "words": "", "latitude": None, "longitude": None,
    "within_km": None,
}  # fmt: skip
SAVED = SearchSaved(search_id="s", city="Linz", **ANY)
DELETED = SearchDeleted(search_id="s", city="Linz")


def test_a_search_is_saved_changed_deleted_and_saved_again() -> None:
    given(saved_search).when(Save(search_id="s", city="Linz")).then(SAVED)
    changed = SearchChanged(search_id="s", city="Linz", **ANY | {"beds": 2})
    given(saved_search, SAVED).when(Change(search_id="s", beds=2)).then(changed)
    given(saved_search, SAVED, changed).when(Change(search_id="s", beds=2)).then()
    given(saved_search, SAVED, changed).when(Delete(search_id="s")).then(DELETED)
    again = SearchSaved(search_id="s", city="Graz", **ANY)
    given(saved_search, SAVED, DELETED).when(Save(search_id="s", city="Graz")).then(again)


@pytest.mark.parametrize(
    ("before", "command", "code"),
    [
        ([SAVED], Save(search_id="s", city="Linz"), "already_saved"),
        ([], Change(search_id="s", beds=1), "not_saved"),
        ([SAVED, DELETED], Delete(search_id="s"), "not_saved"),
        ([], Save(search_id="s", city="Linz", min_price=2, max_price=1), "no_such_price"),
        ([SAVED], Change(search_id="s", latitude=1.0, longitude=2.0), "no_such_place"),
        ([], Save(search_id="s", city="Linz", within_km=2.0), "no_such_place"),
    ],
)
def test_what_is_refused(before: list[Any], command: Any, code: str) -> None:
    given(saved_search, *before).when(command).then_rejected(code)
