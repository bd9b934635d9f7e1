"""Every route refuses every caller whose scopes do not allow it, and no route is without a need."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI

import headwater.api.app
from headwater.api.app import create_app
from headwater.api.guard.caller import Caller
from headwater.api.guard.guard import Guard
from headwater.api.guard.keys import ApiKeys
from headwater.api.guard.needs import DOCUMENTATION, PUBLIC, needs_of
from headwater.api.guard.scopes import Scopes
from headwater.api.guard.tokens import Roles, Tokens
from headwater.api.reading import Made
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import FakeService, catch_up, fake_service, receipt
from tests.unit.api.issuing import AUDIENCE, ISSUER, bearer, token
from tests.unit.api.test_guard_tokens import Known

NDJSON = {"content-type": "application/x-ndjson"}
SCOPES = (
    "commands:listing.sell",
    "commands:listing.*",
    "commands:*",
    "observations:listing_viewed",
    "observations:*",
    "views:listings",
    "views:list*",
    "views:*",
    "streams:listing",
    "streams:*",
    "operate",
    "openid",
)


def guarded(service: FakeService, **options: Any) -> FakeService:
    """The service, for callers with tokens of the issuer."""
    return replace(service, guard=Guard(None, Tokens(ISSUER, AUDIENCE, Known(), Roles(None, "roles")), **options))


@cache
def app() -> tuple[FakeService, FastAPI]:
    made = guarded(fake_service())
    catch_up(made)
    return made, create_app(made)


@pytest.fixture
def client() -> Iterator[AppClient]:
    yield AppClient(app()[1])


@cache
def caller(*scopes: str) -> dict[str, str]:
    return bearer(token(*scopes))


def operations() -> Iterator[tuple[str, str, str]]:
    """Method, path and scope of every route, declared and documented or not."""
    names = {"command_type:key": "listing.sell", "observation:key": "listing_viewed", "view:name": "made_once"}
    names |= {"aggregate:name": "listing", "aggregate_id:key": "L1", "key:key": "L1", "command_id:key": "c-1"}
    names |= {"source:name": "shop", "action_id:name": "none"}
    for route, need in needs_of(app()[1].routes):
        path = re.sub(r"{(.*?)}", lambda found: names[found[1]], route.path)
        (method,) = route.methods or set()
        yield (
            method,
            path,
            re.sub(r"{(.*?)}", lambda found: names[next(n for n in names if n.startswith(found[1]))], need.scope),
        )


OPERATIONS = sorted(set(operations()))


def may(scope: str, needed: str) -> bool:
    """Whether a caller with one scope may use a route: written anew, without the code that decides it."""
    if scope == "operate":
        return needed == "operate" or needed.startswith(("views:", "streams:"))
    kind, _, name = needed.partition(":")
    own, _, pattern = scope.partition(":")
    if kind != own or needed == "operate":
        return False
    return name in ("…", pattern) or (pattern.endswith("*") and name.startswith(pattern[:-1]))


def request(client: AppClient, method: str, path: str, headers: dict[str, str]) -> httpx.Response:
    """A request that is answered at once; also one that follows changes."""
    if path.endswith("/changes"):
        path += "?for_ms=1"
    if path == "/streams":
        path += "?stream=listing/L1"
    body = {"content": b""} if method == "POST" else {}
    return client.request(method, path, headers=headers, **body)


@pytest.mark.parametrize(("method", "path", "needed"), OPERATIONS, ids=str)
def test_every_route_with_every_scope(client: AppClient, method: str, path: str, needed: str) -> None:
    without = request(client, method, path, {})
    assert (without.status_code, without.json()["type"]) == (401, "urn:headwater:problem:unauthenticated")
    assert without.headers["www-authenticate"] == 'Bearer realm="headwater"'
    for scope in SCOPES:
        answer = request(client, method, path, caller(scope))
        if may(scope, needed):
            assert answer.status_code not in (401, 403), (scope, answer.text)
        else:
            assert (answer.status_code, answer.json()["type"]) == (403, "urn:headwater:problem:forbidden"), scope
            assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]


def test_every_path_of_the_openapi_document_says_what_it_needs(client: AppClient) -> None:
    document = client.get("/openapi.json", headers=caller()).json()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if path in PUBLIC:
                assert "security" not in operation
            else:
                ((scopes,),) = [list(each.values()) for each in operation["security"]]
                assert scopes and {"401", "403"} <= operation["responses"].keys(), (method, path)
    assert document["paths"]["/streams/listing/{aggregate_id}"]["get"]["security"] == [{"caller": ["streams:listing"]}]
    assert document["components"]["securitySchemes"]["caller"]["scheme"] == "bearer"


def test_a_route_without_a_need_is_refused_when_the_application_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgotten(_: Any) -> APIRouter:
        router = APIRouter(prefix="/views")
        router.add_api_route("/forgotten", lambda: None, methods=["GET"])
        return router

    monkeypatch.setattr(headwater.api.app, "stream_routes", forgotten)
    with pytest.raises(RuntimeError, match="/views/forgotten"):
        create_app(fake_service())


@pytest.mark.parametrize("path", sorted(PUBLIC))
def test_health_needs_no_caller(client: AppClient, path: str) -> None:
    assert client.get(path).status_code in (200, 503)
    assert AppClient(app()[1], "/prefix").get(f"/prefix{path}").status_code in (200, 503)
    for other in (f"{path}/", path.upper(), f"/{path}", f"{path}%0A", f"{path}%2F..%2F..%2Fviews", f"/x{path}"):
        assert client.get(other).status_code == 401


@pytest.mark.parametrize("path", [*sorted(DOCUMENTATION - {"/docs/assets"}), "/docs/assets/swagger-ui.css", "/nothing"])
def test_documentation_needs_a_caller_or_a_setting(client: AppClient, path: str) -> None:
    assert client.get(path).status_code == 401
    assert client.get(path, headers=caller()).status_code == (
        404 if path == "/nothing" else 200 if path != "/" else 307
    )
    public = AppClient(create_app(guarded(fake_service(), has_public_documentation=True)))
    assert public.get(path).status_code == (401 if path == "/nothing" else 200 if path != "/" else 307)
    assert public.get("/views").status_code == 401


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "HEAD", "PATCH"])
def test_other_methods_need_a_caller_too(client: AppClient, method: str) -> None:
    assert client.request(method, "/views/listings").status_code == 401


@pytest.mark.parametrize(
    "value",
    [
        "",
        "Bearer",
        "Bearer ",
        "bearer\t{}",
        "Basic {}",
        "Bearer {} {}",
        "Bearer {},{}",
        "{}",
        "Bearer x",
        "Bearer hw_x",
        "Bearer é",
    ],
)
def test_a_header_that_names_no_caller_is_refused(client: AppClient, value: str) -> None:
    text = token("views:*")
    answer = client.get("/views", headers={"authorization": value.replace("{}", text).encode()})
    assert answer.status_code == 401
    assert text not in answer.text
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("value", ["Bearer {}", "bearer {}", "BEARER   {} "])
def test_the_scheme_is_not_case_sensitive(client: AppClient, value: str) -> None:
    assert client.get("/views", headers={"authorization": value.replace("{}", token("views:*"))}).status_code == 200


def test_two_headers_are_refused(client: AppClient) -> None:
    text = f"Bearer {token('views:*')}"
    for other in (text, "Bearer x", "Basic x", ""):
        for both in ((text, other), (other, text)):
            answer = client.get("/views", headers=[("authorization", each) for each in both])
            assert (answer.status_code, "several" in answer.json()["detail"]) == (401, True)


def test_a_caller_cannot_be_forged_by_a_query_or_another_header(client: AppClient) -> None:
    text = token("views:*")
    headers = {"x-api-key": text, "cookie": f"authorization={text}", "proxy-authorization": f"Bearer {text}"}
    assert client.get(f"/views?access_token={text}", headers=headers).status_code == 401


def test_each_line_of_many_commands_needs_its_scope(client: AppClient) -> None:
    lines = [
        {"type": "listing.sell", "body": {"listing_id": "L1", "sold_for": 5}},
        {"type": "listing.withdraw", "body": {"listing_id": "L1"}},
        {"type": "listing.nothing", "body": {}},
        {"type": "listing.sell", "body": {"listing_id": "L2", "sold_for": 5}},
    ]
    content = "".join(json.dumps(line) + "\n" for line in lines)
    answer = client.post("/commands", content=content, headers=NDJSON | caller("commands:listing.sell"))
    found = {
        line["line"]: (line["status"], line.get("problem", {}).get("scope"))
        for line in map(json.loads, answer.text.splitlines())
    }
    assert found == {
        1: (201, None),
        2: (403, "commands:listing.withdraw"),
        3: (403, "commands:listing.nothing"),
        4: (201, None),
    }


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/commands", '{"type": "listing.sell", "body": {"listing_id": "L1", "sold_for": 5}}\n'),
        ("/observations/listing_viewed", '{"id": "1", "source": "s", "data": {"listing_id": "L1", "session": "s"}}\n'),
    ],
)
def test_lines_that_arrive_after_the_token_has_expired_are_refused(
    client: AppClient, monkeypatch: pytest.MonkeyPatch, path: str, content: str
) -> None:
    headers = NDJSON | caller("commands:*", "observations:*")
    monkeypatch.setattr(app()[0].guard, "is_valid", lambda _: False)
    answer = client.post(path, content=content, headers=headers)
    assert "unauthenticated" in answer.text and '"stored":1' not in answer.text and '"accepted"' not in answer.text


def test_only_views_that_a_caller_may_read_are_listed(client: AppClient) -> None:
    def listed(*scopes: str) -> set[str]:
        return {entry["name"] for entry in client.get("/views", headers=caller(*scopes)).json()["views"]}

    every = set(app()[0].views)
    assert listed("views:listings") == {"listings"}
    assert listed("views:*") == every - {"streams"}
    assert listed("operate") == listed("views:*", "streams:*") == every


def test_the_view_of_all_events_needs_all_streams(client: AppClient) -> None:
    for path in ("/views/streams", "/views/streams/rows?key=x", "/views/streams/x"):
        for scopes in (("views:*",), ("views:streams",), ("streams:listing", "views:*"), ("streams:streams",)):
            assert client.get(path, headers=caller(*scopes)).status_code == 403
        assert client.get(path, headers=caller("streams:*")).status_code in (200, 404)


def test_a_view_that_was_made_of_all_events_needs_all_streams() -> None:
    service = guarded(fake_service())
    catch_up(service)
    for name, source in (("then", "listings"), ("events_then", "streams")):
        view = service.views[source]
        service.generations.made_views[name] = Made(name, source, view.version, "", {}, None)
    made = AppClient(create_app(service))
    assert made.get("/views/then", headers=caller("views:then")).status_code == 200
    assert made.get("/views/then", headers=caller("views:listings")).status_code == 403
    for path in ("", "/rows?key=1", "/changes", "/x"):
        assert made.get(f"/views/events_then{path}", headers=caller("views:*")).status_code == 403
    assert made.get("/views/events_then", headers=caller("views:*", "streams:*")).status_code == 200


def test_a_receipt_exists_only_for_who_may_send_such_commands() -> None:
    service = guarded(fake_service())
    service.gateway.known["c-1"] = receipt()
    client = AppClient(create_app(service))
    for path in ("/receipts/c-1?stream=listing/L1", "/receipts?command_id=c-1&stream=listing/L1"):
        assert client.get(path, headers=caller("commands:listing.sell")).status_code == 200
        hidden = client.get(path, headers=caller("commands:listing.withdraw"))
        assert (hidden.status_code, hidden.json()["type"]) == (404, "urn:headwater:problem:receipt_missing")


def test_another_aggregate_s_stream_is_forbidden_by_path_and_by_query(client: AppClient) -> None:
    for path in ("/streams/other/L1", "/streams?stream=other/L1", "/streams/$all", "/streams/$all?type=listing.sold"):
        assert client.get(path, headers=caller("streams:listing")).status_code == 403


def test_a_long_name_is_not_sent_back_in_full(client: AppClient) -> None:
    answer = client.get(f"/views/{'x' * 10_000}", headers=caller("views:listings"))
    assert answer.status_code == 403 and len(answer.content) < 20_000
    assert len(answer.headers["www-authenticate"]) < 300


def test_a_browser_may_ask_and_read_a_refusal() -> None:
    client = AppClient(create_app(replace(guarded(fake_service()), origins=("https://shop.example.com",))))
    asked = {"origin": "https://shop.example.com", "access-control-request-method": "GET"}
    allowed = client.request("OPTIONS", "/views", headers=asked | {"access-control-request-headers": "authorization"})
    assert allowed.status_code == 200
    refused = client.get("/views", headers={"origin": "https://shop.example.com"})
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, "https://shop.example.com")


def test_an_open_api_answers_everybody() -> None:
    client = AppClient(create_app(fake_service()))
    assert client.get("/views").status_code == 200
    assert client.get("/views", headers={"authorization": "Bearer whatever"}).status_code == 200


class Expiring(Guard):
    """A guard whose callers are valid until a test says otherwise."""

    valid = True

    def is_valid(self, caller: Caller) -> bool:
        return self.valid

    def left_s(self, caller: Caller) -> float:
        return 0.01


def test_following_changes_ends_with_the_token() -> None:
    guard = Expiring(None, Tokens(ISSUER, AUDIENCE, Known(), Roles(None, "roles")))
    service = replace(fake_service(), guard=guard)
    catch_up(service)
    made = create_app(service)
    sent: list[str] = []

    async def follow() -> None:
        headers = [(b"authorization", caller("views:listings")["authorization"].encode()), (b"host", b"x")]
        scope = {
            "type": "http", "method": "GET", "path": "/views/listings/changes", "raw_path": b"/views/listings/changes",
            "query_string": b"", "headers": headers, "server": ("x", 80), "scheme": "http", "http_version": "1.1",
        }  # fmt: skip

        async def receive() -> Any:
            await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message.get("body", b"").decode())
            if len(sent) > 3:
                guard.valid = False

        async with asyncio.timeout(60):
            await made(scope, receive, send)

    asyncio.run(follow())
    assert sent[-2] == 'event: end\ndata: {"reason":"expired"}\n\n'


def test_keys_and_tokens_are_taken_side_by_side(tmp_path: Path) -> None:
    from headwater.api.guard.keys import new_key, now, write_keys

    key, stored = new_key("ci", ["views:listings"], now(), None, {})
    write_keys(tmp_path / "keys.json", [stored])
    guard = Guard(ApiKeys(tmp_path / "keys.json"), Tokens(ISSUER, AUDIENCE, Known(), Roles(None, "roles")))
    client = AppClient(create_app(replace(fake_service(), guard=guard)))
    for text in (key, token("views:listings")):
        assert client.get("/views", headers=bearer(text)).status_code == 200
    assert client.get("/views", headers=bearer(key[:-1])).status_code == 401
    assert Scopes.of(stored.scopes).allow("views", "listings")
