"""Waiting for positions over HTTP, with the log and the stores in memory."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from headwater.api.app import create_app
from headwater.api.errors import NotCaughtUp, ViewPaused
from headwater.api.waiting.awaited import After
from headwater.eventlog.envelope import Position, partition_of
from headwater.eventlog.errors import LogUnavailable
from headwater.projections.table.patch import Place
from headwater.samples.orders.views import large_order_lines
from tests.contracts.fold_views import BETWEEN_GROUPS, BY_SKU
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import FakeService, MemoryReader, event

SOLD = event("listing/L1", 5, "listing.sold", listing_id="L1", city="GALT", sold_for=1, price=1, square_feet=1)
AT = Position(2, 100)


def patches_partition(tag: str, key: str) -> int:
    return partition_of(f"{tag}/{key}", 4)


def test_after_waits_for_the_row_s_ledger(service: FakeService, stored: MemoryReader) -> None:
    service.events.events[AT] = SOLD
    client = AppClient(create_app(service))
    behind = client.get("/views/listings/L1?after=2:100&wait_ms=60")
    problem = behind.json()
    assert (behind.status_code, problem["type"]) == (503, "urn:headwater:problem:not_caught_up")
    assert (problem["lag_events"], problem["waited_ms"], problem["after"]) == (101, 60, "2:100")
    assert behind.headers["retry-after"]
    partition = patches_partition("listings@1", "L1")
    stored.applied = {each: {"2": 99 if each == partition else 500} for each in range(4)}
    assert client.get("/views/listings/L1?after=2:100&wait_ms=20").status_code == 503
    stored.applied[partition] = {"2": 100}
    assert client.get("/views/listings/L1?after=2:100&wait_ms=0").status_code == 200


def test_a_paused_view_that_lacks_the_position_says_so_at_once_and_answers_with_what_it_has(
    client: AppClient, service: FakeService, stored: MemoryReader
) -> None:
    service.events.events[AT] = SOLD
    service.generations.paused["listings"] = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    answer = client.get("/views/listings/L1?after=2:100&wait_ms=30000")
    problem = answer.json()
    assert (answer.status_code, problem["type"]) == (409, "urn:headwater:problem:view_paused")
    assert (problem["view"], problem["since"], problem["after"]) == ("listings", "2026-01-02T03:04:05+00:00", "2:100")
    assert stored.asked <= 1, "nothing waits"
    assert client.get("/views/listings/L1").status_code == 200
    stored.applied = {patches_partition("listings@1", "L1"): {"2": 100}}
    assert client.get("/views/listings/L1?after=2:100").status_code == 200


def test_who_waits_while_the_view_is_paused_is_answered(service: FakeService, stored: MemoryReader) -> None:
    service.events.events[AT] = SOLD

    async def race() -> None:
        waiting = asyncio.create_task(service.waiter.wait(service.views["listings"], stored, After("2:100", 30_000)))
        while stored.asked < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        service.generations.paused["listings"] = datetime(2026, 1, 2, tzinfo=UTC)
        with pytest.raises(ViewPaused):
            await asyncio.wait_for(waiting, 60)

    asyncio.run(race())


def test_after_returns_when_the_view_has_caught_up(service: FakeService, stored: MemoryReader) -> None:
    service.events.events[AT] = SOLD
    view = service.views["listings"]

    async def race() -> None:
        waiting = asyncio.create_task(service.waiter.wait(view, stored, After("2:100", 60_000)))
        while stored.asked < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        stored.applied = {patches_partition(view.tag, "L1"): {"2": 100}}
        await waiting

    asyncio.run(race())


def test_an_event_that_the_view_does_not_handle_counts_as_applied(client: AppClient, service: FakeService) -> None:
    service.events.events[AT] = event("listing/L1", 5, "listing.put_under_offer", listing_id="L1", city="GALT", offer=1)
    cache = service.readers["valkey"]
    cache.rows["listing_card"] = {"L1": {"listing_id": "L1"}}
    assert client.get("/views/listing_card/L1?after=2:100&wait_ms=0").status_code == 503  # the card shows the status
    service.events.events[AT] = event("boat/B1", 5, "boat.sunk", boat_id="B1")
    assert client.get("/views/listing_card/L1?after=2:100&wait_ms=0").status_code == 200


def test_an_event_with_several_patches_counts_once_the_last_of_each_row_is_applied(
    service: FakeService, stored: MemoryReader
) -> None:
    line = {"sku": "A", "pieces": 1, "price": None, "weight": None, "at": None}
    of_a, of_b = (patches_partition(BY_SKU.tag, sku) for sku in ("A", "B"))
    assert of_a != of_b

    def waits(a: int | Place, b: int | Place, *skus: str) -> bool:
        lines = [{**line, "sku": sku} for sku in skus]
        packed = {"thing_id": "T", "group": "g", "text": None, "flag": True, "lines": lines}
        service.events.events[AT] = event("thing/T", 1, "thing.packed", **packed)
        stored.applied = {of_a: {"2": a}, of_b: {"2": b}}
        try:
            asyncio.run(service.waiter.wait(BY_SKU, stored, After("2:100", 0)))
        except NotCaughtUp:
            return True
        return False

    assert [waits(at, 0, "A") for at in (99, 100)] == [True, False]
    last_of_a, b = Place(100, 2), Place(100, 1)
    assert not waits(last_of_a, b, "A", "B", "A")
    assert waits(last_of_a, 100, "A", "B", "A")
    assert waits(Place(100, 0), b, "A", "B", "A")
    assert not waits(101, 101, "A", "B", "A")
    assert not waits(0, 0)


def test_an_event_of_two_rows_counts_once_both_are_applied(service: FakeService, stored: MemoryReader) -> None:
    of_a, of_b = (patches_partition(BETWEEN_GROUPS.tag, group) for group in ("A", "B"))
    assert of_a != of_b

    def waits(a: int | Place, b: int | Place, come_from: str, go_to: str) -> bool:
        moved = {"thing_id": "T", "from_group": come_from, "to_group": go_to, "small": 1, "text": None, "lines": []}
        service.events.events[AT] = event("thing/T", 1, "thing.moved", **moved)
        stored.applied = {of_a: {"2": a}, of_b: {"2": b}}
        try:
            asyncio.run(service.waiter.wait(BETWEEN_GROUPS, stored, After("2:100", 0)))
        except NotCaughtUp:
            return True
        return False

    first, second = Place(100, 0), Place(100, 1)
    assert not waits(first, second, "A", "B")
    assert waits(99, second, "A", "B")
    assert waits(first, first, "A", "B")  # of an earlier patch of the partition
    assert not waits(second, first, "B", "A")
    assert [waits(at, 0, "A", "A") for at in (first, second, 101)] == [True, False, False]


def test_an_observation_is_no_event_and_counts_as_applied(
    client: AppClient, service: FakeService, stored: MemoryReader
) -> None:
    """Its position has the numbers of an event that the view has not applied."""
    service.events.events[AT] = SOLD
    assert client.get("/views/listings/L1?after=2:100&wait_ms=0").status_code == 503
    assert client.get("/views/listings/L1?after=observations/2:100&wait_ms=0").status_code == 200
    assert client.get("/views/listings/L1?after=observations/2:100,2:100&wait_ms=0").status_code == 503
    assert client.get("/streams/listing/L1?after=observations/2:100&wait_ms=0").status_code == 404  # it has no events


@pytest.mark.parametrize(
    ("token", "said"),
    [
        ("observation/2:100", 'write "3:1042" for an event, "observations/3:1042" for an observation'),
        ("events/2:100", 'write "3:1042" for an event'),
        ("/2:100", 'write "3:1042" for an event'),
        ("observations/2", '"2" is not a position'),
        ("observations/9:1", "names observations/9:1, which is out of range"),
        ("observations/observations/2:1", "has an unknown source"),
    ],
)
def test_a_position_of_no_source(client: AppClient, token: str, said: str) -> None:
    problem = client.get("/views/listings/L1", params={"after": token}).json()
    assert (problem["status"], problem["parameter"]) == (422, "after")
    assert said in problem["detail"]


def test_an_event_in_the_generation_s_base_counts_as_applied(
    client: AppClient, service: FakeService, stored: MemoryReader
) -> None:
    service.events.events[AT] = SOLD
    service.generations.base["2"] = 100  # the offset after the last that bulk covered
    assert client.get("/views/listings/L1?after=2:100&wait_ms=0").status_code == 503
    service.generations.base["2"] = 101
    assert client.get("/views/listings/L1?after=2:100&wait_ms=0").status_code == 200


def test_a_stream_view_that_has_not_begun_says_so(service: FakeService, stored: MemoryReader) -> None:
    made = replace(service, views={"large_order_lines": large_order_lines})
    service.events.events[AT] = event("order/O1", 1, "order.placed", order_id="O1")

    def waited() -> str:
        with pytest.raises(NotCaughtUp) as behind:
            asyncio.run(made.waiter.wait(large_order_lines, stored, After("2:100", 0)))
        return str(behind.value)

    stored.applied = {}
    assert "Spark starts it with the first record" in waited()
    stored.applied = {partition: {"2": 99} for partition in range(4)}
    assert "Spark" not in waited()


@pytest.mark.parametrize("store", ["elasticsearch", "valkey"])
def test_a_row_s_guard_is_enough(client: AppClient, service: FakeService, store: str) -> None:
    service.events.events[AT] = SOLD
    view = {"elasticsearch": "listing_search", "valkey": "listing_card"}[store]
    reader = service.readers[store]
    reader.rows[view] = {"L1": {"listing_id": "L1"}}
    reader.guards_of["L1"] = {"2": 99}
    assert client.get(f"/views/{view}/L1?after=2:100&wait_ms=30").status_code == 503
    reader.guards_of["L1"] = {"2": 100}
    assert client.get(f"/views/{view}/L1?after=2:100&wait_ms=0").status_code == 200
    assert reader.refreshed == 0


def test_a_search_after_a_position_refreshes(client: AppClient, service: FakeService) -> None:
    service.events.events[AT] = SOLD
    reader = service.readers["elasticsearch"]
    reader.guards_of["L1"] = {"2": 100}
    assert client.get("/views/listing_search/search?q=x&after=2:100").status_code == 200
    assert client.get("/views/listing_search?after=2:100").status_code == 200
    assert reader.refreshed == 2
    client.get("/views/listing_search/search?q=x")
    assert reader.refreshed == 2


def test_a_record_that_is_gone_waits_for_every_ledger(client: AppClient, stored: MemoryReader) -> None:
    stored.applied = {number: {"2": 100} for number in range(3)}
    assert client.get("/views/listings/L1?after=2:100&wait_ms=0").status_code == 503
    stored.applied[3] = {"2": 100}
    assert client.get("/views/listings/L1?after=2:100&wait_ms=0").status_code == 200


def test_several_positions(client: AppClient, service: FakeService, stored: MemoryReader) -> None:
    service.events.events |= {AT: SOLD, Position(1, 7): SOLD}
    partition = patches_partition("listings@1", "L1")
    stored.applied = {partition: {"2": 100}}
    assert client.get("/views/listings/L1?after=2:100,1:7&wait_ms=0").status_code == 503
    stored.applied = {partition: {"2": 100, "1": 8}}
    assert client.get("/views/listings/L1?after=2:100,1:7&wait_ms=0").status_code == 200


def test_waiting_while_the_log_is_away(client: AppClient, service: FakeService) -> None:
    service.events.error = LogUnavailable("reading", "no broker")
    answer = client.get("/views/listings/L1?after=2:100")
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:headwater:problem:log_unavailable")
