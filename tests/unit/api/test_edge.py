"""What a request passes before its route: hosts, origins, HEAD, paths as they were sent, and errors nobody expected."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from headwater.api.app import create_app
from headwater.api.settings import ApiSettings, Hosts, ServerSettings
from headwater.eventlog.errors import SettingError
from tests.support.waiting import eventually
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.conftest import listing
from tests.unit.api.fake_service import FakeService, MemoryReader, receipt

PROBLEM = "application/problem+json"
SHOP = "https://shop.example.com"


def answering_to(service: FakeService, **settings: Any) -> AppClient:
    made = ApiSettings(server=ServerSettings(**settings))
    return AppClient(create_app(replace(service, hosts=made.hosts, origins=made.origins)))


def test_an_api_that_only_this_machine_can_reach_takes_only_its_names(service: FakeService) -> None:
    client = answering_to(service)
    for host, status in (
        ("127.0.0.1", 200),
        ("127.0.0.1:18080", 200),
        ("127.0.0.1:9999", 200),
        ("localhost", 200),
        ("LOCALHOST:80", 200),
        ("[::1]:18080", 200),
        ("127.0.0.2", 200),
        ("rebound.example.com", 421),
        ("rebound.example.com:18080", 421),
        ("localhost.example.com", 421),
        ("127.0.0.1.example.com", 421),
        ("192.168.1.9", 421),
        ("[2001:db8::1]", 421),
        ("", 400),
        ("127.0.0.1/", 400),
        ("user@127.0.0.1", 400),
        ("127.0.0.1:x", 400),
        ("[::1", 400),
        ("127.0.0.1, rebound.example.com", 400),
    ):
        answer = client.get("/health/live", headers={"host": host})
        assert answer.status_code == status, host
        if status != 200:
            assert answer.headers["content-type"] == PROBLEM
            problem = "unknown_host" if status == 421 else "bad_host"
            assert answer.json()["type"] == f"urn:headwater:problem:{problem}", host


def test_two_hosts_or_none_are_refused(service: FakeService) -> None:
    app = answering_to(service).app
    for hosts in ([], [b"127.0.0.1", b"rebound.example.com"], [b"127.0.0.1", b"127.0.0.1"]):
        status, _ = asyncio.run(sent(app, "/health/live", headers=[(b"host", host) for host in hosts]))
        assert status == 400


@pytest.mark.parametrize(
    ("bound", "allowed", "taken", "refused"),
    [
        (
            "127.0.0.1",
            "api.example.com,*.example.org,[2001:DB8::1]",
            ("api.example.com", "API.example.com:443", "127.0.0.1", "a.b.example.org", "[2001:db8:0::1]:80"),
            ("example.com", "x.api.example.com", "example.org", "badexample.org"),
        ),
        ("127.0.0.1", "*", ("anything.example.com",), ()),
        ("::1", "", ("[::1]",), ()),
        ("localhost", "", (), ("anything.example.com",)),
        ("10.0.0.1", "", ("anything.example.com",), ()),
        ("10.0.0.1", "api.example.com", ("10.0.0.7:18080",), ("anything.example.com",)),
        ("api.internal", "api.example.com", ("api.internal",), ()),
    ],
)
def test_allowed_hosts_are_a_setting(
    service: FakeService, bound: str, allowed: str, taken: Sequence[str], refused: Sequence[str]
) -> None:
    settings = ApiSettings.from_environment(
        {
            "HEADWATER_MODULES": "listings",
            "HEADWATER_API_HOST": bound,
            "HEADWATER_API_ALLOWED_HOSTS": allowed,
            "HEADWATER_API_OPEN": "true",
        }
    )
    client = answering_to(service, host=settings.server.host, allowed_hosts=settings.server.allowed_hosts)
    statuses = {host: client.get("/health/live", headers={"host": host}).status_code for host in (*taken, *refused)}
    assert statuses == dict.fromkeys(taken, 200) | dict.fromkeys(refused, 421)


def test_without_a_check_a_host_may_be_missing() -> None:
    assert Hosts.of("10.0.0.1", ()).is_any
    assert not Hosts.of("127.0.0.1", ()).is_any


@pytest.mark.parametrize(
    ("variable", "wrong"),
    [
        ("HEADWATER_API_ALLOWED_HOSTS", "https://api.example.com"),
        ("HEADWATER_API_ALLOWED_HOSTS", "api.example.com:80"),
        ("HEADWATER_API_ALLOWED_HOSTS", "api.*.com"),
        ("HEADWATER_API_ALLOWED_HOSTS", "a b"),
        ("HEADWATER_API_ORIGINS", "shop.example.com"),
        ("HEADWATER_API_ORIGINS", "https://shop.example.com/"),
        ("HEADWATER_API_ORIGINS", "null"),
    ],
)
def test_a_wrong_list_is_named(variable: str, wrong: str) -> None:
    with pytest.raises(SettingError, match=variable):
        ApiSettings.from_environment({variable: wrong})


def test_origins_are_as_browsers_send_them() -> None:
    text = "https://Shop.example.com:443, http://localhost:3000,http://a.example:80"
    found = ApiSettings.from_environment({"HEADWATER_MODULES": "listings", "HEADWATER_API_ORIGINS": text}).origins
    assert found == (SHOP, "http://localhost:3000", "http://a.example")


def test_a_website_reads_answers_only_if_its_origin_is_a_setting(service: FakeService, client: AppClient) -> None:
    open_to_shop = answering_to(service, origins=SHOP)
    local = {"host": "127.0.0.1"}
    answer = open_to_shop.get("/views/listings/none", headers={"origin": SHOP, **local})
    assert answer.status_code == 404
    assert answer.headers["access-control-allow-origin"] == SHOP
    assert "ETag" in answer.headers["access-control-expose-headers"]
    for other in (
        open_to_shop.get("/views", headers={"origin": "https://other.example.com", **local}),
        client.get("/views", headers={"origin": SHOP}),
    ):
        assert other.status_code == 200
        assert "access-control-allow-origin" not in other.headers


def test_a_website_also_reads_errors_nobody_expected(service: FakeService) -> None:
    service.gateway.error = OSError("oops")
    answer = answering_to(service, origins=SHOP).post(
        "/commands/listing.withdraw", json={"listing_id": "L1"}, headers={"origin": SHOP, "host": "localhost"}
    )
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (500, SHOP)


def test_a_browser_asks_before_it_sends_a_command(service: FakeService) -> None:
    client = answering_to(service, origins=SHOP)
    asks = {
        "host": "127.0.0.1",
        "origin": SHOP,
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type,idempotency-key,if-match",
    }
    answer = client.request("OPTIONS", "/commands/listing.sell", headers=asks)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, SHOP)
    refused = client.request("OPTIONS", "/commands/listing.sell", headers=asks | {"origin": "https://evil.example"})
    assert refused.status_code == 400
    assert refused.headers["content-type"] == PROBLEM
    assert refused.json()["instance"] == "/commands/listing.sell"
    assert "access-control-allow-origin" not in refused.headers


PATHS = (
    "/",
    "/docs",
    "/openapi.json",
    "/health/live",
    "/health/ready",
    "/views",
    "/views/listings",
    "/views/listings/L1",
    "/views/listings/none",
    "/views/listings/rows?key=L1",
    "/views/listing_search/search",
    "/views/unknown/x",
    "/streams/$all",
    "/streams/listing/none",
    "/receipts/c-1?stream=listing/L1",
    "/receipts/none?stream=listing/L1",
    "/nowhere",
)


@pytest.mark.parametrize("path", PATHS)
def test_head_is_answered_as_get_without_a_body(
    client: AppClient, service: FakeService, stored: MemoryReader, path: str
) -> None:
    service.gateway.known = {"c-1": receipt()}
    get, head = client.get(path), client.request("HEAD", path)
    assert (head.status_code, head.content) == (get.status_code, b"")
    assert head.headers.get("content-length") == get.headers.get("content-length")
    assert head.headers["content-type" if path != "/" else "location"]


def test_head_of_a_path_without_get_is_not_allowed(client: AppClient) -> None:
    assert client.request("HEAD", "/commands").status_code == 405
    assert client.request("PUT", "/views").headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/views/listings/%ff", ""),
        ("/views/listings/%ED%A0%80", ""),
        ("/views/listings/%", ""),
        ("/views/listings/%zz", ""),
        ("/views/listings/a%2", ""),
        ("/views/listings", "city=%ff"),
        ("/views/listings", "%ff=1"),
        ("/views/listings", "city=%C3"),
        ("/views/listings", "city=100%"),
        ("/views/listings", "city=ü"),
        ("/views/listings/rows", "key=%e9"),
        ("/streams/$all", "type=%ff"),
    ],
)
def test_what_is_not_percent_encoded_utf_8_is_refused(
    client: AppClient, stored: MemoryReader, path: str, query: str
) -> None:
    stored.rows["listings"] = {"\ufffd": listing("\ufffd", city="\ufffd")}
    status, kind = asyncio.run(sent(client.app, path, query.encode()))
    assert (status, kind) == (400, PROBLEM)


def test_the_replacement_character_itself_is_a_key(client: AppClient, stored: MemoryReader) -> None:
    stored.rows["listings"] = {"\ufffd": listing("\ufffd", city="\ufffd")}
    assert client.get("/views/listings/%EF%BF%BD").status_code == 200
    assert len(client.get("/views/listings?city=%EF%BF%BD").json()["rows"]) == 1


@pytest.mark.parametrize("key", ["L1\n", "\nL1", "L1\n\n", "\n", "search\n", "rows\n", "changes\n", "a\nb", "\udc0a"])
def test_a_key_with_newlines_is_another_key(client: AppClient, stored: MemoryReader, key: str) -> None:
    path = "/views/listings/" + "".join(f"%{byte:02X}" for byte in key.encode(errors="surrogatepass"))
    missing = client.get(path)
    assert missing.status_code == (400 if key == "\udc0a" else 404)
    if missing.status_code == 404:
        assert (missing.json()["key"], missing.json()["instance"]) == (key, f"/views/listings/{key}")
        stored.rows["listings"][key] = listing(key, city="other")
        assert client.get(path).json()["city"] == "other"


@pytest.mark.parametrize(
    "path", ["/views", "/views/listings", "/health/live", "/streams/$all", "/commands", "/", "/docs/assets/x"]
)
def test_a_path_with_a_newline_at_its_end_is_another_path(client: AppClient, path: str) -> None:
    assert client.get(f"{path}%0A").status_code == 404


def test_links_of_a_stream_whose_id_has_a_newline_lead_to_it(client: AppClient, service: FakeService) -> None:
    service.gateway.known = {"c": receipt(command_id="c")}
    answer = client.post("/commands/listing.withdraw", json={"listing_id": "nl\n"}).json()
    assert answer["links"]["stream"] == "/streams/listing/nl%0A"
    assert client.get(answer["links"]["stream"]).json()["stream"] == "listing/nl\n"
    assert client.get("/receipts/c%0A?stream=listing/nl%0A").json()["command_id"] == "c\n"


def test_a_newline_begins_no_line_of_the_log(
    client: AppClient, service: FakeService, caplog: pytest.LogCaptureFixture
) -> None:
    service.readers["postgres"].errors = [OSError("oops")]
    assert client.get("/views/listings/a%0AERROR b").status_code == 500
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert "\n" not in line


async def sent(
    app: FastAPI, path: str, query: bytes = b"", headers: list[tuple[bytes, bytes]] | None = None
) -> tuple[int, str]:
    """The status and media type of an answer to a request that no client would send."""
    start: dict[str, Any] = {}
    scope = {
        "type": "http",
        "method": "GET",
        "path": httpx.URL(f"http://a{path}").path if "%" in path else path,
        "raw_path": path.encode(),
        "query_string": query,
        "headers": [(b"host", b"localhost")] if headers is None else headers,
        "root_path": "",
        "scheme": "http",
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        start.update(message)

    await app(scope, receive, send)  # type: ignore[arg-type]
    return start["status"], dict(start["headers"])[b"content-type"].decode()


@contextmanager
def listening(app: FastAPI) -> Iterator[str]:
    """The app on a port of this machine, with the server that deployments have."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", access_log=False))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            eventually(lambda: server.started, "the server listens")
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def test_a_connection_is_used_again_after_an_error_nobody_expected(service: FakeService) -> None:
    service.readers["postgres"].errors = [OSError("oops")]
    connections = set[int]()

    def note(answer: httpx.Response) -> None:
        connections.add(answer.extensions["network_stream"].get_extra_info("client_addr")[1])

    with listening(create_app(service)) as url, httpx.Client(base_url=url, event_hooks={"response": [note]}) as http:
        failed = http.get("/views/listings/L1")
        assert (failed.status_code, failed.json()["title"]) == (500, "Internal error")
        assert http.get("/health/live").status_code == 200
        assert len(connections) == 1
        # the head of an answer that has no end, and then another request on the same connection
        assert http.head("/views/listings/changes").headers["content-type"].startswith("text/event-stream")
        assert http.head("/health/live").status_code == 200
        assert len(connections) == 1
        eventually(lambda: not service.feeds._followed, "the follower has left")


def test_answers_are_neither_kept_nor_framed_unless_they_say_so(client: AppClient) -> None:
    for path in ("/views", "/views/nothing", "/nothing", "/docs", "/openapi.json", "/health/live", "/console/sign-in"):
        answer = client.get(path)
        assert answer.headers.get_list("cache-control") == ["no-store"], path
        assert answer.headers["x-frame-options"] == "DENY", path
        (policy,) = answer.headers.get_list("content-security-policy")
        assert "frame-ancestors 'none'" in policy, path
    page = client.get("/docs").text
    script = page.partition('src="')[2].partition('"')[0]
    assert "cache-control" not in client.get(script).headers
    sheet = client.get("/console").text.partition('rel="stylesheet" href="')[2].partition('"')[0]
    assert "immutable" in client.get(sheet).headers["cache-control"]
