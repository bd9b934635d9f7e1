"""Rows by key over HTTP: any key, some columns, and whichever store answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headwater.api import reading
from headwater.api.app import create_app
from headwater.api.service import Service
from headwater.eventlog.envelope import Position
from headwater.projections.errors import StoreUnavailable
from headwater.projections.stores.declared import Cache, Postgres
from tests.support.table_views import table_views
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import FakeService, MemoryReader, event

ROW = {"listing_id": "L1", "city": "GALT", "price": 1}


@pytest.mark.parametrize("key", ["search", "changes", "rows", "", ".", "..", "a/b ü", "%2F", "\n"])
def test_any_key_can_be_asked_for(client: AppClient, service: FakeService, key: str) -> None:
    reader = service.readers["elasticsearch"]
    reader.rows["listing_search"] = {key: {"listing_id": key, "city": "GALT"}}
    answer = client.get("/views/listing_search/rows", params={"key": key})
    assert (answer.status_code, answer.json()) == (200, {"rows": [{"listing_id": key, "city": "GALT"}]})
    assert answer.headers["headwater-generation"] == "1"


def test_several_keys_in_their_order(client: AppClient, stored: MemoryReader) -> None:
    answer = client.get("/views/listings/rows?key=L2&key=nobody&key=L1&key=L2&fields=listing_id,price")
    first = {"listing_id": "L2", "price": 1}
    assert answer.json() == {"rows": [first, None, {"listing_id": "L1", "price": 3}, first]}


@pytest.mark.parametrize(
    ("path", "parameter"),
    [
        ("/views/listings/rows", "key"),
        ("/views/listings/rows?" + "&".join(f"key={n}" for n in range(101)), "key"),
        ("/views/listings/rows?key=%00", "key"),
        ("/views/listings/rows?key=L1&city=GALT", "city"),
        ("/views/listings/rows?key=L1&fields=town", "fields"),
        ("/views/listings/rows?key=L1&after=x", "after"),
        ("/views/listings/L1?fields=", "fields"),
        ("/views/listings?fields=price,", "fields"),
        ("/views/listings?fields=price&fields=city", "fields"),
        ("/views/listing_search/search?highlight=true", "highlight"),
        ("/views/listing_search/search?q=x&highlight=yes", "highlight"),
    ],
)
def test_wrong_parameters(client: AppClient, path: str, parameter: str) -> None:
    problem = client.get(path).json()
    assert (problem["status"], problem["parameter"]) == (422, parameter), problem


def test_some_columns(client: AppClient, stored: MemoryReader) -> None:
    assert client.get("/views/listings/L1?fields=price,city,price").json() == {"price": 3, "city": "GALT"}
    found, path = [], "/views/listings?fields=city&sort=price&limit=2"
    while path:
        page = client.get(path).json()
        found += page["rows"]
        path = page["links"].get("next")
    assert found == [{"city": city} for city in ("GALT", "LODI", "GALT", "ELK GROVE", "LODI")]


def test_a_search_tells_how_each_row_matches(client: AppClient, service: FakeService) -> None:
    reader = service.readers["elasticsearch"]
    reader.rows["listing_search"] = {"L1": {"listing_id": "L1"}}
    assert client.get("/views/listing_search/search?q=x&highlight=true").json()["matches"] == [{"score": 1.0}]


@pytest.fixture
def cached(service: FakeService, stored: MemoryReader) -> FakeService:
    """The view `listings`, in PostgreSQL and in the cache."""
    view = replace(table_views()["listings"], stores=(Postgres(), Cache()))
    cache = service.readers["valkey"]
    cache.rows["listings"] = {"L1": {"listing_id": "L1", "city": "cached"}}
    object.__setattr__(service, "views", {**service.views, "listings": view})
    return service


def test_a_key_is_looked_up_in_the_cache(cached: Service) -> None:
    client = AppClient(create_app(cached))
    assert client.get("/views/listings/L1").json()["city"] == "cached"
    assert client.get("/views/listings/rows?key=L1").json()["rows"][0]["city"] == "cached"
    assert client.get("/views/listings?listing_id=L1").json()["rows"][0]["city"] == "GALT"


def test_where_the_cache_is_away_another_store_answers(
    cached: FakeService, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = AppClient(create_app(cached))
    cache = cached.readers["valkey"]
    cache.errors = [StoreUnavailable("Valkey", "refused")]
    answer = client.get("/views/listings/L1")
    assert (answer.status_code, answer.json()["city"]) == (200, "GALT")
    assert "reading from another store, valkey is unavailable: Valkey is unavailable: refused" in caplog.text
    assert client.get("/views/listings/L1").json()["city"] == "GALT", "it is asked again after a while only"
    monkeypatch.setattr(reading, "AWAY_S", 0.0)
    cache.errors = [StoreUnavailable("Valkey", "refused")]
    client = AppClient(create_app(cached))
    assert [client.get("/views/listings/L1").json()["city"] for _ in range(2)] == ["GALT", "cached"]


def test_where_every_store_is_away_it_is_said(cached: FakeService) -> None:
    for name in ("valkey", "postgres"):
        reader = cached.readers[name]
        reader.errors = [StoreUnavailable(name, "refused") for _ in range(2)]
    client = AppClient(create_app(cached))
    for _ in range(2):
        assert client.get("/views/listings/L1").json()["type"] == "urn:headwater:problem:store_unavailable"


def test_after_waits_for_the_store_that_answers(cached: FakeService) -> None:
    at = Position(2, 100)
    events = cached.events
    events.events[at] = event(
        "listing/L1", 5, "listing.price_changed", listing_id="L1", city="x", price=1, previous_price=2
    )
    client = AppClient(create_app(cached))
    cache = cached.readers["valkey"]
    database = cached.readers["postgres"]
    cache.guards_of["L1"] = {"2": 100}
    assert client.get(f"/views/listings/L1?after={at}&wait_ms=0").json()["city"] == "cached"
    cache.errors = [StoreUnavailable("Valkey", "refused")]
    assert client.get(f"/views/listings/L1?after={at}&wait_ms=0").status_code == 503
    database.applied = {partition: {"2": 100} for partition in range(4)}
    assert client.get(f"/views/listings/L1?after={at}&wait_ms=0").json()["city"] == "GALT"
