"""Columns looked up in other views: homes in each real store, in cities of each, read over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from confluent_kafka import KafkaError, Message

from headwater.eventlog.envelope import Envelope, Position, encode, partition_of, timestamp_ms
from headwater.eventlog.topics import EVENTS
from headwater.projections.kinds import table_view
from headwater.projections.reading import reader
from headwater.projections.stores.open import open_store
from headwater.projections.stores.store import Target
from headwater.projections.table.expressions import Source
from tests.integration.api.api_deployment import Deployment, serving
from tests.integration.api.api_rows import batches_of, every_row, load_view
from tests.support.looked_up import CITIES
from tests.support.ordered_producer import check_stored, ordered_producer, stored
from tests.support.table_views import table_views

STORES = ("postgres", "elasticsearch", "valkey")
STRANGE = "Zürich/West 100%"
HOMES = {"H1": "GALT", "H2": STRANGE, "H3": "GALT", "H4": "SOLD OUT", "ü/5": "UNKNOWN", "H6": STRANGE}
NUL = "N\0L"


class World:
    """Homes and cities in every store, over events that are in the log."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._producer = ordered_producer(deployment.log.bootstrap)
        self._happened = 0
        listed = [self.listed(key, city) for key, city in HOMES.items()]
        data = {"sold_for": 1, "price": 1, "square_feet": 500}
        self.sources = [*listed, self.happened("H4", 2, "listing.sold", city="SOLD OUT", **data)]
        known = [source for source in self.sources if source.envelope.data["city"] != "UNKNOWN"]
        views = table_views(["listings", "tests.support.looked_up"])
        names = [f"homes_in_{store}" for store in STORES] + [f"cities_in_{name}" for name in CITIES]
        self.known = {name: self.sources if name.startswith("homes") else known for name in names}
        self.targets = {name: load_view(deployment, views[name], self.known[name]) for name in names}

    def listed(self, key: str, city: str) -> Source:
        place = {"latitude": 38.5, "longitude": -121.25, "description": key}
        size = {"zip": "z95815", "property_type": "Condo", "beds": 1, "baths": 1.5, "square_feet": 500}
        return self.happened(key, 1, "listing.listed", city=city, price=100 + self._happened, **size, **place)

    def happened(self, key: str, version: int, kind: str, **data: Any) -> Source:
        """Append an event, each later than the one before."""
        self._happened += 1
        stream, time = f"listing/{key}", datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self._happened)
        envelope = Envelope(f"{stream}/{version}", kind, stream, time, {"listing_id": key} | data, sequence=version)
        partition, value = partition_of(stream, 4), encode(envelope)
        offsets: list[int] = []

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            check_stored(error, message)
            offsets.append(message.offset() or 0)

        topic, time_ms = self._deployment.log.topic(EVENTS), timestamp_ms(time)
        self._producer.produce(topic, value, envelope.id, partition, on_delivery=on_delivery, timestamp=time_ms)
        stored(self._producer)
        return Source(envelope, Position(partition, offsets[0]), time_ms, value.decode())

    def apply(self, name: str, source: Source) -> None:
        """Let one view alone take in one more event, in all its stores."""
        target: Target = self.targets[name]
        for declared in target.view.stores:
            store = open_store(declared.name, self._deployment.stores)
            store.apply([target], batches_of(table_view(target.view), [source], 1_000 + self._happened))
            store.close()
        self.known[name] = [*self.known[name], source]

    def rows(self, store: str) -> dict[str, dict[str, Any]]:
        """The homes in a store, as the reference folds them and the cities, and looks them up."""
        homes = self.folded(f"homes_in_{store}")
        cities = {name: self.folded(f"cities_in_{name}") for name in CITIES}
        for row in homes.values():
            for name, known in cities.items():
                city = known.get(row["city"], {})
                row |= {f"{name}_{column}": city.get(column) for column in ("listed", "price")}
        return homes

    def folded(self, name: str) -> dict[str, dict[str, Any]]:
        return reader.fold(table_view(self.targets[name].view), self.known[name])


@pytest.fixture(scope="module")
def world(deployment: Deployment) -> World:
    return World(deployment)


@pytest.fixture(scope="module")
def api(deployment: Deployment, world: World) -> Iterator[httpx.Client]:
    with serving(deployment, HEADWATER_MODULES="listings,tests.support.looked_up") as client:
        yield client


@pytest.mark.parametrize("store", STORES)
def test_every_row_by_its_key(api: httpx.Client, world: World, store: str) -> None:
    rows = world.rows(store)
    assert {key for key, row in rows.items() if row["valkey_price"] is None} == {"H4", "ü/5"}, "one sold, one unknown"
    for key, row in rows.items():
        assert api.get(f"/views/homes_in_{store}/{quote(key, safe='')}").json() == row
    found = api.get(f"/views/homes_in_{store}/rows", params={"key": [*rows, "nobody", "H1"]}).json()["rows"]
    assert found == [*rows.values(), None, rows["H1"]]


@pytest.mark.parametrize("path", ["homes_in_postgres", "homes_in_elasticsearch", "homes_in_elasticsearch/search"])
def test_every_page(api: httpx.Client, world: World, path: str) -> None:
    rows = world.rows(path.partition("/")[0].removeprefix("homes_in_"))
    ordered = sorted(rows.values(), key=lambda row: (-row["price"], row["listing_id"]))
    api.get(f"/views/{path}?after={world.sources[-1].position}&limit=1")  # a search is refreshed then
    assert every_row(api, f"/views/{path}?sort=-price") == ordered
    names = ("both_price", "elasticsearch_listed")
    some = [{name: row[name] for name in names} for row in ordered]
    assert every_row(api, f"/views/{path}?sort=-price&limit=4&fields={','.join(names)}") == some


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("cities", CITIES)
def test_after_waits_for_both(api: httpx.Client, world: World, store: str, cities: str) -> None:
    home = f"{store}/{cities}"
    listed = world.listed(home, "GALT")
    path = f"/views/homes_in_{store}/{quote(home, safe='')}?after={listed.position}&wait_ms=0"
    asked = f"{path}&fields=price,{cities}_price"
    behind = []
    for name in (f"homes_in_{store}", f"cities_in_{cities}"):
        answer = api.get(asked)
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:headwater:problem:not_caught_up")
        behind.append(answer.json()["detail"].split('"')[1])
        world.apply(name, listed)
    assert behind == [f"homes_in_{store}", f"cities_in_{cities}"]
    price = listed.envelope.data["price"]
    assert api.get(asked).json() == {"price": price, f"{cities}_price": price}


def test_a_key_that_postgresql_cannot_hold(api: httpx.Client, world: World) -> None:
    listed = world.listed("of NUL", NUL)
    for name in ("homes_in_valkey", "cities_in_postgres", "cities_in_valkey"):
        world.apply(name, listed)
    row = api.get("/views/homes_in_valkey/of NUL?fields=city,postgres_listed,valkey_listed,both_listed").json()
    assert row == {"city": NUL, "postgres_listed": 1, "valkey_listed": 1, "both_listed": None}
