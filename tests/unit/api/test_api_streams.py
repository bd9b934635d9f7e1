"""Streams and health over HTTP, with the stores in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest
from pydantic import BaseModel, ConfigDict

from headwater.api.app import create_app
from headwater.api.reading import Live, Page
from headwater.api.requests.query import Query
from headwater.commands.declaring.aggregate import Aggregate, Command, Event
from headwater.commands.declaring.registry import CommandRegistry
from headwater.eventlog.envelope import Position, encode, partition_of
from headwater.eventlog.errors import LogUnavailable
from headwater.projections.errors import StoreUnavailable
from tests.support.badly_behaved import wild
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import FakeService, catch_up, event, fake_service, receipt

SOLD = event("listing/L1", 5, "listing.sold", listing_id="L1", city="GALT", sold_for=1, price=1, square_feet=1)
AT = Position(2, 100)
MIB = 1024 * 1024


def patches_partition(tag: str, key: str) -> int:
    return partition_of(f"{tag}/{key}", 4)


@pytest.fixture
def history(service: FakeService) -> list[bytes]:
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
    reader = service.readers["postgres"]
    records = [encode(each) for each in events]
    reader.rows["streams"] = {
        each.id: {"event_id": each.id, "stream": each.stream, "sequence": each.sequence, "record": record.decode()}
        for each, record in zip(events, records, strict=True)
    }
    return records


@pytest.mark.parametrize(("asked", "reached", "price"), [(2, 2, 102), (3, 2, 102), (4, 4, 104), (7, 7, 107)])
def test_the_state_as_of_a_version_where_an_earlier_event_was_erased(
    client: AppClient, service: FakeService, history: list[bytes], asked: int, reached: int, price: int
) -> None:
    reader = service.readers["postgres"]
    del reader.rows["streams"]["listing/L1/3"]
    document = client.get(f"/streams/listing/L1?version={asked}").json()
    assert (document["version"], document["state"]["price"]) == (reached, price)


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


def test_a_page_continues_after_its_last_event_though_earlier_ones_were_erased(
    client: AppClient, service: FakeService, history: list[bytes]
) -> None:
    for version in (1, 2, 4):
        del service.readers["postgres"].rows["streams"][f"listing/L1/{version}"]
    versions, path = [], "/streams/listing/L1?limit=2"
    while path:
        page = client.get(path).json()
        versions.append([each["sequence"] for each in page["events"]])
        path = page["links"].get("next")
    assert versions == [[3, 5], [6, 7]]


def test_a_page_of_large_events_ends_early_and_the_state_is_folded_from_some_at_a_time(
    client: AppClient, service: FakeService, history: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, found = service.readers["postgres"], list[int]()
    first = orjson.loads(history[0])
    for version in range(1, 101):
        large = first | {"id": f"listing/L1/{version}", "sequence": version}
        large["data"] = first["data"] | {"description": "x" * MIB}
        row = {"event_id": large["id"], "stream": "listing/L1", "sequence": version}
        reader.rows["streams"][large["id"]] = row | {"record": orjson.dumps(large).decode()}
    find = reader.find

    async def noting(live: Live, query: Query) -> Page:
        page = await find(live, query)
        found.append(len(page.rows))
        return page

    monkeypatch.setattr(reader, "find", noting)
    page = client.get("/streams/listing/L1?limit=1000").json()
    assert [each["sequence"] for each in page["events"]] == [*range(1, 9)]
    assert page["links"]["next"] == "/streams/listing/L1?from=9&limit=1000"
    assert client.get("/streams/listing/L1?version=100").json()["version"] == 100
    assert max(found) <= 20


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


def test_a_stream_after_a_position(client: AppClient, service: FakeService, history: list[bytes]) -> None:
    service.events.events[AT] = SOLD
    assert client.get("/streams/listing/L1?after=2:100&wait_ms=0").status_code == 503
    reader = service.readers["postgres"]
    reader.applied = {patches_partition("streams@1", SOLD.id): {"2": 100}}
    assert client.get("/streams/listing/L1?after=2:100&wait_ms=0").status_code == 200


def test_a_stream_that_the_view_lacks_says_how_to_read_what_was_just_sent(client: AppClient) -> None:
    missing = client.get("/streams/listing/L1").json()
    assert missing["type"].endswith(":stream_missing") and "position of its answer as after=" in missing["detail"]


def test_health(client: AppClient, service: FakeService) -> None:
    catch_up(service)
    assert client.get("/health/live").json() == {"status": "live"}
    ready = client.get("/health/ready")
    assert (ready.status_code, set(ready.json()["parts"].values())) == (200, {"ready"})


def test_readiness_names_the_deployment_and_the_process(service: FakeService) -> None:
    here = AppClient(create_app(replace(service, environment="shop")))
    other = AppClient(create_app(replace(service, environment="shop", instance="b")))
    first, second, third = (each.get("/health/ready").json() for each in (here, here, other))
    assert first["environment"] == "shop"
    assert first["instance"] == second["instance"] == service.instance
    assert third["instance"] == "b"


def test_readiness_names_them_also_if_it_is_not_ready(client: AppClient, service: FakeService) -> None:
    service.gateway.ready = False
    answer = client.get("/health/ready")
    assert (answer.status_code, answer.json()["instance"]) == (503, service.instance)
    assert fake_service().instance != service.instance


def test_code_that_does_not_return_is_named_and_the_process_is_ready(client: AppClient, service: FakeService) -> None:
    service.events.slow = ["partition 3 of the handler waits: …", "partition 4 of the handler waits: …"]
    ready = client.get("/health/ready")
    assert (ready.status_code, ready.json()["status"]) == (200, "ready")
    assert ready.json()["parts"]["handlers"] == "; ".join(service.events.slow)


@pytest.mark.parametrize("part", ["log", "receipts", "registry"])
def test_not_ready_names_the_part(client: AppClient, service: FakeService, part: str) -> None:
    catch_up(service)
    if part == "log":
        service.events.error = LogUnavailable("looking", "no broker")
    if part == "receipts":
        service.gateway.ready = False
    if part == "registry":
        service.generations.error = StoreUnavailable("PostgreSQL", "refused")
    answer = client.get("/health/ready")
    assert answer.status_code == 503
    assert {name for name, state in answer.json()["parts"].items() if state != "ready"} == {part}


@pytest.mark.parametrize("what", ["evolve exits", "evolve fails"])
def test_whatever_evolve_raises_the_state_is_an_internal_error(service: FakeService, what: str) -> None:
    client = streams_of(service, wild, {"wild_id": "a", "what": what, "number": 1, "share": 0.5, "items": []})
    answer = client.get("/streams/wild/a?version=1")
    assert (answer.status_code, answer.json()["type"]) == (500, "urn:headwater:problem:internal_error")


class Got(Event, type="sum.got"):
    sum_id: str
    number: int


class Add(Command, type="sum.add"):
    sum_id: str
    number: int


class Sum(BaseModel):
    model_config = ConfigDict(frozen=True)
    total: int = 0


def add(command: Add, state: Sum) -> list[Event]:
    return [Got(sum_id=command.sum_id, number=command.number)]


def added(state: Sum, event: Got) -> Sum:
    return Sum(total=state.total * 2**64 + event.number)


def test_a_state_with_integers_of_more_than_64_bits(service: FakeService) -> None:
    sums = Aggregate(name="sum", id_field="sum_id", initial=Sum(), decide=add, evolve=added)
    client = streams_of(service, sums, *({"sum_id": "a", "number": number} for number in (7, 9)))
    assert client.get("/streams/sum/a?version=2").json()["state"] == {"total": 7 * 2**64 + 9}


def streams_of(service: FakeService, aggregate: Aggregate[Any], *events: dict[str, Any]) -> AppClient:
    """A client of a deployment with one aggregate, whose stream `a` has these events, of its only type."""
    (kind,) = aggregate.events
    stream = f"{aggregate.name}/a"
    service.readers["postgres"].rows["streams"] = {
        each.id: {"event_id": each.id, "stream": stream, "sequence": each.sequence, "record": encode(each).decode()}
        for each in (event(stream, version, kind, **data) for version, data in enumerate(events, 1))
    }
    return AppClient(create_app(replace(service, commands=CommandRegistry([("here", aggregate)]))))


@pytest.mark.parametrize("stream_id", [".", "..", "a", "a b/ü"])
def test_a_stream_is_found_by_its_name_too(client: AppClient, service: FakeService, stream_id: str) -> None:
    stream = f"listing/{stream_id}"
    rows = [event(stream, number, "listing.withdrawn", listing_id=stream_id) for number in (1, 2)]
    service.readers["postgres"].rows["streams"] = {
        row.id: {
            "event_id": row.id,
            "stream": row.stream,
            "sequence": row.sequence,
            "record": encode(row).decode(),
        }
        for row in rows
    }
    page = client.get("/streams", params={"stream": stream, "limit": 1}).json()
    assert [each["id"] for each in page["events"]] == [rows[0].id]
    page = client.get(page["links"]["next"]).json()
    assert [each["id"] for each in page["events"]] == [rows[1].id]


@pytest.mark.parametrize("wrong", ["", "?stream=listing", "?stream="])
def test_a_stream_needs_its_whole_name(client: AppClient, wrong: str) -> None:
    answer = client.get(f"/streams{wrong}")
    assert (answer.status_code, answer.json()["parameter"]) == (422, "stream")


@pytest.mark.parametrize("dots", [".", ".."])
def test_links_of_ids_that_a_path_cannot_have_lead_to_them(client: AppClient, service: FakeService, dots: str) -> None:
    answered = receipt(f"listing/{dots}", command_id=dots)
    service.gateway.answer, service.gateway.known = answered, {dots: answered}
    answer = client.post("/commands/listing.withdraw", json={"listing_id": dots}, headers={"idempotency-key": dots})
    links = answer.json()["links"]
    assert answer.headers["location"] == links["stream"]
    assert client.get(links["stream"]).json()["stream"] == f"listing/{dots}"
    assert client.get(links["receipt"]).json()["command_id"] == dots
