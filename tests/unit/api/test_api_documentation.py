"""The OpenAPI document keeps to what is declared, and the page that shows it needs nothing but this service."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin, urlsplit

import jsonschema_rs
import orjson
import pytest

from headwater.api.app import create_app
from headwater.api.openapi.documentation import operations
from headwater.api.openapi.documents import accepted
from headwater.api.service import Service
from headwater.commands.receipt import ReceiptError
from headwater.eventlog.envelope import encode
from headwater.samples.listings.domain import listing
from tests.support.domains import SHIPPED
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import FakeService, catch_up, event, fake_service, receipt


@pytest.fixture(scope="module")
def service() -> FakeService:
    return fake_service(modules=SHIPPED)


@pytest.fixture(scope="module")
def client(service: FakeService) -> AppClient:
    return AppClient(create_app(service))


@pytest.fixture
def document(client: AppClient) -> dict[str, Any]:
    return client.get("/openapi.json").json()  # type: ignore[no-any-return]


class References(HTMLParser):
    """What a page loads or leads to."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found += [text for name, text in attributes if name in ("src", "href") and text]


def test_the_page_and_all_that_it_loads_come_from_the_service(client: AppClient) -> None:
    page = client.get("/docs")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assets = References(page.text).found
    assert {asset.rpartition(".")[2] for asset in assets} == {"js", "css", "png"}
    (document,) = re.findall(r"url: '([^']+)'", page.text)
    for asset in (*assets, document):
        answer = client.get(asset)
        assert urlsplit(asset).netloc == "", asset
        assert (answer.status_code, len(answer.content) > 1000) == (200, True), asset
    styles = client.get(next(asset for asset in assets if asset.endswith(".css"))).text
    loaded = re.findall(r"url\(\s*['\"]?([^'\")]*)|@import\s+['\"]([^'\"]*)", styles)
    assert {urlsplit(first or second).scheme for first, second in loaded} <= {"data"}
    others = {urljoin("http://headwater/docs", text) for text in re.findall(r"https?://[^'\"\s]+", page.text)}
    assert {urlsplit(other).netloc for other in others} <= {"headwater"}
    assert '"validatorUrl": null' in page.text  # else it asks a site elsewhere about the document


def test_no_other_page_is_shown_that_would_load_something(client: AppClient) -> None:
    assert client.get("/redoc").status_code == 404
    missing = client.get("/docs/assets/none.js")
    assert (missing.status_code, missing.headers["content-type"]) == (404, "application/problem+json")


def test_the_root_leads_to_the_documentation(client: AppClient) -> None:
    answer = client.get("/")
    assert (answer.status_code, answer.headers["location"]) == (307, "/docs")


