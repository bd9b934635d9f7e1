"""The sample `saved_searches`: searches that are saved, changed and deleted, and homes that are offered."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import acos, cos, degrees, radians, sin
from typing import Any, Final

from headwater.compose.samples.observed import SENT_WITHIN, row_key
from headwater.compose.samples.sample import Client, Deployment, Request, Sample, settled, wait_until
from headwater.compose.samples.stored_rows import Rows, cached, differences, table

KM_PER_DEGREE: Final = 111.195

Values = dict[str, Any]


@dataclass(frozen=True)
class Change:
    """One thing that happens. kind: "save", "change", "delete" or "offer"."""

    kind: str
    data: Mapping[str, Any]

    @property
    def request(self) -> Request:
        """The request that says so. An offer has no time: it is that of its arrival, as of a command."""
        if self.kind != "offer":
            return Request(f"saved_search.{self.kind}", dict(self.data))
        body = {"id": self.data["id"], "source": "agent", "data": {k: v for k, v in self.data.items() if k != "id"}}
        return Request("home_offered", body, is_observation=True)


def alerts(changes: Iterable[Change]) -> Rows:
    """The rows of `search_alerts`, without their times, if these things happen one after another."""
    searches: dict[str, Values] = {}
    found: Rows = {}
    for each in changes:
        match each.kind:
            case "save":
                searches[each.data["search_id"]] = dict(each.data)
            case "change":
                id_ = each.data["search_id"]
                searches[id_] = {"city": searches[id_]["city"], **each.data}
            case "delete":
                del searches[each.data["search_id"]]
            case _:
                for id_, search in searches.items():
                    if is_found(search, each.data):
                        offer = f"home_offered/agent/{each.data['id']}"
                        row = {name: each.data[name] for name in ("home", "city", "price", "beds")}
                        found[row_key(id_, offer)] = {"search": id_, "offer": offer, **row}
    return found


def is_found(search: Mapping[str, Any], offer: Mapping[str, Any]) -> bool:
    """Whether a search finds a home."""
    words = offer["description"].casefold().replace(",", " ").split()
    return (
        search["city"] == offer["city"]
        and search.get("min_price", 0) <= offer["price"] <= search.get("max_price", 10**12)
        and search.get("beds", 0) <= offer["beds"]
        and all(each.casefold() in words for each in search.get("words", "").split())
        and ("within_km" not in search or _kilometres(search, offer) <= search["within_km"])
    )


def _kilometres(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """By the spherical law of cosines."""
    here, there = radians(one["latitude"]), radians(other["latitude"])
    apart = cos(radians(one["longitude"] - other["longitude"]))
    angle = acos(min(1.0, sin(here) * sin(there) + cos(here) * cos(there) * apart))
    return degrees(angle) * KM_PER_DEGREE


SEED: Final = 3
SEARCHES: Final = 60
HOMES: Final = 40
CITIES: Final = {"Linz": (48.3, 14.29), "Graz / West": (47.07, 15.42)}
WORDS: Final = ("Balcony", "garden", "quiet", "lift", "garage", "Süden")
PLACE: Final = ("latitude", "longitude", "within_km")
VIEW: Final = "search_alerts"
FINAL_AFTER: Final = timedelta(minutes=3, seconds=5)
"""Its `late_after`, two minutes, and the five seconds whose rows Spark passes on together."""


def wanted(chance: random.Random, city: str) -> Values:
    """What a search looks for in a city."""
    found: Values = {"beds": chance.randrange(4)}
    if chance.random() < 0.7:
        found["min_price"] = chance.randrange(100_000, 400_000, 50_000)
        found["max_price"] = found["min_price"] + chance.randrange(0, 300_000, 50_000)
    if chance.random() < 0.4:
        found["words"] = " ".join(chance.sample(WORDS, chance.randrange(1, 3))).upper()
    if chance.random() < 0.4:
        latitude, longitude = place(chance, city)
        found |= {"latitude": latitude, "longitude": longitude, "within_km": chance.choice((0.5, 2.0, 5.0, 20.0))}
    return found


def place(chance: random.Random, city: str) -> tuple[float, float]:
    """A place in a city."""
    latitude, longitude = CITIES[city]
    return round(latitude + chance.uniform(-0.05, 0.05), 5), round(longitude + chance.uniform(-0.05, 0.05), 5)


def home(chance: random.Random, name: str, id_: str) -> Change:
    """An offer of a home; the city goes with its name."""
    city = list(CITIES)[len(name) % 2]
    latitude, longitude = place(chance, city)
    data = {
        "id": id_,
        "home": name,
        "city": city,
        "price": chance.randrange(100_000, 600_000, 10_000),
        "beds": chance.randrange(1, 5),
        "description": ", ".join(chance.sample(WORDS, 3)),
        "latitude": latitude,
        "longitude": longitude,
    }
    return Change("offer", data)


def rounds(chance: random.Random) -> list[list[Change]]:
    """Rounds of changes; those of one round may happen in any order."""
    cities = {f"search-{number}": chance.choice(list(CITIES)) for number in range(SEARCHES)}
    ids = list(cities)
    saved = [Change("save", {"search_id": id_, "city": city, **wanted(chance, city)}) for id_, city in cities.items()]
    names = [f"home-{'x' * (number % 2)}{number:02}" for number in range(HOMES)]
    changed = [Change("change", {"search_id": id_, **wanted(chance, cities[id_])}) for id_ in ids[:20]]
    deleted = [Change("delete", {"search_id": id_}) for id_ in ids[20:40]]
    return [
        saved,
        [home(chance, name, f"first-{name}") for name in names],
        [*changed, *deleted],
        [home(chance, name, f"second-{name}") for name in names[::2]],
        [Change("save", {"search_id": id_, "city": cities[id_], **wanted(chance, cities[id_])}) for id_ in ids[20:30]],
        [home(chance, name, f"third-{name}") for name in [*names[1::2], "home-0", "home-00"]],
    ]


class SavedSearches(Sample):
    """Searches and homes, as they were sent."""

    things = "searches"
    number = SEARCHES
    views = (VIEW,)

    def __init__(self) -> None:
        self._happened: list[Change] = []
        self._final = frozenset[str]()

    def rounds(self) -> Sequence[Sequence[Request]]:
        found = rounds(random.Random(SEED))
        self._happened = [each for changes in found for each in changes]
        return [[each.request for each in changes] for changes in found]

    async def trade(self, client: Client, number: int) -> None:
        name = f"traded-{number}"
        offer = home(random.Random(name), name, name)  # in a city of its own
        for each in (
            Change("save", {"search_id": name, "city": name}),
            Change("offer", {**offer.data, "city": name}),
        ):
            self._happened.append(each)
            await client.send(each.request)

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


sample: Final = SavedSearches


TO_TRY: Final[tuple[tuple[str, str], ...]] = (
    ("homes that saved searches have found", "curl -sS '{api}/views/search_alerts?sort=-offered_at&limit=3'"),
    (
        "save a search",
        "curl -sS -X POST {api}/commands/saved_search.save -H 'content-type: application/json' "
        '-d \'{{"search_id": "mine", "city": "Linz", "max_price": 300000, "words": "balcony"}}\'',
    ),
    (
        "offer a home",
        "curl -sS -X POST {api}/observations/home_offered -H 'content-type: application/json' "
        '-d \'{{"id": "mine-1", "source": "me", "data": {{"home": "mine", "city": "Linz", "price": 250000, '
        '"beds": 2, "description": "With a balcony.", "latitude": 48.3, "longitude": 14.29}}}}\'',
    ),
    ("what the search has found", "curl -sS '{api}/views/search_alerts?search=mine&limit=3'"),
)
"""What each does, and its command."""
