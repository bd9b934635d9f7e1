"""The sample `saved_searches`: searches that are saved, changed and deleted, and homes that are offered."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headwater.compose.samples.sample import Request, Sample

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


SEED: Final = 3
SEARCHES: Final = 60
HOMES: Final = 40
CITIES: Final = {"Linz": (48.3, 14.29), "Graz / West": (47.07, 15.42)}
WORDS: Final = ("Balcony", "garden", "quiet", "lift", "garage", "Süden")
PLACE: Final = ("latitude", "longitude", "within_km")


def wanted(chance: random.Random, city: str) -> Values:
    """What a search looks for in a city."""
    values: Values = {"beds": chance.randrange(4)}
    if chance.random() < 0.7:
        values["min_price"] = chance.randrange(100_000, 400_000, 50_000)
        values["max_price"] = values["min_price"] + chance.randrange(0, 300_000, 50_000)
    if chance.random() < 0.4:
        values["words"] = " ".join(chance.sample(WORDS, chance.randrange(1, 3))).upper()
    if chance.random() < 0.4:
        latitude, longitude = place(chance, city)
        values |= {"latitude": latitude, "longitude": longitude, "within_km": chance.choice((0.5, 2.0, 5.0, 20.0))}
    return values


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
    """Searches and homes."""

    def loading(self) -> Sequence[Sequence[Request]]:
        return [[change.request for change in changes] for changes in rounds(random.Random(SEED))]


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
