"""What the sample `saved_searches` expects, at the edges of its rules, and what its demo sends."""

from __future__ import annotations

import random
from typing import Any

import orjson
import pytest

from headwater.commands.codec import read_command
from headwater.commands.declaring.observation import ObservationRegistry
from headwater.commands.declaring.registry import CommandRegistry
from headwater.compose.samples.saved_searches import SEARCHES, Change, rounds
from tests.samples.saved_searches import CheckedSavedSearches, alerts, is_found

HOME: dict[str, Any] = {
    "id": "1", "home": "h", "city": "Linz", "price": 200_000, "beds": 2, "description": "Quiet, Süden",
    "latitude": 48.3, "longitude": 14.3,
}  # fmt: skip


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ({}, True),
        ({"city": "Graz"}, False),
        ({"min_price": 200_000, "max_price": 200_000, "beds": 2}, True),
        ({"min_price": 200_001}, False),
        ({"max_price": 199_999}, False),
        ({"beds": 3}, False),
        ({"words": "SÜDEN quiet"}, True),
        ({"words": "quiet lift"}, False),
        ({"latitude": 48.301, "longitude": 14.3, "within_km": 0.12}, True),
        ({"latitude": 48.301, "longitude": 14.3, "within_km": 0.1}, False),
    ],
)
def test_what_a_search_finds(search: dict[str, Any], found: bool) -> None:
    assert is_found({"city": "Linz"} | search, HOME) is found


def test_an_alert_stays_and_each_offer_has_its_own() -> None:
    save = Change("save", {"search_id": "s/1", "city": "Linz", "max_price": 200_000})
    offers = [Change("offer", {**HOME, "id": f"{price}", "price": price}) for price in (200_000, 150_000, 300_000)]
    before, after = (Change("offer", {**HOME, "id": name}) for name in ("before", "after"))
    found = alerts([before, save, *offers, Change("delete", {"search_id": "s/1"}), after])
    home = {"search": "s/1", "home": "h", "city": "Linz", "beds": 2}
    assert found == {
        f"s%2F1/home_offered%2Fagent%2F{price}": {**home, "offer": f"home_offered/agent/{price}", "price": price}
        for price in (200_000, 150_000)
    }


def test_what_the_demo_sends_is_accepted() -> None:
    sample, commands = CheckedSavedSearches(), CommandRegistry.load(["saved_searches"])
    observed = ObservationRegistry.load(["saved_searches"])
    sent = [request for requests in sample.rounds() for request in requests]
    for request in sent:
        if request.is_observation:
            observed.read(request.type, orjson.dumps(request.body))
        else:
            read_command(commands.command(request.type), request.body)
    assert {event.type for event in sent} == {*commands.commands, "home_offered"}
    assert sample.number == SEARCHES
    assert alerts(sample._happened)
    kinds = [{change.kind for change in changes} for changes in rounds(random.Random(1))]
    assert all(kind == {"offer"} or "offer" not in kind for kind in kinds), "searches and offers are never in one round"
