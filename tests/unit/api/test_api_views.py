"""Views and streams over HTTP, with the stores in memory."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import orjson
import pytest

from headwater.api.reading import GenerationGone, Made
from headwater.api.requests.filters import operators
from headwater.api.service import Service
from headwater.projections.errors import StoreUnavailable
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.conftest import listing
from tests.unit.api.fake_service import FakeService, MemoryReader

THEN = Made(
    name="listings_then",
    source="listings",
    version=1,
    selection="until 2026-01-31T12:00:00Z",
    positions={"1": 977, "0": 1042},
    at=datetime(2026, 2, 1, tzinfo=UTC),
)


def keys(client: AppClient, query: str) -> list[str]:
    answer = client.get(f"/views/listings?{query}")
    assert answer.status_code == 200, answer.text
    return [row["listing_id"] for row in answer.json()["rows"]]


def test_views_are_listed(client: AppClient, service: FakeService) -> None:
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


def test_a_view_made_from_some_events_answers_as_the_one_it_was_made_from(
    client: AppClient, stored: MemoryReader, service: FakeService
) -> None:
    service.generations.made_views["listings_then"] = THEN
    stored.rows["listings_then"] = {"a/b ü": {**stored.rows["listings"]["a/b ü"], "price": 1}}
    answer = client.get(f"/views/listings_then/{quote('a/b ü', safe='')}")
    assert (answer.status_code, answer.json()["price"]) == (200, 1)
    assert [row["price"] for row in client.get("/views/listings_then?price.lte=5").json()["rows"]] == [1]
    assert client.get("/views/listings_then/nobody").status_code == 404
    assert client.get("/views/listings_then?nothing=1").status_code == 422
    rows = client.get("/views/listings_then/rows?key=nobody&key=a/b ü&fields=price").json()["rows"]
    assert rows == [None, {"price": 1}]
    assert client.get("/views/listings_then/search").json()["type"] == "urn:headwater:problem:no_search"


def test_a_view_made_from_some_events_is_listed_with_what_it_has(client: AppClient, service: FakeService) -> None:
    service.generations.made_views |= {
        "listings_then": THEN,
        "of_another": replace(THEN, name="of_another", source="gone"),
        "old": replace(THEN, name="old", version=0),
    }
    views = {view["name"]: view for view in client.get("/views").json()["views"]}
    assert list(views) == sorted(views)
    assert not {"of_another", "old"} & set(views), "their columns are not known"
    assert views["listings"]["made"] is None
    assert views["listings_then"]["columns"] == views["listings"]["columns"]
    assert views["listings_then"]["made"] == {
        "view": "listings",
        "selection": "until 2026-01-31T12:00:00Z",
        "position": "0:1042,1:977",
        "at": "2026-02-01T00:00:00.000Z",
        "current": [],
    }
    assert client.get("/views/of_another").json()["type"] == "urn:headwater:problem:unknown_view"
    earlier = client.get("/views/old/L1").json()
    assert (earlier["status"], earlier["type"]) == (409, "urn:headwater:problem:made_earlier")
    assert "replay rebuild listings --as old" in earlier["detail"]


def test_what_stays_as_it_is_has_no_changes_to_follow(client: AppClient, service: FakeService) -> None:
    service.generations.made_views["listings_then"] = THEN
    problem = client.get("/views/listings_then/changes").json()
    assert (problem["status"], problem["type"]) == (409, "urn:headwater:problem:never_changes")
    assert "/views/listings/changes" in problem["detail"]
    assert client.get("/views/nothing/changes").json()["type"] == "urn:headwater:problem:unknown_view"


def test_every_filter_is_documented(client: AppClient, service: Service) -> None:
    document = client.get("/openapi.json").json()
    for name in ("listings", "city_market"):
        known = {entry["name"]: entry for entry in document["paths"][f"/views/{name}"]["get"]["parameters"]}
        columns = service.views[name].types.items()
        wanted = {
            f"{column}.{operator}" for column, kind in columns for operator in operators(kind) if operator != "eq"
        }
        assert wanted | {"or", "count"} <= set(known)
    assert {known["city.in"]["explode"], known["city.not_in"]["explode"]} == {False}
    assert known["city.is_null"]["schema"] == {"type": "boolean"}


def test_made_views_are_documented(client: AppClient, service: Service) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert {f"/views/{{view}}{rest}" for rest in ("", "/rows", "/search", "/{key}")} <= set(paths)


@pytest.mark.parametrize("key", ["nobody", "", "x" * 10_000, "%EF%BF%BD", "日本", "..%2F..%2Fetc", "%0A"])
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
        ("city.in=GALT,LODI", ["L1", "L2", "L4", "a/b ü"]),
        ("city.in=%22GALT%22,x", ["L1", "L2"]),
        ("price.is_null=true", ["L4"]),
        ("price.ne=3", ["L2", "a/b ü"]),
        ("price.not_in=1,2", ["L1", "L3"]),
        ("city.prefix=E&city.prefix=L", ["L3", "L4", "a/b ü"]),
        ("city.iprefix=g", ["L1", "L2"]),
        ("city.ieq=galt", ["L1", "L2"]),
        ("or=(price.is_null=true,city=GALT)&or=(price=1,price.is_null=true)", ["L2", "L4"]),
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
        ("or=(price.near=1)", "or", "price.gte"),
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
        ("count=1", "count", None),
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


def test_a_count_is_of_all_pages(client: AppClient, stored: MemoryReader) -> None:
    page = client.get("/views/listings?price.gte=2&limit=2&count=true").json()
    assert (page["total"], len(page["rows"])) == (3, 2)
    following = client.get(page["links"]["next"]).json()
    assert (following["total"], len(following["rows"])) == (3, 1)
    assert "total" not in client.get("/views/listings?limit=2").json()


def test_a_cursor_belongs_to_its_query(client: AppClient, stored: MemoryReader) -> None:
    cursor = client.get("/views/listings?sort=price&limit=2").json()["next"]
    assert client.get(f"/views/listings?sort=price&limit=3&cursor={cursor}").status_code == 200
    for other in ("sort=-price", "sort=price&city=GALT", "sort=price&or=(city=GALT)", "sort=price&city.ne=GALT", ""):
        assert client.get(f"/views/listings?{other}&cursor={cursor}").status_code == 422


def test_a_cursor_with_other_types_is_refused(client: AppClient, stored: MemoryReader) -> None:
    import base64

    cursor = client.get("/views/listings?sort=price&limit=2").json()["next"]
    document = orjson.loads(base64.urlsafe_b64decode(cursor + "=="))
    wrong = (["x", "L1"], [1, 2], [1, None, 3], [1], [1, None], [None, None], [{}, "L1"], [2**70, "L1"], [1, "a\0"])
    for values in (*wrong, [None, "L1"]):
        forged = base64.urlsafe_b64encode(orjson.dumps([document[0], *map(_small, values)])).rstrip(b"=").decode()
        answer = client.get(f"/views/listings?sort=price&limit=2&cursor={forged}")
        assert answer.status_code == (422 if values in wrong else 200), values


def _small(value: Any) -> Any:
    return float(value) if isinstance(value, int) and value > 2**64 else value


def test_a_view_in_valkey_answers_by_key_only(client: AppClient, service: FakeService) -> None:
    problem = client.get("/views/listing_card?city=GALT").json()
    assert (problem["status"], problem["type"]) == (400, "urn:headwater:problem:key_only")
    assert "/views/listing_card/rows?key=" in problem["detail"]
    cache = service.readers["valkey"]
    cache.rows["listing_card"] = {"L1": {"listing_id": "L1", "city": "GALT"}}
    assert client.get("/views/listing_card/L1").json()["city"] == "GALT"


def test_a_search(client: AppClient, service: FakeService) -> None:
    index = service.readers["elasticsearch"]
    index.rows["listing_search"] = {"L1": {"listing_id": "L1", "city": "GALT", "price": 1}}
    query = "q=garden&near=38.6,-121.4&within_km=5&sort=distance,-relevance&price.gte=1&facet="
    found = client.get(f"/views/listing_search/search?{query.removesuffix('&facet=')}").json()
    assert (found["total"], found["rows"][0]["listing_id"]) == (1, "L1")
    assert found["matches"] == [{"score": 1.0}]
    for nothing_asked in ("", "?price.gte=1", "?q=garden&sort=price"):
        assert "matches" not in client.get(f"/views/listing_search/search{nothing_asked}").json()
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


def test_a_store_away_and_a_view_not_built(client: AppClient, service: FakeService) -> None:
    reader = service.readers["postgres"]
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


def test_behind_a_proxy_paths_and_links_have_its_prefix(client: AppClient, stored: MemoryReader) -> None:
    behind = AppClient(client.app, root_path="/homes")
    for path in (
        "/views/listings/L1",
        "/views",
        "/streams/listing/L1",
        "/receipts/unknown?stream=listing/L1",
        "/health/live",
    ):
        assert behind.get(f"/homes{path}").status_code == client.get(path).status_code, path
    assert behind.get("/homes/views/listings/L1").status_code == 200
    page = behind.get("/homes/views/listings?limit=1").json()
    assert page["links"]["next"].startswith("/homes/views/listings?")
    assert len(behind.get(page["links"]["next"]).json()["rows"]) == 1


def test_a_view_without_elasticsearch_has_no_search(client: AppClient, stored: MemoryReader) -> None:
    stored.rows["listings"]["search"] = listing("search", city="GALT")
    answer = client.get("/views/listings/search?q=condo")
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:headwater:problem:no_search")
    assert "has no search" in answer.json()["detail"]
    assert client.get("/views/listings/rows?key=search").json()["rows"][0]["city"] == "GALT"
    assert "/views/listings/search" not in client.get("/openapi.json").json()["paths"]
