"""Which views a dead letter affects: they are rebuilt when it is retried."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from projections.registry import ViewRegistry
from projections.views.listings.listing_card import listing_card
from replay.dead_letters import _concerned
from tests.observed import gate_view

VIEWS = ViewRegistry([("here", gate_view()), ("here", gate_view(name="doors")), ("there", listing_card)])


@pytest.mark.parametrize(
    ("key", "record_key", "names"),
    [
        ("patches/postgres/gates@1.g12/batch/7/a/12:00", b"a/12:00", ["gates"]),
        ("patches/postgres/listing_card@1/0/5/0", b"L1", ["listing_card"]),
        ("patches/0/17", b"doors@1.g1/a/12:00", ["doors"]),
        ("patches/0/17", b"nobody@1/a", ["gates", "doors", "listing_card"]),
        ("events/0/17", b"listing/L1/1", ["listing_card"]),
    ],
)
def test_the_views_of_a_letter(key: str, record_key: bytes, names: list[str]) -> None:
    deployment: Any = SimpleNamespace(views=VIEWS)
    letter: Any = SimpleNamespace(key=record_key, value=b"no event")
    assert [view.name for view in _concerned(deployment, key, letter)] == names
