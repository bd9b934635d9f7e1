"""What clients send and ask for is bounded in time and memory, for all of them and for each caller."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import orjson
import pytest
from fastapi.openapi.utils import get_openapi

from headwater.api import limits, lookups, reading, served_views
from headwater.api.app import create_app
from headwater.api.errors import Overloaded, TooManyFollowers
from headwater.api.guard.caller import ANYONE, Caller
from headwater.api.guard.scopes import EVERYTHING
from headwater.api.limits import Admission, Limits, Shared, Work, working_for
from headwater.api.openapi import documentation
from headwater.api.reads.postgres import Database
from headwater.api.reads.registry import LiveGenerations
from headwater.api.requests.body import Bodies
from headwater.api.routes import health
from headwater.api.served_views import ServedViews
from headwater.commands.declaring.faults import MAX_FAULTS
from headwater.projections.errors import StoreUnavailable
from tests.support.table_views import table_views
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import FakeService, catch_up, fake_service

FORM = {"content-type": "application/x-www-form-urlencoded", "sec-fetch-site": "same-origin"}
JSON = {"content-type": "application/json"}


async def never_ending(first: bytes = b"key=") -> AsyncIterator[bytes]:
    yield first
    await asyncio.sleep(3600)


@pytest.mark.parametrize(
    ("path", "headers"),
    [("/console/sign-in", FORM), ("/commands/listing.sell", JSON), ("/observations/listing_viewed", JSON)],
)
def test_a_body_that_never_ends_is_refused_in_time(path: str, headers: dict[str, str]) -> None:
    client = AppClient(create_app(fake_service(Limits(body_s=0.01))))
    answer = client.post(path, content=never_ending(), headers=headers)
    assert answer.status_code == 408 and "body" in answer.text


@pytest.mark.parametrize(
    ("path", "headers"),
    [("/console/sign-in", FORM), ("/commands/listing.sell", JSON), ("/observations/listing_viewed", JSON)],
)
def test_bodies_hold_a_bounded_number_of_bytes(path: str, headers: dict[str, str]) -> None:
    work = Work(bodies=Admission("requests with a body", 10, 0, size_bytes=1_000))
    client = AppClient(create_app(replace(fake_service(), work=work)))
    body = b"x" * 1_001 if headers is FORM else orjson.dumps({"listing_id": "x" * 1_001})
    answer = client.post(path, content=body, headers=headers)
    assert answer.status_code == 503 and "bytes of requests with a body" in answer.text
    assert client.post(path, content=body[:900], headers=headers).status_code != 503, "they were given back"


def test_one_caller_leaves_some_of_everything_to_others() -> None:
    async def scenario() -> None:
        admission = Admission("reads", 8, 8, size_bytes=100)
        async with AsyncExitStack() as stack:
            with working_for("greedy"):
                for _ in range(6):
                    place = await stack.enter_async_context(admission.place())
                waiting = [asyncio.create_task(admission.place().__aenter__()) for _ in range(6)]
                await asyncio.sleep(0)
                with pytest.raises(Overloaded, match="12 reads of this caller"):
                    await admission.place().__aenter__()
                place.take(75)
                with pytest.raises(Overloaded, match="75 bytes of reads of this caller"):
                    place.take(1)
            with working_for("another"):
                async with asyncio.timeout(60), admission.place() as other, admission.place():
                    other.take(25)
                    with pytest.raises(Overloaded, match="100 bytes of reads are"):
                        other.take(1)
            assert not any(each.done() for each in waiting)
            for each in waiting:
                each.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        with working_for("greedy"):  # all of it was given back
            async with admission.place() as place:
                place.take(75)

    asyncio.run(scenario())


def test_callers_that_are_not_known_share_all_of_it() -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            admission = Admission("reads", 2, 0)
            for _ in range(2):
                await stack.enter_async_context(admission.place())

    asyncio.run(scenario())


def test_one_caller_whose_values_wait_for_keys_leaves_threads_to_others() -> None:
    blocked = threading.Event()

    async def scenario() -> None:
        bodies = Bodies()
        with working_for("greedy"):
            waiting = [asyncio.create_task(bodies.read(1, blocked.wait, 60.0, waits=True)) for _ in range(100)]
        await asyncio.sleep(0)
        with working_for("another"):
            async with asyncio.timeout(60):
                assert await bodies.read(1, str.upper, "read", waits=True) == "READ"
        assert not any(each.done() for each in waiting)
        blocked.set()
        await asyncio.gather(*waiting)
        bodies.close()

    asyncio.run(scenario())


def test_one_caller_leaves_followers_to_others() -> None:
    service = fake_service()
    catch_up(service)
    service.feeds._max_followers = 4
    view, first, second = service.views["listings"], Caller("greedy", EVERYTHING), Caller("another", EVERYTHING)

    async def scenario() -> None:
        for _ in range(3):
            await service.feeds.follow(view, None, None, first)
        with pytest.raises(TooManyFollowers) as refused:
            await service.feeds.follow(view, None, None, first)
        assert refused.value.limit == 3
        service.feeds.leave(await service.feeds.follow(view, None, None, second))
        await service.feeds.close()

    asyncio.run(scenario())


def test_no_pool_is_smaller_than_what_is_admitted() -> None:
    assert Database("postgresql://nowhere", "here")._pool.max_size >= Work().reads["postgres"].at_once


def test_a_store_that_does_not_answer_holds_no_place_of_another(
    service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    catch_up(service)
    asked = asyncio.Event()

    async def never(*_: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    async def scenario() -> None:
        views = ServedViews(replace(service, work=(work := Work(reads=defaultdict(lambda: Admission("reads", 1, 1))))))
        searched = next(each for each in views.declared.values() if each.searcher is not None)
        monkeypatch.setattr(searched.searcher, "search", never)
        hanging = asyncio.create_task(searched.search(ANYONE, [("q", "x")]))
        await asked.wait()
        async with asyncio.timeout(60):
            assert not (await views.declared["listings"].find(ANYONE, [])).rows
        assert work.reads["elasticsearch"] is not work.reads["postgres"]
        hanging.cancel()
        await asyncio.gather(hanging, return_exceptions=True)

    asyncio.run(scenario())


class Registry:
    """A database that is away; looks: how often it was asked."""

    looks = 0

    async def rows(self, *_: object) -> list[Any]:
        self.looks += 1
        await asyncio.sleep(0.01)
        raise StoreUnavailable("PostgreSQL", "away")


@pytest.mark.parametrize("fresh", [False, True])
def test_requests_share_one_failed_look_at_the_registry(fresh: bool) -> None:
    registry = Registry()

    async def scenario() -> None:
        generations = LiveGenerations(registry, "here")  # type: ignore[arg-type]
        view = table_views()["listings"]
        found = await asyncio.gather(*(generations.live(view, fresh) for _ in range(100)), return_exceptions=True)
        assert {type(each) for each in found} == {StoreUnavailable}

    asyncio.run(scenario())
    assert registry.looks == 1


def test_a_fresh_answer_is_of_a_look_that_began_later() -> None:
    began, go_on = list[int](), asyncio.Event()

    async def look() -> int:
        began.append(len(began))
        number = began[-1]
        await go_on.wait()
        return number

    async def scenario() -> None:
        shared = Shared(look, 60)
        first = asyncio.create_task(shared.current())
        await asyncio.sleep(0.001)
        later = [asyncio.create_task(shared.current(fresh=True)) for _ in range(3)]
        await asyncio.sleep(0.001)
        go_on.set()
        assert await first == 0 and await asyncio.gather(*later) == [1, 1, 1]
        assert await shared.current() == 1

    asyncio.run(scenario())


def test_readiness_is_looked_at_once_a_second(service: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "LOOK_S", 60.0)
    looks = 0

    async def slow_code() -> Sequence[str]:
        nonlocal looks
        looks += 1
        return ()

    monkeypatch.setattr(service.events, "slow_code", slow_code)
    catch_up(service)
    client = AppClient(create_app(replace(service)))
    assert {client.get("/health/ready").status_code for _ in range(5)} == {200}
    assert looks == 1


def test_the_openapi_document_is_made_once_and_not_in_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    makers, make = list[threading.Thread](), get_openapi

    def noted(**given: Any) -> dict[str, Any]:
        makers.append(threading.current_thread())
        return make(**given)

    monkeypatch.setattr(documentation, "get_openapi", noted)
    app = create_app(fake_service())
    texts = {AppClient(app).get("/openapi.json").content for _ in range(3)}
    assert len(texts) == 1 and len(makers) == 1 and makers[0] is not threading.main_thread()
    assert orjson.loads(texts.pop()) == app.openapi()
    behind = AppClient(app, root_path="/prefix").get("/prefix/openapi.json").json()
    assert behind["servers"] == [{"url": "/prefix"}] and "servers" not in app.openapi()


def test_only_the_first_faults_are_made(client: AppClient) -> None:
    body = b'{"listing_id": "L1", "sold_for": [' + b",".join([b"9" * 21] * 10_000) + b"]}"
    answer = client.post("/commands/listing.sell", content=body, headers=JSON)
    assert answer.status_code == 422 and answer.json()["error_count"] == 10_000
    assert len(answer.json()["errors"]) == MAX_FAULTS
    report = b'{"id": "1", "source": "s", "data": {"listing_id": "L1", "seconds": ' + b"9" * 21 + b"}}"
    assert client.post("/observations/listing_viewed", content=report, headers=JSON).json()["error_count"] == 1


HOMES = {f"H{number}": {"listing_id": f"H{number}", "city": "GALT", "price": number} for number in range(40)}
TEXT = "x" * 1_000


@pytest.fixture
def homes(monkeypatch: pytest.MonkeyPatch) -> FakeService:
    """Homes in a city whose looked-up columns have a kilobyte; an answer may have ten of them."""
    for module in (limits, lookups, reading, served_views):
        monkeypatch.setattr(module, "MAX_PAGE_BYTES", 10 * (sys.getsizeof(TEXT) + 200))
    service = fake_service(modules=["listings", "tests.support.looked_up"])
    for name in ("postgres", "elasticsearch", "valkey"):
        cities = {"GALT": {"city": "GALT", "listed": TEXT, "price": 300}}
        service.readers[name].rows = {
            **{f"homes_in_{store}": HOMES for store in service.readers},
            **{f"cities_in_{store}": cities for store in (*service.readers, "both")},
        }
    return service


def test_a_page_is_measured_with_its_looked_up_columns(homes: FakeService) -> None:
    client, path = AppClient(create_app(homes)), "/views/homes_in_postgres?limit=40"
    found, pages = list[Mapping[str, Any]](), 0
    while path:
        page = client.get(path).json()
        assert 1 <= len(page["rows"]) <= 10
        found += page["rows"]
        path, pages = page["links"].get("next", ""), pages + 1
    assert sorted(row["listing_id"] for row in found) == sorted(HOMES) and pages >= 4


def test_rows_by_key_that_are_too_large_together_are_refused(homes: FakeService) -> None:
    client = AppClient(create_app(homes))

    def read(number: int) -> Any:
        return client.get("/views/homes_in_postgres/rows?" + "&".join(f"key={key}" for key in list(HOMES)[:number]))

    assert read(1).status_code == 200
    refused = read(40)
    assert (refused.status_code, refused.json()["parameter"]) == (422, "key")
    assert "send several requests" in refused.json()["detail"]


def test_rows_by_key_are_not_all_read_at_once(homes: FakeService) -> None:
    large = {key: {**row, "city": TEXT} for key, row in HOMES.items()}
    for reader in homes.readers.values():
        reader.rows["homes_in_postgres"] = large
    query = "&".join(f"key={key}" for key in large)
    answer = AppClient(create_app(homes)).get(f"/views/homes_in_postgres/rows?fields=city&{query}")
    assert answer.status_code == 422
    assert sum(len(keys) for view, keys in homes.readers["postgres"].many if view == "homes_in_postgres") < len(large)
