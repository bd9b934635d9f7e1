"""Queries that a ranking answers, over HTTP: which they are, and what answers if the cache cannot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from headwater import INTEGER, TEXT, TIME, Cache, Postgres, Ranking, Topic
from headwater.api.app import create_app
from headwater.api.reading import GenerationGone, NotRanked
from headwater.api.service import Service
from headwater.projections.errors import StoreUnavailable
from headwater.projections.table.declared_store import DeclaredStore
from tests.support.observed import gate_view
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import PARTITIONS, MemoryReader

RANKINGS = Cache(
    rankings=(Ranking("-cents"), Ranking("-cents", within=("day", "shop")), Ranking("at", within=("day",)))
)
DAY = "2026-03-01T00:00:00.000Z"
ROWS: list[dict[str, Any]] = [
    {"product": f"p{number}", "cents": cents, "day": DAY, "shop": f"s{number % 2}", "at": DAY}
    for number, cents in enumerate((3, 5, 5, None, 1))
]


def serving(service: Service, *stores: DeclaredStore) -> Service:
    columns = {"product": TEXT, "cents": INTEGER, "day": TIME, "shop": TEXT, "at": TIME}
    view = gate_view(name="sellers", key="product", columns=columns, stores=stores)
    for each in service.readers.values():
        cast(MemoryReader, each).rows["sellers"] = {str(row["product"]): row for row in ROWS}
    return replace(service, views={**service.views, "sellers": view})


@pytest.fixture
def ranked(service: Service) -> Service:
    return serving(service, Postgres(), RANKINGS, Topic())


def reader(service: Service, name: str) -> MemoryReader:
    return cast(MemoryReader, service.readers[name])


@pytest.fixture
def client(ranked: Service) -> AppClient:
    return AppClient(create_app(ranked))


def products(client: AppClient, query: str) -> list[str]:
    answer = client.get(f"/views/sellers?{query}")
    assert answer.status_code == 200, answer.text
    return [row["product"] for row in answer.json()["rows"]]


@pytest.mark.parametrize(
    "query",
    [
        "sort=-cents",
        "sort=-cents&limit=2",
        "sort=-cents,product",
        "sort=-cents,product,day",  # nothing after the key matters
        "sort=-cents&count=true&fields=product",
        f"sort=-cents&day={DAY}&shop=s1",
        f"sort=-cents&shop=s1&day={DAY}",
        f"sort=-cents&shop.in=s1&day.eq={DAY}&limit=1",
        "sort=-cents&shop=s1&day=2026-03-01T02:00:00%2B02:00",
        f"sort=at&day={DAY}",
    ],
)
def test_a_query_that_fits_is_answered_by_the_ranking(client: AppClient, ranked: Service, query: str) -> None:
    expected = products(client, query)
    assert expected
    reader(ranked, "postgres").rows.clear()
    assert products(client, query) == expected


@pytest.mark.parametrize(
    "query",
    [
        "",
        "sort=cents",
        "sort=-cents,-product",
        "sort=-cents,shop",
        "sort=-cents,at,product",
        "sort=product",
        "sort=-at",
        "sort=at",  # of each day only
        "sort=-cents&cents.gt=1",
        "sort=-cents&shop=s1",
        f"sort=-cents&day={DAY}",
        f"sort=-cents&day={DAY}&shop=s1&shop=s2",
        f"sort=-cents&day={DAY}&shop.ne=s2",
        f"sort=-cents&day={DAY}&shop=s1&product.gt=a",
        f"sort=-cents&day={DAY}&or=(shop=s1)",
        f"sort=-cents&day.gte={DAY}&shop=s1",
        f"sort=at&day={DAY}&shop=s1",
        f"sort=at&day={DAY}&day.lte={DAY}",
        "sort=at&day.is_null=false",
    ],
)
def test_any_other_query_is_answered_by_the_store_that_sorts(client: AppClient, ranked: Service, query: str) -> None:
    expected = products(client, query)
    assert expected
    reader(ranked, "valkey").rows.clear()
    assert products(client, query) == expected


def test_a_filter_for_part_of_a_millisecond_is_no_ranking(client: AppClient, ranked: Service) -> None:
    reader(ranked, "valkey").errors = [AssertionError("asked")]
    assert products(client, "sort=at&day=2026-03-01T00:00:00.0005Z") == []


def test_a_view_without_rankings_asks_its_first_store(service: Service) -> None:
    plain = serving(service, Postgres(), Cache())
    reader(plain, "valkey").errors = [AssertionError("asked")]
    assert products(AppClient(create_app(plain)), "sort=-cents&limit=2") == ["p1", "p2"]


def test_pages_go_on_in_the_other_store(ranked: Service) -> None:
    client, cache = AppClient(create_app(ranked)), reader(ranked, "valkey")
    found, path = [], "/views/sellers?sort=-cents&limit=2"
    while path:
        page = client.get(path).json()
        found += [row["product"] for row in page["rows"]]
        path = page["links"].get("next", "")
        cache.errors = [StoreUnavailable("Valkey", "gone")] if not cache.errors else []
    assert found == ["p1", "p2", "p0", "p4", "p3"]


@pytest.mark.parametrize("error", [StoreUnavailable("Valkey", "gone"), NotRanked()])
def test_another_store_answers_if_the_cache_cannot(ranked: Service, error: Exception) -> None:
    cache, database = reader(ranked, "valkey"), reader(ranked, "postgres")
    app = create_app(ranked)
    cache.errors = [error]
    assert len(AppClient(app).get("/views/sellers?sort=-cents").json()["rows"]) == 5
    assert not cache.errors
    database.rows.clear()
    # a store that did not answer is skipped for a while; one without this ranking is not
    again = AppClient(app).get("/views/sellers?sort=-cents").json()["rows"]
    assert len(again) == (0 if isinstance(error, StoreUnavailable) else 5)


def test_a_generation_that_is_gone_is_read_from_the_registry_again(client: AppClient, ranked: Service) -> None:
    reader(ranked, "valkey").errors = [NotRanked()]
    reader(ranked, "postgres").errors = [GenerationGone("dropped")]
    assert products(client, "sort=-cents&limit=1") == ["p1"]


def test_after_waits_for_the_store_that_answers(ranked: Service) -> None:
    client, source = AppClient(create_app(ranked)), "observations/2"
    cache, database = reader(ranked, "valkey"), reader(ranked, "postgres")
    database.applied = {partition: {source: 100} for partition in range(PARTITIONS)}
    waiting = f"after={source}:100&wait_ms=0"
    assert client.get(f"/views/sellers?sort=cents&{waiting}").status_code == 200
    assert client.get(f"/views/sellers?sort=-cents&{waiting}").status_code == 503
    cache.applied = {partition: {source: 100} for partition in range(PARTITIONS)}
    assert client.get(f"/views/sellers?sort=-cents&{waiting}").status_code == 200


def test_a_view_in_the_cache_only_is_found_by_its_rankings(service: Service) -> None:
    only = serving(service, RANKINGS)
    client = AppClient(create_app(only))
    assert products(client, "sort=-cents&limit=3") == ["p1", "p2", "p0"]
    refused = client.get("/views/sellers?sort=cents")
    assert refused.status_code == 400
    assert "queries that fit a ranking exactly: -cents, -cents/day,shop, at/day" in refused.json()["detail"]
    assert refused.json()["type"] == "urn:headwater:problem:key_only"
    reader(only, "valkey").errors = [NotRanked()]
    missing = client.get("/views/sellers?sort=-cents")
    assert (missing.status_code, missing.json()["type"]) == (503, "urn:headwater:problem:generation_missing")
    assert "/views/sellers" in client.get("/openapi.json").json()["paths"]
    key_only = AppClient(create_app(serving(service, Cache())))
    assert key_only.get("/views/sellers?sort=-cents").json()["type"] == "urn:headwater:problem:key_only"
    assert "/views/sellers" not in key_only.get("/openapi.json").json()["paths"]
