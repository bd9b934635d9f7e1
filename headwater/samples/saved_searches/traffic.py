"""The sample `saved_searches`: searches that are saved, changed and deleted, and homes that are offered."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final

from headwater.compose.samples.observed import LOOK_AGAIN_S, SENT_WITHIN, console
from headwater.compose.samples.sample import Client, Deployment, Request, Sample, settled
from headwater.compose.samples.stored_rows import cached, differences, table

from .expected import Change, Values, alerts

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


class SavedSearches:
    """See Sample for the methods."""

    things = "searches"
    measured = 0
    views: Sequence[str] = (VIEW,)
    rows: Mapping[str, str] = {}

    def __init__(self) -> None:
        self._happened: list[Change] = []
        self._final = frozenset[str]()

    @property
    def number(self) -> int:
        return SEARCHES

    async def prepare(self, client: Client, deployment: Deployment) -> None:
        return

    def loading(self) -> Sequence[Mapping[str, Request]]:
        return [{f"load-{at}-{n}": request for n, request in enumerate(each)} for at, each in enumerate(self.rounds())]

    def rounds(self) -> Sequence[Sequence[Request]]:
        found = rounds(random.Random(SEED))
        self._happened = [each for changes in found for each in changes]
        return [[each.request for each in changes] for changes in found]

    async def change(self) -> None:
        return

    async def write_and_read(self, client: Client, number: int) -> tuple[float, str]:
        raise NotImplementedError  # its rows are final

    async def trade(self, client: Client, number: int) -> None:
        name = f"traded-{number}"
        for each in (Change("save", {"search_id": name, "city": name}), self._home(name)):
            await client.send(self._new(each).request)

    async def mismatches(self, client: Client, deployment: Deployment) -> list[str]:
        """What was sent before the first call must be there; a row of a later offer may be final, or not yet."""
        await client.settle(self.rows)
        if not self._final:
            self._final = frozenset(alerts(self._happened))
            wait_s = (FINAL_AFTER + SENT_WITHIN).total_seconds()
            console.print(f"waiting {wait_s:.0f} s until the rows of {VIEW} are final")
            await asyncio.sleep(wait_s)
        return await settled(lambda: self._differences(deployment), LOOK_AGAIN_S)

    def _home(self, name: str) -> Change:
        """A home in a city of its own."""
        chance = random.Random(name)
        offered = home(chance, name, name)
        return Change("offer", {**offered.data, "city": name})

    def _new(self, change: Change) -> Change:
        self._happened.append(change)
        return change

    def _differences(self, deployment: Deployment) -> Iterator[str]:
        expected = alerts(self._happened)
        for stored in (table(deployment, VIEW, "key"), cached(deployment, VIEW)):
            due = {key: row for key, row in expected.items() if key in stored or key in self._final}
            yield from differences(VIEW, due, stored, "Python")


def sample() -> Sample:
    """What `run` and `demo` send, and check."""
    return SavedSearches()


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
