"""Views in a real PostgreSQL, one also ranked in Valkey, written by the stores themselves, read over HTTP."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import httpx
import psycopg
import pytest

from headwater.api.reading import KeyReaders, Live, Row, ViewReader
from headwater.api.reads.postgres import Database, PostgresReader
from headwater.api.reads.valkey import ValkeyReader
from headwater.compose.ports import free_port
from headwater.projections.kinds import table_view
from headwater.projections.reading import reader
from headwater.projections.registry import ViewRegistry
from headwater.projections.stores.declared import Cache, Postgres
from headwater.projections.stores.names import table_name
from headwater.projections.stores.open import open_store
from headwater.projections.stores.postgres.store import PostgresStore
from headwater.projections.stores.store import Batch, Target
from headwater.projections.stream.view import BATCH
from headwater.projections.table.patch import BATCHES, Patch, Place
from tests.integration.api.api_deployment import Deployment
from tests.integration.api.api_rows import (
    SOURCES,
    every_row,
    expected,
    load,
    load_sellers,
    load_view,
    wait_for_generation,
)
from tests.support.table_views import table_views
from tests.support.waiting import eventually

VIEWS = ("listings", "city_market", "streams")


@pytest.fixture(scope="module")
def variables() -> Mapping[str, str]:
    """Nobody handles commands here, which is answered soon."""
    return {"HEADWATER_ANSWER_TIMEOUT_S": "1"}


@pytest.fixture(scope="module")
def loaded(deployment: Deployment) -> dict[str, Target]:
    return {name: load(deployment, name, SOURCES) for name in VIEWS}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("limit", [7, 1000])
def test_every_row_equals_the_reference(api: httpx.Client, loaded: dict[str, Target], view: str, limit: int) -> None:
    rows = every_row(api, f"/views/{view}?limit={limit}")
    key = ViewRegistry.load(["listings"]).views[view].key_name
    assert rows == [row for _, row in sorted(expected(view).items(), key=lambda item: item[0].encode())]
    assert len({row[key] for row in rows}) == len(rows)


@pytest.mark.parametrize("sort", ["price", "-price", "-city,price", "sold_for,-price", "-listed_at", "sold_for"])
def test_pages_in_any_order_add_up(api: httpx.Client, loaded: dict[str, Target], sort: str) -> None:
    whole = every_row(api, f"/views/listings?sort={sort}&limit=1000")
    assert every_row(api, f"/views/listings?sort={sort}&limit=4") == whole
    assert len(whole) == 60
    column = sort.split(",", maxsplit=1)[0].removeprefix("-")
    values = [row[column] for row in whole if row[column] is not None]
    if column != "city":  # text is ordered as the database does
        assert values == sorted(values, reverse=sort.startswith("-"))


def test_filters(api: httpx.Client, loaded: dict[str, Target]) -> None:
    wanted = {"city": ["GALT", "o'hara"], "price.gte": "200", "price.lt": "450", "beds.in": ["1", "2", "3"]}
    rows = api.get("/views/listings", params=wanted).json()["rows"]
    assert {row["listing_id"] for row in rows} == {
        key
        for key, row in expected("listings").items()
        if row["city"] in wanted["city"] and 200 <= row["price"] < 450 and row["beds"] in (1, 2, 3)
    }
    assert rows
    since = "2026-01-01T00:00:30+00:00"
    rows = api.get("/views/listings", params={"listed_at.gte": since}).json()["rows"]
    assert {row["listing_id"] for row in rows} == {
        key for key, row in expected("listings").items() if row["listed_at"] >= "2026-01-01T00:00:30.000Z"
    }


@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_row_by_a_strange_key(api: httpx.Client, loaded: dict[str, Target], number: int) -> None:
    key = list(expected("listings"))[number]
    path = f"/views/listings/{httpx.URL('/', params={'k': key}).query.decode()[2:].replace('+', '%20')}"
    assert api.get(path).json() == expected("listings")[key]


@pytest.mark.parametrize("key", ["nobody", "%00", "x" * 20_000, "%F0%9F%8F%A0", "%EF%BF%BD", "a%0Ab"])
def test_no_such_row(api: httpx.Client, loaded: dict[str, Target], key: str) -> None:
    assert api.get(f"/views/listings/{key}").status_code == (422 if key == "%00" else 404)


def test_a_stream_and_its_past(api: httpx.Client, loaded: dict[str, Target]) -> None:
    answer = api.get("/streams/listing/L1")
    assert (answer.status_code, answer.headers["etag"]) == (200, '"2"')
    assert [event["sequence"] for event in answer.json()["events"]] == [1, 2]
    first = api.get("/streams/listing/L1?version=1").json()
    second = api.get("/streams/listing/L1?version=2").json()
    assert second["state"]["price"] == first["state"]["price"] + 50
    assert api.get(f"/streams/listing/L1?at={first['time']}").json() == first


def test_a_swap_shows_and_the_old_generation_s_end_is_survived(api: httpx.Client, deployment: Deployment) -> None:
    def live() -> str:
        return api.get("/views/listings?limit=1").headers["headwater-generation"]

    before = load(deployment, "listings", SOURCES)
    eventually(lambda: live() == str(before.generation), "the new generation answers")
    after = load(deployment, "listings", SOURCES[:10])
    store = PostgresStore(deployment.stores)
    store.drop(before)
    store.close()
    answer = api.get("/views/listings?limit=1000")  # the cached generation is gone: the registry is asked anew
    assert answer.headers["headwater-generation"] == str(after.generation)
    assert len(answer.json()["rows"]) == len(reader.fold(table_view(after.view), SOURCES[:10]))


def test_a_view_made_of_some_events_stands_beside_the_others(
    api: httpx.Client, deployment: Deployment, loaded: dict[str, Target]
) -> None:
    then = table_views()["listings"].named("listings_then")
    load_view(deployment, then, SOURCES[:10], source="listings", selection="until 2026-01-31T12:00:00Z")
    rows = every_row(api, "/views/listings_then?sort=price&limit=3&city.is_null=false")
    assert {row["listing_id"]: row for row in rows} == reader.fold(then, SOURCES[:10])
    described = {entry["name"]: entry for entry in api.get("/views").json()["views"]}
    assert described["listings"]["made"] is None
    made = described["listings_then"]["made"]
    assert made.pop("at").endswith("Z")
    position = "0:1042,1:1042,2:1042,3:1042"
    assert made == {"view": "listings", "selection": "until 2026-01-31T12:00:00Z", "position": position, "current": []}
    assert api.get("/views/listings_then/changes").json()["type"] == "urn:headwater:problem:never_changes"


def test_a_view_that_is_not_built(api: httpx.Client) -> None:
    answer = api.get("/views/listing_card/L1")
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:headwater:problem:generation_missing")


def test_what_nobody_handles_is_answered_in_time(api: httpx.Client) -> None:
    """No handler runs here: the command is in the log, and no receipt comes."""
    answer = api.post("/commands/listing.withdraw", json={"listing_id": "L1"}, headers={"Idempotency-Key": "k1"})
    assert (answer.status_code, answer.json()["type"]) == (504, "urn:headwater:problem:unanswered")
    assert answer.json()["command_id"] == "k1"
    assert api.get("/receipts/k1?stream=listing/L1").status_code == 404


def end_connections(deployment: Deployment) -> int:
    """End those of the API in the server; returns how many there were."""
    with psycopg.connect(deployment.stores.postgres, autocommit=True) as connection:
        ended = connection.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND application_name = %s",
            [f"{deployment.stores.environment}.api"],
        ).fetchone()
    assert ended is not None
    return int(ended[0])


def test_a_broken_connection_is_replaced(api: httpx.Client, deployment: Deployment, loaded: dict[str, Target]) -> None:
    assert end_connections(deployment) >= 1
    assert api.get("/views/listings?limit=1").status_code == 200


def test_queries_are_answered_while_the_server_ends_their_connections(
    api: httpx.Client, deployment: Deployment, loaded: dict[str, Target]
) -> None:
    def read(_: int) -> str:
        answer = api.get("/views/listings?limit=1")
        return answer.text if answer.is_error else ""

    with ThreadPoolExecutor(8) as clients:
        for _ in range(5):
            answers = clients.map(read, range(40))
            assert end_connections(deployment) >= 1
            assert set(answers) == {""}


def test_pages_stay_right_while_rows_come_and_go(api: httpx.Client, deployment: Deployment) -> None:
    """Rows that nobody touches are each seen once, in order, whatever happens to the others meanwhile."""
    target = load(deployment, "listings", SOURCES)
    wait_for_generation(api, "listings", target)
    table = f'"{deployment.stores.environment}"."{table_name("listings", target.generation)}"'
    rows = sorted(expected("listings").values(), key=lambda row: (row["price"], row["listing_id"].encode()))
    still = [row["listing_id"] for number, row in enumerate(rows) if number % 2]
    found: list[str] = []
    path: str | None = "/views/listings?sort=price&limit=7"
    with psycopg.connect(deployment.stores.postgres, autocommit=True) as connection:
        for number in range(100):
            if path is None:
                break
            page = api.get(path).json()
            found += [row["listing_id"] for row in page["rows"]]
            path = page["links"].get("next")
            moved, new = rows[number * 2 % len(rows)]["listing_id"], [f"new{number}", number * 53 % 600]
            connection.execute(f"UPDATE {table} SET price = %s WHERE listing_id = %s", [number * 97 % 600, moved])
            connection.execute(f"DELETE FROM {table} WHERE listing_id = %s", [f"new{number - 1}"])
            connection.execute(f"INSERT INTO {table} (listing_id, price) VALUES (%s, %s)", new)
    assert path is None
    assert [each for each in found if each in set(still)] == still


def test_a_key_is_found_while_the_cache_is_away_or_has_lost_the_view(deployment: Deployment) -> None:
    """A view in two stores, read through the real readers; at first, nobody listens on the port of the cache."""
    name, stores = "listings", deployment.stores
    view = replace(table_views()[name], stores=(Postgres(), Cache()))
    target = load(deployment, name, SOURCES)
    key, row = next(iter(expected(name).items()))

    async def look_up(cache_url: str) -> Row | None:
        database = Database(stores.postgres, stores.environment)
        cache = ValkeyReader(cache_url, stores.environment)
        await database.open()
        readers: dict[str, ViewReader] = {"postgres": PostgresReader(database, stores.environment), "valkey": cache}
        live = Live(view, target.generation, view.tag, {})
        try:
            return (await KeyReaders(readers, view).ask(lambda reader: reader.get_many(live, [key]))).get(key)
        finally:
            await cache.close()
            await database.close()

    assert asyncio.run(look_up(f"valkey://127.0.0.1:{free_port()}")) == row
    assert asyncio.run(look_up(stores.valkey)) == row
    with closing(open_store("valkey", stores)) as store:
        store.create(target, {}, {0: 0})
        assert asyncio.run(look_up(stores.valkey)) == row  # it is incomplete, so the next store is asked
        store.finish(target)
    assert asyncio.run(look_up(stores.valkey)) is None  # it is asked first, and has no row yet


def test_a_leaderboard_is_read_from_valkey_and_without_it_from_postgresql(
    api: httpx.Client, deployment: Deployment
) -> None:
    chance = random.Random(3)
    cents = {f"{name}/{number} %2F": chance.choice((5, 7, 2**53, 2**53 + 1)) for number in range(20) for name in "zäA"}
    target = load_sellers(deployment, cents)
    wait_for_generation(api, "top_sellers", target)
    leaders = sorted(cents, key=lambda key: (-cents[key], key.encode()))
    path = "/views/top_sellers?sort=-cents&limit=7"
    first = api.get(path).json()
    table = f'"{deployment.stores.environment}"."{table_name("top_sellers", target.generation)}"'
    last = leaders[-1]
    with psycopg.connect(deployment.stores.postgres, autocommit=True) as connection:
        connection.execute(f"UPDATE {table} SET pieces = 2")  # so that the rows say where they come from
        every = every_row(api, path)
        assert [row["product"] for row in every] == leaders
        assert {row["pieces"] for row in every} == {1}
        assert {row["pieces"] for row in every_row(api, "/views/top_sellers?sort=cents")} == {2}
    cache = open_store("valkey", deployment.stores)
    cache.apply([target], {0: Batch(2, {target.tag: [Patch(last, BATCHES, Place(2, 0), {BATCH: 2, "cents": 2**60})]})})
    assert api.get(path).json()["rows"][0]["product"] == last
    cache.drop(target)
    cache.close()
    without = every_row(api, path)
    assert [row["product"] for row in without] == leaders
    assert {row["pieces"] for row in without} == {2}
    rest = every_row(api, first["links"]["next"])
    assert [row["product"] for row in [*first["rows"], *rest]] == leaders, (
        "a cursor of one store continues in the other"
    )
