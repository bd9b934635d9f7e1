"""Columns that are looked up in other views, over HTTP, with the stores in memory."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import orjson
import pytest

from headwater.api import reading
from headwater.api.changes.changed_rows import ChangedRows
from headwater.api.changes.patch_tail import Touch
from headwater.api.errors import NotCaughtUp
from headwater.api.guard.caller import ANYONE
from headwater.api.reading import GenerationGone, KeyReaders, Made, Row
from headwater.api.waiting.awaited import After
from headwater.eventlog.envelope import Position
from headwater.eventlog.source_positions import SourcePosition
from headwater.eventlog.topics import EVENTS
from headwater.projections.errors import StoreUnavailable
from tests.support.looked_up import CITIES
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import FakeService, MemoryReader, event, fake_service

AT = Position(2, 100)
GALT = {"city": "GALT", "listed": 2, "price": 300}


def home(key: str, city: str | None) -> Row:
    return {"listing_id": key, "city": city, "price": 1}


def shown(key: str, city: str | None) -> Row:
    """A home as it is answered: GALT is known in every store, no other city is anywhere."""
    known = GALT if city == "GALT" else {}
    found = [(f"{name}_{column}", known.get(column)) for name in CITIES for column in ("listed", "price")]
    return home(key, city) | dict(found)


HOMES = {"H1": "GALT", "H2": "LODI", "H3": "GALT", "H4": None}


@pytest.fixture
def service() -> FakeService:
    made = fake_service(modules=["listings", "tests.support.looked_up"])
    for store in ("postgres", "elasticsearch", "valkey"):
        reader(made, store).rows = {
            f"homes_in_{store}": {key: home(key, city) for key, city in HOMES.items()},
            f"cities_in_{store}": {"GALT": GALT},
            "cities_in_both": {"GALT": GALT},
        }
    return made


def reader(service: FakeService, store: str) -> MemoryReader:
    return service.readers[store]


def price_changed(service: FakeService) -> None:
    """The log has an event at AT that changes both H1 and GALT."""
    events = service.events
    data = {"listing_id": "H1", "city": "GALT", "price": 1, "previous_price": 2}
    events.events[AT] = event("listing/H1", 5, "listing.price_changed", **data)


def read_at_once(service: FakeService) -> dict[str, list[list[str]]]:
    """The keys that were read of each city view, read by read; and forget them."""
    found: dict[str, list[list[str]]] = {}
    for store in ("postgres", "elasticsearch", "valkey"):
        for view, keys in reader(service, store).many:
            if view.startswith("cities"):
                found.setdefault(view, []).append(keys)
        reader(service, store).many.clear()
    return found


@pytest.mark.parametrize("store", ["postgres", "elasticsearch", "valkey"])
def test_a_row_shows_what_is_looked_up(client: AppClient, store: str) -> None:
    for key, city in HOMES.items():
        assert client.get(f"/views/homes_in_{store}/{key}").json() == shown(key, city)
    rows = client.get(f"/views/homes_in_{store}/rows?key=H2&key=nobody&key=H1&key=H2").json()["rows"]
    assert rows == [shown("H2", "LODI"), None, shown("H1", "GALT"), shown("H2", "LODI")]


@pytest.mark.parametrize("path", ["homes_in_postgres", "homes_in_elasticsearch", "homes_in_elasticsearch/search"])
def test_a_page_takes_one_read_of_each_view_with_each_key_once(
    client: AppClient, service: FakeService, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.get(f"/views/{path}").json()["rows"] == [shown(key, city) for key, city in HOMES.items()]
    assert read_at_once(service) == {f"cities_in_{name}": [["GALT", "LODI"]] for name in CITIES}
    monkeypatch.setattr(reading, "FIRST_KEYS", 1)
    monkeypatch.setattr(reading, "MAX_KEYS_AT_ONCE", 1)
    assert client.get(f"/views/{path}").json()["rows"] == [shown(key, city) for key, city in HOMES.items()]
    assert read_at_once(service) == {f"cities_in_{name}": [["GALT"], ["LODI"]] for name in CITIES}


def test_only_what_is_asked_for_is_looked_up(client: AppClient, service: FakeService) -> None:
    path = "/views/homes_in_postgres"
    for asked in (f"{path}?fields=city,price", f"{path}/H1?fields=price", f"{path}/rows?key=H1&fields=city"):
        assert client.get(asked).status_code == 200
    assert client.get(f"{path}?city=nowhere").json()["rows"] == []
    assert client.get(f"{path}/H4").json()["both_price"] is None
    assert read_at_once(service) == {}
    page = client.get(f"{path}?fields=valkey_price,price&limit=2&sort=price").json()
    assert page["rows"] == [{"valkey_price": 300, "price": 1}, {"valkey_price": None, "price": 1}]
    assert client.get(page["links"]["next"]).json()["rows"][0] == {"valkey_price": 300, "price": 1}
    assert client.get(f"{path}/H1?fields=valkey_price").json() == {"valkey_price": 300}
    assert set(read_at_once(service)) == {"cities_in_valkey"}
    assert client.get(f"{path}?fields=berlin_price").json()["known"][-1] == "both_price"


@pytest.mark.parametrize("query", ["both_price=3", "both_price.gte=3", "both_price.x=3", "sort=-both_price"])
@pytest.mark.parametrize("path", ["homes_in_elasticsearch", "homes_in_elasticsearch/search"])
def test_no_filter_and_no_order_by_what_is_looked_up(client: AppClient, path: str, query: str) -> None:
    problem = client.get(f"/views/{path}?{query}").json()
    verb = "sort" if "sort" in query else "filter"
    assert (problem["status"], problem["parameter"]) == (422, query.partition("=")[0])
    told = f'not stored: {verb} by a stored column here, or by "price" in the view "cities_in_both"'
    assert told in problem["detail"]
    assert "city" in problem["known"]
    assert "both_price" not in problem["known"]


def test_it_is_documented(client: AppClient) -> None:
    document = client.get("/openapi.json").json()
    columns = document["components"]["schemas"]["homes_in_valkey.row"]["properties"]
    integer = {"type": "integer", "format": "int64"}
    said = "looked up in cities_in_both by city when the row is read; cannot be filtered or sorted by"
    assert columns["both_price"] == {"anyOf": [integer, {"type": "null"}], "description": said}
    parameters = document["paths"]["/views/homes_in_postgres"]["get"]["parameters"]
    assert not [parameter["name"] for parameter in parameters if parameter["name"].startswith("both_")]
    assert "both_price" in next(parameter["description"] for parameter in parameters if parameter["name"] == "fields")
    views = {view["name"]: view for view in client.get("/views").json()["views"]}
    place = {"type": "integer", "view": "cities_in_both", "column": "price", "on": "city"}
    assert views["homes_in_valkey"]["lookups"]["both_price"] == place
    assert "both_price" not in views["homes_in_valkey"]["columns"]
    assert views["listings"]["lookups"] == {}


def test_rows_of_one_view_look_each_other_up(client: AppClient, service: FakeService) -> None:
    kin = {"A": ("B", "1"), "B": ("C", "2")}
    rows = {key: {"listing_id": key, "next_of_kin": kin, "listed_at": at} for key, (kin, at) in kin.items()}
    reader(service, "postgres").rows["kinship"] = rows
    assert client.get("/views/kinship/A").json() == rows["A"] | {
        "next_listed_at": "2",
        "second_next": "C",
        "same": "A",
    }
    assert reader(service, "postgres").many[1:] == [("kinship", ["B", "A"])]


def test_a_store_that_is_away_is_no_row_that_is_missing(client: AppClient, service: FakeService) -> None:
    elasticsearch = reader(service, "elasticsearch")
    elasticsearch.errors = [StoreUnavailable("Elasticsearch", "refused")]
    problem = client.get("/views/homes_in_postgres/H1").json()
    assert (problem["status"], problem["store"]) == (503, "Elasticsearch")
    elasticsearch.errors = [StoreUnavailable("Elasticsearch", "refused")]
    assert client.get("/views/homes_in_postgres/H1?fields=price,postgres_price").status_code == 200


def test_the_cache_is_asked_first_and_where_it_is_away_another_store(
    client: AppClient, service: FakeService, caplog: pytest.LogCaptureFixture
) -> None:
    cache, query = reader(service, "valkey"), "/views/homes_in_postgres?fields=both_price&limit=1"
    cache.rows["cities_in_both"] = {"GALT": GALT | {"price": 400}}
    assert client.get(query).json()["rows"] == [{"both_price": 400}]
    cache.errors = [StoreUnavailable("Valkey", "refused")]
    assert client.get(query).json()["rows"] == [{"both_price": 300}]
    told = [record.getMessage() for record in caplog.records]
    assert any('view "cities_in_both": reading from another store, valkey is unavailable' in each for each in told)


def test_a_view_that_is_not_built_or_was_just_swapped(client: AppClient, service: FakeService) -> None:
    generations = service.generations
    generations.missing.add("cities_in_elasticsearch")
    problem = client.get("/views/homes_in_valkey/H1").json()
    assert (problem["status"], problem["type"]) == (503, "urn:headwater:problem:generation_missing")
    assert 'view "cities_in_elasticsearch"' in problem["detail"]
    generations.missing.clear()
    reader(service, "elasticsearch").errors = [GenerationGone("cities_in_elasticsearch.g1")]
    assert client.get("/views/homes_in_valkey/H1").json() == shown("H1", "GALT")


def test_a_view_made_from_some_events_looks_up_what_is_there_now(client: AppClient, service: FakeService) -> None:
    generations = service.generations
    generations.made_views["homes_then"] = Made("homes_then", "homes_in_postgres", 1, "", {}, None)
    described = {entry["name"]: entry for entry in client.get("/views").json()["views"]}
    assert described["homes_then"]["made"]["current"] == sorted(described["homes_then"]["lookups"]) != []
    reader(service, "postgres").rows["homes_then"] = {"H1": home("H1", "GALT")}
    assert client.get("/views/homes_then/H1").json() == shown("H1", "GALT")
    assert client.get("/views/homes_then?fields=both_price").json()["rows"] == [{"both_price": 300}]


@pytest.mark.parametrize("path", ["homes_in_valkey/H1?", "homes_in_valkey/rows?key=H1&"])
def test_after_waits_for_what_is_looked_up_too(client: AppClient, service: FakeService, path: str) -> None:
    price_changed(service)
    waiting = f"/views/{path}after={AT}&wait_ms=0&fields=price,elasticsearch_price"
    assert "homes_in_valkey" in client.get(waiting).json()["detail"]
    reader(service, "valkey").guards_of["H1"] = {"2": 100}
    behind = client.get(waiting).json()
    assert (behind["status"], behind["type"]) == (503, "urn:headwater:problem:not_caught_up")
    assert '"cities_in_elasticsearch"' in behind["detail"]
    assert client.get(waiting.removesuffix(",elasticsearch_price")).status_code == 200
    reader(service, "elasticsearch").guards_of["GALT"] = {"2": 100}
    assert client.get(waiting).status_code == 200


@pytest.mark.parametrize("path", ["homes_in_postgres?", "homes_in_elasticsearch/search?"])
def test_a_page_after_a_position(client: AppClient, service: FakeService, path: str) -> None:
    price_changed(service)
    for store in ("postgres", "elasticsearch"):
        reader(service, store).applied = {partition: {"2": 100} for partition in range(4)}
    waiting = f"/views/{path}after={AT}&wait_ms=0&fields=valkey_price&limit=1"
    assert '"cities_in_valkey"' in client.get(waiting).json()["detail"]
    reader(service, "valkey").guards_of["GALT"] = {"2": 100}
    assert client.get(waiting).json()["rows"] == [{"valkey_price": 300}]


def test_all_views_of_an_answer_share_its_time(service: FakeService) -> None:
    """What the wait for the view itself took is no longer there for those that are looked up."""
    price_changed(service)
    view, taken = service.views["homes_in_postgres"], After(str(AT), 30_000, time.monotonic() - 30)

    async def show() -> None:
        async with asyncio.timeout(60):
            await service.lookups.show(view, [home("H1", "GALT")], ["both_price"], ANYONE, taken)

    with pytest.raises(NotCaughtUp, match="cities_in_both"):
        asyncio.run(show())


def test_changes_are_sent_with_what_is_looked_up(service: FakeService) -> None:
    async def changes() -> list[dict[str, Any]]:
        view = service.views["homes_in_postgres"]
        rows = ChangedRows(view, KeyReaders(service.readers, view), service.lookups, service.generations, ANYONE)
        touched = {key: Touch(0, 5, SourcePosition(EVENTS, AT)) for key in ("H1", "gone", "H2")}
        told = [change async for portion in rows.portions(touched) for change in portion]
        return [orjson.loads(change.event.partition(b"data: ")[2]) for change in told]

    reader(service, "postgres").reached = {0: 6}
    rows = {"H1": shown("H1", "GALT"), "gone": None, "H2": shown("H2", "LODI")}
    assert {change["key"]: change["row"] for change in asyncio.run(changes())} == rows
    reader(service, "elasticsearch").errors = [StoreUnavailable("Elasticsearch", "refused")]
    with pytest.raises(StoreUnavailable):  # they wait
        asyncio.run(changes())
