"""The sample `saved_searches`, checked: the alerts that its homes must give."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import acos, cos, degrees, radians, sin
from typing import Any, Final

from headwater.compose.samples.sample import Client, Deployment, Request
from headwater.compose.samples.saved_searches import SEARCHES, SEED, Change, SavedSearches, Values, home, rounds
from tests.samples.checked import CheckedSample, settled, wait_until
from tests.samples.observed import SENT_WITHIN, row_key
from tests.samples.stored_rows import Rows, cached, differences, table

KM_PER_DEGREE: Final = 111.195


def alerts(changes: Iterable[Change]) -> Rows:
    """The rows of `search_alerts`, without their times, if these things happen one after another."""
    searches: dict[str, Values] = {}
    found: Rows = {}
    for change in changes:
        match change.kind:
            case "save":
                searches[change.data["search_id"]] = dict(change.data)
            case "change":
                id_ = change.data["search_id"]
                searches[id_] = {"city": searches[id_]["city"], **change.data}
            case "delete":
                del searches[change.data["search_id"]]
            case _:
                for id_, search in searches.items():
                    if is_found(search, change.data):
                        offer = f"home_offered/agent/{change.data['id']}"
                        row = {name: change.data[name] for name in ("home", "city", "price", "beds")}
                        found[row_key(id_, offer)] = {"search": id_, "offer": offer, **row}
    return found


def is_found(search: Mapping[str, Any], offer: Mapping[str, Any]) -> bool:
    """Whether a search finds a home."""
    words = offer["description"].casefold().replace(",", " ").split()
    return (
        search["city"] == offer["city"]
        and search.get("min_price", 0) <= offer["price"] <= search.get("max_price", 10**12)
        and search.get("beds", 0) <= offer["beds"]
        and all(word.casefold() in words for word in search.get("words", "").split())
        and ("within_km" not in search or _kilometres(search, offer) <= search["within_km"])
    )


def _kilometres(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """By the spherical law of cosines."""
    here, there = radians(one["latitude"]), radians(other["latitude"])
    apart = cos(radians(one["longitude"] - other["longitude"]))
    angle = acos(min(1.0, sin(here) * sin(there) + cos(here) * cos(there) * apart))
    return degrees(angle) * KM_PER_DEGREE


VIEW: Final = "search_alerts"
FINAL_AFTER: Final = timedelta(minutes=3, seconds=5)
"""Its `late_after`, two minutes, and the five seconds whose rows Spark passes on together."""


class CheckedSavedSearches(CheckedSample, SavedSearches):
    """Searches and homes, as they were sent."""

    things = "searches"
    number = SEARCHES
    views = (VIEW,)

    def __init__(self) -> None:
        self._happened: list[Change] = []
        self._final = frozenset[str]()

    def rounds(self) -> Sequence[Sequence[Request]]:
        found = rounds(random.Random(SEED))
        self._happened = [change for changes in found for change in changes]
        return [[change.request for change in changes] for changes in found]

    async def trade(self, client: Client, number: int) -> None:
        name = f"traded-{number}"
        offer = home(random.Random(name), name, name)  # in a city of its own
        for change in (
            Change("save", {"search_id": name, "city": name}),
            Change("offer", {**offer.data, "city": name}),
        ):
            self._happened.append(change)
            await client.send(change.request)

    async def mismatches(self, client: Client, deployment: Deployment) -> list[str]:
        """What was sent before the first call must be there; a row of a later offer may be final, or not yet."""
        await client.settle(self.rows)
        if not self._final:
            self._final = frozenset(alerts(self._happened))
            await wait_until(datetime.now(UTC) + FINAL_AFTER + SENT_WITHIN, VIEW)
        return await settled(lambda: self._differences(deployment))

    def _differences(self, deployment: Deployment) -> Iterator[str]:
        expected = alerts(self._happened)
        for stored in (table(deployment, VIEW, "key"), cached(deployment, VIEW)):
            due = {key: row for key, row in expected.items() if key in stored or key in self._final}
            yield from differences(VIEW, due, stored, "Python")


sample: Final = CheckedSavedSearches
