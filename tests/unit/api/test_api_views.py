"""Views and streams over HTTP, with the stores in memory."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import orjson
import pytest
from asgi_client import AppClient
from fake_service import MemoryReader, event, fake_service

from api.app import create_app
from api.ports import GenerationGone
from api.service import Service
from eventlog.envelope import Position, encode, partition_of
from eventlog.errors import LogUnavailable
from projections.errors import StoreUnavailable

SACRAMENTO = {"city": "SACRAMENTO", "price": 1}


def listing(key: str, **columns: Any) -> dict[str, Any]:
    names = fake_service().views["listings"].types
    return {name: columns.get(name) for name in names} | {"listing_id": key}


@pytest.fixture
def stored(service: Service) -> MemoryReader:
    reader: Any = service.readers["postgres"]
    rows = [
        listing("L1", city="GALT", price=3, listed_at="2026-01-01T00:00:00.000Z"),
        listing("L2", city="GALT", price=1, listed_at="2026-01-02T00:00:00.000Z"),
        listing("L3", city="ELK GROVE", price=3),
        listing("L4", city="LODI"),
        listing("a/b ü", city="LODI", price=2),
    ]
    reader.rows["listings"] = {row["listing_id"]: row for row in rows}
    return reader  # type: ignore[no-any-return]


def keys(client: AppClient, query: str) -> list[str]:
    answer = client.get(f"/views/listings?{query}")
    assert answer.status_code == 200, answer.text
    return [row["listing_id"] for row in answer.json()["rows"]]


def test_views_are_listed(client: AppClient, service: Service) -> None:
    service.generations.missing.add("city_market")
    views = {view["name"]: view for view in client.get("/views").json()["views"]}
    assert views["listings"]["columns"]["price"] == "integer"
    assert views["listings"]["stores"] == ["postgres"]
    assert (views["listings"]["generation"], views["city_market"]["generation"]) == (1, None)


def test_a_row_by_its_key(client: AppClient, stored: MemoryReader) -> None:
    answer = client.get(f"/views/listings/{quote('a/b ü', safe='')}")
    assert answer.status_code == 200
    assert answer.json() == stored.rows["listings"]["a/b ü"]
    assert answer.headers["headwater-generation"] == "1"


@pytest.mark.parametrize("key", ["nobody", "", "x" * 10_000, "%ff", "%ED%A0%80", "日本", "..%2F..%2Fetc", "%0A"])
def test_no_such_row(client: AppClient, key: str) -> None:
    answer = client.get(f"/views/listings/{key}")
    assert answer.status_code == 404
    assert answer.json()["type"] == "urn:headwater:problem:row_missing"


@pytest.mark.parametrize("path", ["/views/listings/a%00b", "/views/listings?city=%00", "/streams/listing/%00"])
def test_no_row_has_a_nul(client: AppClient, path: str) -> None:
    assert client.get(path).status_code == 422


@pytest.mark.parametrize("path", ["/views/nothing", "/views/nothing/key", "/views/nothing?city=x"])
def test_unknown_view(client: AppClient, path: str) -> None:
    problem = client.get(path).json()
    assert (problem["status"], problem["type"]) == (404, "urn:headwater:problem:unknown_view")
    assert "listings" in problem["known"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("city=GALT", ["L1", "L2"]),
        ("city=GALT&city=LODI&sort=-listing_id", ["a/b ü", "L4", "L2", "L1"]),
        ("city.in=GALT&city.eq=LODI&price.gte=2", ["L1", "a/b ü"]),
        ("price.gt=1&price.lt=3", ["a/b ü"]),
        ("price.lte=1", ["L2"]),
        ("sort=-price,listing_id", ["L1", "L3", "a/b ü", "L2", "L4"]),
        ("sort=price", ["L2", "a/b ü", "L1", "L3", "L4"]),
        ("listed_at.gte=2026-01-01T12:00:00%2B00:00", ["L2"]),
        ("listed_at.gte=2026-01-01T01:00:00+02:00&listed_at.lt=2026-01-02T00:00:00Z", ["L1"]),
    ],
)
def test_filters_and_order(client: AppClient, stored: MemoryReader, query: str, expected: list[str]) -> None:
    assert keys(client, query) == expected


@pytest.mark.parametrize("sort", ["sort=price", "sort=-price,city", "sort=-city,price", "sort=listing_id", "limit=3"])
def test_pages_add_up(client: AppClient, stored: MemoryReader, sort: str) -> None:
    whole = keys(client, sort.replace("limit=3", "limit=50"))
    found: list[str] = []
    path: str | None = f"/views/listings?{sort}" + ("" if "limit" in sort else "&limit=2")
    while path is not None:
        page = client.get(path).json()
        found += [row["listing_id"] for row in page["rows"]]
        assert (page["next"] is None) == ("next" not in page["links"])
        path = page["links"].get("next")
    assert found == whole
    assert len(found) == 5


@pytest.mark.parametrize(
    ("query", "parameter", "known"),
    [
        ("town=GALT", "town", "city"),
        ("price.near=1", "price.near", "price.gte"),
        ("price.gte.x=1", "price.gte.x", "price.gte"),
        (".gte=1", ".gte", "city"),
        ("price=cheap", "price", None),
        ("price=1.5", "price", None),
        ("price=99999999999999999999", "price", None),
        ("price=٣", "price", None),
        ("baths.gte=nan", "baths.gte", None),
        ("baths.gte=1e999", "baths.gte", None),
        ("listed_at.gte=yesterday", "listed_at.gte", None),
        ("listed_at.gte=2026-01-01T00:00:00", "listed_at.gte", None),
        ("listed_at.gte=0001-01-01T00:00:00%2B10:00", "listed_at.gte", None),
        ("price.gte=1&price.gte=2", "price.gte", None),
        ("sort=colour", "sort", "price"),
        ("sort=price,-price", "sort", None),
        ("sort=", "sort", "price"),
        ("sort=price&sort=city", "sort", None),
        ("limit=0", "limit", None),
        ("limit=1001", "limit", None),
        ("limit=ten", "limit", None),
        ("limit=1&limit=2", "limit", None),
        ("wait_ms=-1", "wait_ms", None),
        ("after=", "after", None),
        ("after=1", "after", None),
        ("after=9:1", "after", None),
        ("after=1:99999999999999999999", "after", None),
        ("after=" + ",".join(f"0:{n}" for n in range(101)), "after", None),
        ("q=garden", "q", "city"),
        ("cursor=x", "cursor", None),
        ("cursor=é", "cursor", None),
        ("cursor=" + "W10", "cursor", None),
        ("cursor=", "cursor", None),
    ],
)
def test_wrong_parameters(client: AppClient, query: str, parameter: str, known: str | None) -> None:
    answer = client.get(f"/views/listings?{query}")
    problem = answer.json()
    assert (answer.status_code, problem["type"]) == (422, "urn:headwater:problem:bad_parameter"), problem
    assert problem["parameter"] == parameter
    assert known is None or known in problem["known"]


def test_a_cursor_belongs_to_its_query(client: AppClient, stored: MemoryReader) -> None:
    cursor = client.get("/views/listings?sort=price&limit=2").json()["next"]
    assert client.get(f"/views/listings?sort=price&limit=3&cursor={cursor}").status_code == 200
    for other in ("sort=-price", "sort=price&city=GALT", ""):
        assert client.get(f"/views/listings?{other}&cursor={cursor}").status_code == 422


def test_a_cursor_with_other_types_is_refused(client: AppClient, stored: MemoryReader) -> None:
    import base64

    cursor = client.get("/views/listings?sort=price&limit=2").json()["next"]
    document = orjson.loads(base64.urlsafe_b64decode(cursor + "=="))
    for values in (["x", "L1"], [1, 2], [1, None, 3], [1], [{}, "L1"], [2**70, "L1"], [1, "a\0"]):
        forged = base64.urlsafe_b64encode(orjson.dumps([document[0], *map(_small, values)])).rstrip(b"=").decode()
        answer = client.get(f"/views/listings?sort=price&limit=2&cursor={forged}")
        assert answer.status_code == (200 if values == [1, None] else 422), values


def _small(value: Any) -> Any:
    return float(value) if isinstance(value, int) and value > 2**64 else value


def test_a_view_in_valkey_answers_by_key_only(client: AppClient, service: Service) -> None:
    problem = client.get("/views/listing_card?city=GALT").json()
    assert (problem["status"], problem["type"]) == (400, "urn:headwater:problem:key_only")
    assert "/views/listing_card/{key}" in problem["detail"]
    cache: Any = service.readers["valkey"]
    cache.rows["listing_card"] = {"L1": {"listing_id": "L1", "city": "GALT"}}
    assert client.get("/views/listing_card/L1").json()["city"] == "GALT"


def test_a_search(client: AppClient, service: Service) -> None:
    index: Any = service.readers["elasticsearch"]
    index.rows["listing_search"] = {"L1": {"listing_id": "L1", "city": "GALT", "price": 1}}
    query = "q=garden&near=38.6,-121.4&within_km=5&sort=distance,-relevance&price.gte=1&facet="
    found = client.get(f"/views/listing_search/search?{query.removesuffix('&facet=')}").json()
    assert (found["total"], found["rows"][0]["listing_id"]) == (1, "L1")
    assert found["facets"] == {"city": [{"value": "SACRAMENTO", "count": 2}]}


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("near=1", "near"),
        ("near=a,b", "near"),
        ("near=91,0", "near"),
        ("near=0,181", "near"),
        ("near=nan,0", "near"),
        ("within_km=5", "within_km"),
        ("near=1,1&within_km=0", "within_km"),
        ("near=1,1&within_km=inf", "within_km"),
        ("sort=distance", "sort"),
        ("sort=relevance", "sort"),
        ("sort=location", "sort"),
        ("location=1,1", "location"),
        ("q=" + "x" * 1001, "q"),
    ],
)
def test_wrong_search(client: AppClient, query: str, parameter: str) -> None:
    answer = client.get(f"/views/listing_search/search?{query}")
    assert (answer.status_code, answer.json()["parameter"]) == (422, parameter)


def test_a_store_away_and_a_view_not_built(client: AppClient, service: Service) -> None:
    reader: Any = service.readers["postgres"]
    reader.errors.append(StoreUnavailable("PostgreSQL", "refused"))
    away = client.get("/views/listings/L1")
    assert (away.status_code, away.json()["store"]) == (503, "PostgreSQL")
    service.generations.missing.add("listings")
    missing = client.get("/views/listings/L1")
    assert (missing.status_code, missing.json()["type"]) == (503, "urn:headwater:problem:generation_missing")
    assert missing.headers["retry-after"]


def test_a_generation_that_was_dropped_is_asked_for_anew(client: AppClient, stored: MemoryReader) -> None:
    stored.errors.append(GenerationGone("listings__g1"))
    assert client.get("/views/listings/L1").status_code == 200
    stored.errors += [GenerationGone("listings__g1"), GenerationGone("listings__g1")]
    assert client.get("/views/listings/L1").status_code == 503


# Waiting

SOLD = event("listing/L1", 5, "listing.sold", listing_id="L1", city="GALT", sold_for=1, price=1, square_feet=1)
AT = Position(2, 100)


def patches_partition(tag: str, key: str) -> int:
    return partition_of(f"{tag}/{key}", 4)


def test_after_waits_for_the_row_s_ledger(service: Service, stored: MemoryReader) -> None:
    service.events.events[AT] = SOLD
    client = AppClient(create_app(service))
    behind = client.get("/views/listings/L1?after=2:100&wait_ms=60")
    problem = behind.json()
    assert (behind.status_code, problem["type"]) == (503, "urn:headwater:problem:not_caught_up")
    assert (problem["lag_events"], problem["waited_ms"], problem["after"]) == (101, 60, "2:100")
    assert behind.headers["retry-after"]
    partition = patches_partition("listings@1", "L1")
    stored.applied = {each: {2: 500} for each in range(4) if each != partition} | {partition: {2: 99}}
    assert client.get("/views/listings/L1?after=2:100&wait_ms=20").status_code == 503
    stored.applied[partition] = {2: 100}
    assert client.get("/views/listings/L1?after=2:100&wait_ms=0").status_code == 200


def test_after_returns_when_the_view_has_caught_up(service: Service, stored: MemoryReader) -> None:
    service.events.events[AT] = SOLD
    view = service.views["listings"]

    async def race() -> None:
        waiting = asyncio.create_task(service.waiter.wait(view, stored, "2:100", 5000))
        while stored.asked < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        stored.applied = {patches_partition(view.tag, "L1"): {2: 100}}
        await waiting

    asyncio.run(race())


def test_an_event_that_the_view_does_not_handle_counts_as_applied(client: AppClient, service: Service) -> None:
    service.events.events[AT] = event("listing/L1", 5, "listing.put_under_offer", listing_id="L1", city="GALT", offer=1)
    cache: Any = service.readers["valkey"]
    cache.rows["listing_card"] = {"L1": {"listing_id": "L1"}}
    assert client.get("/views/listing_card/L1?after=2:100&wait_ms=0").status_code == 503  # the card shows the status
    service.events.events[AT] = event("boat/B1", 5, "boat.sunk", boat_id="B1")
    assert client.get("/views/listing_card/L1?after=2:100&wait_ms=0").status_code == 200


def test_an_event_in_the_generation_s_base_counts_as_applied(
    client: AppClient, service: Service, stored: MemoryReader
) -> None:
    service.events.events[AT] = SOLD
    service.generations.base[2] = 100  # the offset after the last that bulk covered
    assert client.get("/views/listings/L1?after=2:100&wait_ms=0").status_code == 503
    service.generations.base[2] = 101
    assert client.get("/views/listings/L1?after=2:100&wait_ms=0").status_code == 200


@pytest.mark.parametrize("store", ["elasticsearch", "valkey"])
def test_a_row_s_guard_is_enough(client: AppClient, service: Service, store: str) -> None:
    service.events.events[AT] = SOLD
    view = {"elasticsearch": "listing_search", "valkey": "listing_card"}[store]
    reader: Any = service.readers[store]
    reader.rows[view] = {"L1": {"listing_id": "L1"}}
    reader.guards["L1"] = {2: 99}
    assert client.get(f"/views/{view}/L1?after=2:100&wait_ms=30").status_code == 503
    reader.guards["L1"] = {2: 100}
    assert client.get(f"/views/{view}/L1?after=2:100&wait_ms=0").status_code == 200
    assert reader.refreshed == 0


def test_a_search_after_a_position_refreshes(client: AppClient, service: Service) -> None:
    service.events.events[AT] = SOLD
    reader: Any = service.readers["elasticsearch"]
    reader.guards["L1"] = {2: 100}
    assert client.get("/views/listing_search/search?q=x&after=2:100").status_code == 200
    assert client.get("/views/listing_search?after=2:100").status_code == 200
    assert reader.refreshed == 2
    client.get("/views/listing_search/search?q=x")
    assert reader.refreshed == 2


def test_a_record_that_is_gone_waits_for_every_ledger(client: AppClient, stored: MemoryReader) -> None:
    stored.applied = {each: {2: 100} for each in range(3)}
    assert client.get("/views/listings/L1?after=2:100&wait_ms=0").status_code == 503
    stored.applied[3] = {2: 100}
    assert client.get("/views/listings/L1?after=2:100&wait_ms=0").status_code == 200


def test_several_positions(client: AppClient, service: Service, stored: MemoryReader) -> None:
    service.events.events |= {AT: SOLD, Position(1, 7): SOLD}
    partition = patches_partition("listings@1", "L1")
    stored.applied = {partition: {2: 100}}
    assert client.get("/views/listings/L1?after=2:100,1:7&wait_ms=0").status_code == 503
    stored.applied = {partition: {2: 100, 1: 8}}
    assert client.get("/views/listings/L1?after=2:100,1:7&wait_ms=0").status_code == 200


def test_waiting_while_the_log_is_away(client: AppClient, service: Service) -> None:
    service.events.error = LogUnavailable("reading", "no broker")
    answer = client.get("/views/listings/L1?after=2:100")
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:headwater:problem:log_unavailable")


# Streams


@pytest.fixture
def history(service: Service) -> list[bytes]:
    data = {
        "listing_id": "L1",
        "city": "GALT",
        "zip": "z95632",
        "property_type": "Condo",
        "beds": 1,
        "baths": 1.0,
        "square_feet": 500,
        "price": 100,
        "latitude": 38.0,
        "longitude": -121.0,
        "description": "",
    }
    events = [event("listing/L1", 1, "listing.listed", **data)]
    for version in range(2, 8):
        prices = {"price": 100 + version, "previous_price": 99 + version}
        events.append(event("listing/L1", version, "listing.price_changed", listing_id="L1", city="GALT", **prices))
    reader: Any = service.readers["postgres"]
    records = [encode(each) for each in events]
    reader.rows["streams"] = {
        each.id: {"event_id": each.id, "stream": each.stream, "sequence": each.sequence, "record": record.decode()}
        for each, record in zip(events, records, strict=True)
    }
    return records


def test_a_stream_in_pages(client: AppClient, history: list[bytes]) -> None:
    found: list[Any] = []
    path: str | None = "/streams/listing/L1?limit=3"
    while path:
        answer = client.get(path)
        assert (answer.status_code, answer.headers["etag"]) == (200, '"7"')
        found += answer.json()["events"]
        path = answer.json()["links"].get("next")
    assert found == [orjson.loads(record) for record in history]
    assert client.get("/streams/listing/L1?from=8").json()["events"] == []


@pytest.mark.parametrize(
    ("query", "version", "price"),
    [
        ("version=1", 1, 100),
        ("version=5", 5, 105),
        ("at=2026-01-02T03:04:03Z", 3, 103),
        ("at=2026-01-02T03:04:03.999999Z", 3, 103),
        ("at=2030-01-01T00:00:00Z", 7, 107),
    ],
)
def test_the_state_as_of(client: AppClient, history: list[bytes], query: str, version: int, price: int) -> None:
    state = client.get(f"/streams/listing/L1?{query}").json()
    assert (state["version"], state["state"]["price"], state["stream"]) == (version, price, "listing/L1")
    assert state["time"] == f"2026-01-02T03:04:0{version}.000000Z"


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/streams/boat/B1", 404, "unknown_aggregate"),
        ("/streams/listing/nobody", 404, "stream_missing"),
        ("/streams/listing/", 404, "stream_missing"),
        ("/streams/listing/L1?version=8", 404, "stream_missing"),
        ("/streams/listing/L1?at=2020-01-01T00:00:00Z", 404, "stream_missing"),
        ("/streams/listing/L1?version=0", 422, "bad_parameter"),
        ("/streams/listing/L1?version=x", 422, "bad_parameter"),
        ("/streams/listing/L1?version=1&at=2020-01-01T00:00:00Z", 422, "bad_parameter"),
        ("/streams/listing/L1?version=1&limit=1", 422, "bad_parameter"),
        ("/streams/listing/L1?from=0", 422, "bad_parameter"),
        ("/streams/listing/L1?city=x", 422, "bad_parameter"),
        ("/streams/listing/L1?at=noon", 422, "bad_parameter"),
    ],
)
def test_wrong_streams(client: AppClient, history: list[bytes], path: str, status: int, code: str) -> None:
    problem = client.get(path).json()
    assert (problem["status"], problem["type"]) == (status, f"urn:headwater:problem:{code}")


def test_a_stream_after_a_position(client: AppClient, service: Service, history: list[bytes]) -> None:
    service.events.events[AT] = SOLD
    assert client.get("/streams/listing/L1?after=2:100&wait_ms=0").status_code == 503
    reader: Any = service.readers["postgres"]
    reader.applied = {patches_partition("streams@1", SOLD.id): {2: 100}}
    assert client.get("/streams/listing/L1?after=2:100&wait_ms=0").status_code == 200


# Health


def test_health(client: AppClient, service: Service) -> None:
    assert client.get("/health/live").json() == {"status": "live"}
    ready = client.get("/health/ready")
    assert (ready.status_code, set(ready.json()["parts"].values())) == (200, {"ready"})


@pytest.mark.parametrize("part", ["log", "receipts", "registry"])
def test_not_ready_names_the_part(client: AppClient, service: Service, part: str) -> None:
    if part == "log":
        service.events.error = LogUnavailable("looking", "no broker")
    if part == "receipts":
        service.gateway.ready = False
    if part == "registry":
        service.generations.error = StoreUnavailable("PostgreSQL", "refused")
    answer = client.get("/health/ready")
    assert answer.status_code == 503
    assert {name for name, state in answer.json()["parts"].items() if state != "ready"} == {part}