def test_it_describes_every_route(document: dict[str, Any]) -> None:
    sell = document["paths"]["/commands/listing.sell"]["post"]
    assert set(sell["responses"]) >= {"200", "201", "404", "409", "412", "413", "415", "422", "503", "504"}
    body = sell["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    assert document["components"]["schemas"][body]["properties"]["sold_for"]["maximum"] == 10_000_000_000
    assert sell["description"].startswith("Complete the sale")
    rows = document["paths"]["/views/listings"]["get"]
    assert {"city", "city.in", "price.gte", "sort", "cursor", "after"} <= {
        entry["name"] for entry in rows["parameters"]
    }
    row = document["components"]["schemas"]["listings.row"]["properties"]
    assert row["listing_id"] == {"type": "string"}
    assert "/views/listing_card" not in document["paths"]
    assert {"/views/listing_search/search", "/receipts/{command_id}", "/streams/listing/{aggregate_id}"} <= set(
        document["paths"]
    )
    assert _referred_to(document) <= set(document["components"]["schemas"])


def test_what_reads_a_view_may_find_it_paused(document: dict[str, Any]) -> None:
    """Then `after=` is answered at once, with 409; and so is who follows a view whose changes are not sent."""
    waiting = {
        path: one["get"]["responses"]
        for path, one in document["paths"].items()
        if path.startswith(("/views/", "/persons/"))
        and "get" in one
        and "after" in {each.get("name") for each in one["get"].get("parameters", ())}
    }
    assert {"/views/listings/rows", "/views/listings/{key}", "/views/listing_search/search"} <= waiting.keys()
    following = {path: one["get"]["responses"] for path, one in document["paths"].items() if path.endswith("/changes")}
    assert following
    assert {path for path, answers in {**waiting, **following}.items() if "409" not in answers} == set()


def test_operations_have_names_that_programs_can_have(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for operation in operations(document["paths"])]
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", name) for name in names), names
    assert len(set(names)) == len(names)
    assert {"submit_listing_sell", "submit_many", "read_receipt", "find_listings", "read_stream_listing"} <= set(names)


def test_two_operations_that_would_share_a_name_do_not() -> None:
    from headwater.api.openapi.documentation import _identify

    paths: dict[str, Any] = {"/a": {"post": {"operationId": "submit a.b_c"}, "get": {"operationId": "submit a_b.c"}}}
    _identify(paths)
    assert [operation["operationId"] for operation in operations(paths)] == ["submit_a_b_c", "submit_a_b_c_2"]


def test_headers_are_described(document: dict[str, Any]) -> None:
    sell = document["paths"]["/commands/listing.sell"]["post"]
    sent = {entry["name"] for entry in sell["parameters"] if entry["in"] == "header"}
    assert sent == {"Idempotency-Key", "If-Match", "If-None-Match", "X-Correlation-ID", "X-Causation-ID", "traceparent"}
    assert set(sell["responses"]["201"]["headers"]) == {"ETag", "Location"}
    for operation in operations(document["paths"]):
        for status, answer in operation["responses"].items():
            assert status not in ("503", "504") or "Retry-After" in answer["headers"], operation["operationId"]
    row = document["paths"]["/views/listings/{key}"]["get"]
    assert "Headwater-Generation" in row["responses"]["200"]["headers"]


def fits(document: dict[str, Any], schema: dict[str, Any], instance: Any) -> bool:
    return jsonschema_rs.is_valid({**schema, "components": document["components"]}, instance)


def test_a_line_is_a_command_of_its_type(document: dict[str, Any]) -> None:
    content = document["paths"]["/commands"]["post"]["requestBody"]["content"]
    schema = content["application/x-ndjson"]["schema"]
    line = {"type": "listing.sell", "body": {"listing_id": "L1", "sold_for": 1}, "id": "k", "expected_version": 7}
    assert fits(document, schema, line)
    assert not fits(document, schema, line | {"type": "listing.burn"})
    assert not fits(document, schema, line | {"type": "listing.withdraw"})
    assert not fits(document, schema, line | {"body": {"listing_id": "L1"}})
    assert not fits(document, schema, line | {"more": 1})


def test_an_event_is_typed_by_its_type(document: dict[str, Any]) -> None:
    schema = {"$ref": "#/components/schemas/Event"}
    sold = orjson.loads(
        encode(event("listing/L1", 7, "listing.sold", listing_id="L1", city="GALT", price=3, sold_for=2, square_feet=9))
    )
    known = document["components"]["schemas"]["listing.sold.data"]["properties"]
    sold["data"] = {name: value for name, value in sold["data"].items() if name in known}
    assert fits(document, schema, sold)
    assert not fits(document, schema, sold | {"data": {"listing_id": "L1", "sold_for": "much"}})
    assert not fits(document, schema, {name: value for name, value in sold.items() if name != "subject"})
    assert fits(document, schema, sold | {"type": "listing.gone", "data": {}})  # declared no more, but in the log


def test_a_stream_has_the_events_and_the_state_of_its_aggregate(document: dict[str, Any]) -> None:
    answers = document["paths"]["/streams/listing/{aggregate_id}"]["get"]["responses"]
    schema = answers["200"]["content"]["application/json"]["schema"]
    page = {"stream": "listing/L1", "version": 1, "events": [], "links": {}}
    assert fits(document, schema, page)
    placed = orjson.loads(encode(event("order/O1", 1, "order.cancelled", order_id="O1")))
    assert not fits(document, schema, page | {"events": [placed]})
    state = {"stream": "listing/L1", "version": 1, "time": "2026-01-02T03:04:05Z"}
    initial = listing.initial.model_dump(mode="json")
    assert fits(document, schema, state | {"state": initial})
    assert not fits(document, schema, state | {"state": initial | {"price": "much"}})


@pytest.mark.parametrize(
    ("path", "described"),
    [
        ("/views", "/views"),
        ("/streams/$all", "/streams/$all"),
        ("/positions/shop", "/positions/{source}"),
        ("/health/live", "/health/live"),
        ("/health/ready", "/health/ready"),
    ],
)
def test_an_answer_is_as_it_is_described(
    client: AppClient, service: FakeService, document: dict[str, Any], path: str, described: str
) -> None:
    catch_up(service)
    answer = client.get(path)
    schema = document["paths"][described]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert answer.status_code == 200
    assert fits(document, schema, answer.json())
    assert not fits(document, schema, {})


def test_a_receipt_is_as_it_is_described(document: dict[str, Any]) -> None:
    refused = ReceiptError("rejected", "sold already", expected=None, actual=None)
    for given in (receipt("listing/L1", "listing.sell"), receipt("listing/L1", "listing.sell", error=refused)):
        assert fits(document, {"$ref": "#/components/schemas/Receipt"}, orjson.loads(given.to_json()))
        assert fits(document, {"$ref": "#/components/schemas/Accepted"}, accepted(given))


def test_the_document_is_made_once(service: Service) -> None:
    app = create_app(service)
    assert app.openapi() is app.openapi()


def _referred_to(part: object) -> set[str]:
    if isinstance(part, dict):
        own = {part["$ref"].rpartition("/")[2]} if isinstance(part.get("$ref"), str) else set()
        return own.union(*(_referred_to(each) for each in part.values()))
    return set().union(*(_referred_to(each) for each in part)) if isinstance(part, list) else set()


@pytest.mark.parametrize("modules", [["tests.support.versioned"], ["tests.simulation.tally"], ["orders"]])
def test_a_deployment_without_aggregates_or_observations_has_a_sound_document(modules: list[str]) -> None:
    document = create_app(fake_service(modules=modules)).openapi()

    def empty(node: Any, at: str = "#") -> list[str]:
        inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        here = [at] if at.endswith(("/oneOf", "/anyOf", "/enum")) and not node else []
        return here + [found for name, each in inner for found in empty(each, f"{at}/{name}")]

    assert empty(document) == []
    known = document["components"]["schemas"]
    referred = set(re.findall(r"#/components/schemas/([\w.~-]+)", orjson.dumps(document).decode()))
    assert referred <= set(known)
