"""Views in a real Elasticsearch and Valkey, written by the stores themselves, read over HTTP."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import quote

import httpx
import orjson
import pytest
from elasticsearch import Elasticsearch

from headwater.eventlog.envelope import Envelope, Position, partition_of
from headwater.projections.stores.names import index_name
from headwater.projections.stores.store import Target
from headwater.projections.table.expressions import Source
from tests.integration.api.api_deployment import Deployment
from tests.integration.api.api_rows import SOURCES, every_row, expected, load, make_visible, wait_for_generation

VIEWS = ("listing_search", "listing_card")


@pytest.fixture(scope="module")
def loaded(deployment: Deployment) -> dict[str, Target]:
    return {name: load(deployment, name, SOURCES) for name in VIEWS}


@pytest.fixture(scope="module")
def search(api: httpx.Client, deployment: Deployment, loaded: dict[str, Target]) -> httpx.Client:
    wait_for_generation(api, "listing_search", loaded["listing_search"])
    make_visible(deployment, loaded["listing_search"])
    return api


@pytest.mark.complete
@pytest.mark.parametrize("view", VIEWS)
def test_every_row_by_its_key_equals_the_reference(api: httpx.Client, loaded: dict[str, Target], view: str) -> None:
    rows = expected(view)
    assert rows
    for source in SOURCES:
        key = source.envelope.stream.removeprefix("listing/")
        answer = api.get(f"/views/{view}/{quote(key, safe='')}")
        assert answer.status_code == (200 if key in rows else 404), (key, answer.text)
        assert key not in rows or answer.json() == rows[key]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("key", ["nobody", "x" * 20_000, "", "%F0%9F%8F%A0", "%EF%BF%BD", "_doc", "*"])
def test_no_such_row(api: httpx.Client, loaded: dict[str, Target], view: str, key: str) -> None:
    assert api.get(f"/views/{view}/{key}").status_code == 404


@pytest.mark.parametrize("limit", [7, 1000])
@pytest.mark.parametrize("path", ["/views/listing_search", "/views/listing_search/search"])
def test_every_row_is_found(search: httpx.Client, path: str, limit: int) -> None:
    rows = every_row(search, f"{path}?limit={limit}")
    assert rows == [row for _, row in sorted(expected("listing_search").items(), key=lambda item: item[0].encode())]


@pytest.mark.parametrize(
    "query",
    [
        "sort=price",
        "sort=-city,price",
        "sort=-beds,-square_feet",
        "sort=description",
        "q=number",
        "q=condo&sort=-relevance,price",
        "near=38.5,-121.25",
        "near=38.5,-121.25&sort=-distance,price",
        "near=38.5,-121.25&within_km=1&q=number&price.gte=200",
    ],
)
def test_pages_in_any_order_add_up(search: httpx.Client, query: str) -> None:
    whole = every_row(search, f"/views/listing_search/search?{query}&limit=1000")
    assert len(whole) > 5
    assert every_row(search, f"/views/listing_search/search?{query}&limit=4") == whole


def found(search: httpx.Client, **parameters: Any) -> dict[str, Any]:
    answer = search.get("/views/listing_search/search", params={"limit": 1000} | parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()  # type: ignore[no-any-return]


def test_words_in_any_text_column(search: httpx.Client) -> None:
    rows = expected("listing_search")
    one = found(search, q="galt number 12")
    assert {row["listing_id"] for row in one["rows"]} == {
        key for key, row in rows.items() if row["city"] == "GALT" and row["description"] == "number 12"
    }
    assert found(search, q="NUMBER")["total"] == len(rows)
    assert found(search, q="nowhere")["rows"] == []
    for strange in ('"', "AND OR NOT", "a:b", "*", "\\", "((", "日本 🏠", "/", "%"):
        found(search, q=strange)


def test_filters_place_and_facets(search: httpx.Client) -> None:
    rows = expected("listing_search")
    cities = ["GALT", "o'hara"]
    wanted = {"city": cities, "price.gte": 200, "price.lt": 450, "beds.in": [1, 2, 3]}
    matching = [
        row for row in rows.values() if row["city"] in cities and 200 <= row["price"] < 450 and row["beds"] in (1, 2, 3)
    ]
    page = found(search, **wanted, near="38.5,-121.25", within_km=1)
    assert sorted(row["listing_id"] for row in page["rows"]) == sorted(row["listing_id"] for row in matching)
    assert page["total"] == len(matching)
    counts = {facet["value"]: facet["count"] for facet in page["facets"]["city"]}
    assert counts == {city: [row["city"] for row in matching].count(city) for city in {r["city"] for r in matching}}
    assert set(page["facets"]) == {"city", "property_type", "status", "beds"}
    assert found(search, near="-38.5,121.25", within_km=100)["total"] == 0


def test_a_search_tells_how_each_row_matches(search: httpx.Client) -> None:
    page = found(search, q="number 12", highlight="true", near="38.6,-121.25", fields="listing_id")
    assert page["rows"]
    for row, match in zip(page["rows"], page["matches"], strict=True):
        assert set(row) == {"listing_id"}
        assert "<em>number</em>" in match["highlights"]["description"][0]
        assert match["score"] > 0
        assert match["distance_km"] == pytest.approx(11.12, abs=0.05)  # a tenth of a degree of latitude


@pytest.mark.parametrize("view", VIEWS)
def test_any_keys_at_once(api: httpx.Client, loaded: dict[str, Target], view: str) -> None:
    rows = expected(view)
    keys = [*list(rows)[:50], "search", "changes", "rows", "", "..", "nobody"]
    answer = api.get(f"/views/{view}/rows", params={"key": keys})
    assert answer.json()["rows"] == [rows.get(key) for key in keys]


def test_a_forged_cursor(search: httpx.Client) -> None:
    query = "/views/listing_search?sort=price&limit=2"
    cursor = search.get(query).json()["next"]
    document = orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    wrong: list[list[object]] = [
        ["x", "L1"],
        [1],
        [1, 2, 3],
        [{}, "L1"],
        [[], []],
        [None, None],
        [1.5, "L1"],
        [True, 1e300],
    ]
    for values in wrong:
        forged = base64.urlsafe_b64encode(orjson.dumps([document[0], *values])).rstrip(b"=").decode()
        assert search.get(f"{query}&cursor={forged}").status_code in (200, 422), values


@pytest.mark.parametrize("view", VIEWS)
def test_after_a_position(api: httpx.Client, loaded: dict[str, Target], view: str, deployment: Deployment) -> None:
    """The log here holds none of these events, so every ledger must have the position: only some do."""
    source = SOURCES[-1]
    late = api.get(f"/views/{view}/L1?after={source.position}&wait_ms=50")
    assert late.status_code == 503
    assert late.json()["type"] == "urn:headwater:problem:not_caught_up"
    assert isinstance(late.json()["lag_events"], int)


def test_a_key_longer_than_an_id_may_be(api: httpx.Client, deployment: Deployment) -> None:
    key = "ü" * 400
    first = SOURCES[0]
    stream = f"listing/{key}"
    data = dict(first.envelope.data) | {"listing_id": key}
    envelope = Envelope(f"{stream}/1", first.envelope.type, stream, first.envelope.time, data, sequence=1)
    source = Source(envelope, Position(partition_of(stream, 4), 900), first.timestamp_ms, "")
    wait_for_generation(api, "listing_search", load(deployment, "listing_search", [source]))
    answer = api.get(f"/views/listing_search/{quote(key)}")
    assert (answer.status_code, answer.json()["listing_id"]) == (200, key)


def test_pages_stay_right_while_documents_come_and_go(api: httpx.Client, deployment: Deployment) -> None:
    """Rows that nobody touches are each seen once, in order, whatever happens to the others meanwhile."""
    target = load(deployment, "listing_search", SOURCES)
    wait_for_generation(api, "listing_search", target)
    rows = sorted(expected("listing_search").values(), key=lambda row: (row["price"], row["listing_id"].encode()))
    still = [row["listing_id"] for number, row in enumerate(rows) if number % 2]
    index, seen = index_name(deployment.stores.environment, "listing_search", target.generation), list[str]()
    path: str | None = "/views/listing_search?sort=price&limit=7"
    with Elasticsearch(deployment.stores.elasticsearch) as client:
        client.indices.refresh(index=index)
        for number in range(100):
            if path is None:
                break
            page = api.get(path).json()
            seen += [row["listing_id"] for row in page["rows"]]
            path = page["links"].get("next")
            moved, new = rows[number * 2 % len(rows)], {"listing_id": f"new{number}", "price": number * 53 % 600}
            client.index(index=index, id=moved["listing_id"], document=moved | {"price": number * 97 % 600})
            client.index(index=index, id=f"new{number}", document=new)
            client.indices.refresh(index=index)
    assert path is None
    assert [each for each in seen if each in set(still)] == still
