"""Clients that connect and send nothing, half a request, or one without end, over real sockets."""

from __future__ import annotations

import asyncio
import socket
from contextlib import closing
from dataclasses import replace
from http.client import HTTPResponse

import orjson
import pytest
from fastapi import FastAPI
from httpx._config import DEFAULT_LIMITS
from uvicorn.server import ServerState

from headwater.api.limits import Limits
from headwater.api.server import serving as serving_api
from headwater.api.server.connections import MAX_HEAD_BYTES, BoundedProtocol
from headwater.api.server.serving import config_of
from tests.support.waiting import eventually
from tests.unit.api.fake_service import FakeService, fake_service
from tests.unit.api.serving_clients import connected, gone, serving

pytestmark = pytest.mark.programs

SOON = Limits(idle_s=0.5)
PATIENT = Limits()
POST = b"POST /commands/listing.sell HTTP/1.1\r\nhost: headwater\r\ncontent-type: application/json\r\n"
MANY = b"POST /commands HTTP/1.1\r\nhost: headwater\r\ncontent-type: application/x-ndjson\r\n"
LIVE = b"GET /health/live HTTP/1.1\r\nhost: headwater\r\n\r\n"
SELL = b'{"type": "listing.sell", "body": {"listing_id": "L1", "sold_for": 1}}\n'


@pytest.fixture(autouse=True)
def at_every_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for idle clients ten times per second."""
    monkeypatch.setattr(serving_api, "TICKS", 1)


def answer(client: socket.socket) -> bytes:
    """Everything until the server closes the connection."""
    found = b""
    while content := client.recv(64 * 1024):
        found += content
    return found


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET /health/live HT", b"GET /health/live HTTP/1.1\r\nhost: headwater\r\nx: ", b"\r\n\r\n"],
)
def test_a_connection_without_a_request_is_closed(sent: bytes) -> None:
    with serving(fake_service(), SOON) as (server, address), connected(address) as client:
        client.sendall(sent)
        assert answer(client) == b""
        gone(server)


def test_a_connection_is_closed_when_no_next_request_comes() -> None:
    """Even if a byte of something comes, for which uvicorn ends its own timer."""
    with serving(fake_service(), SOON) as (server, address), connected(address) as client:
        client.sendall(LIVE + b"G")
        assert answer(client).startswith(b"HTTP/1.1 200")
        gone(server)


def test_a_client_that_follows_is_not_idle() -> None:
    service = fake_service()
    service.readers["postgres"].reached = dict.fromkeys(range(4), 0)
    with serving(service, SOON) as (_, address), connected(address) as client, connected(address) as idle:
        client.sendall(b"GET /views/listings/changes?for_ms=1500 HTTP/1.1\r\nhost: headwater\r\n\r\n")
        assert answer(idle) == b""
        assert answer(client).endswith(b"0\r\n\r\n")  # to its own end


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\n"])
def test_a_request_that_came_while_the_server_paused_is_read_before_its_client_is_found_idle(sent: bytes) -> None:
    class Transport:
        closed = False

        def get_extra_info(self, _: str) -> socket.socket:
            return here

        def is_closing(self) -> bool:
            return self.closed

        def close(self) -> None:
            self.closed = True

    here, client = socket.socketpair()
    with here, client, closing(asyncio.new_event_loop()) as loop:
        (config := config_of(FastAPI())).load()
        for ends in ("keep-alive", "idle"):
            protocol = BoundedProtocol(config, ServerState(), {}, _loop=loop)
            protocol.transport, protocol.waiting_since_s, protocol.client = Transport(), 0.0, None  # type: ignore[assignment]
            client.sendall(sent)
            if ends == "idle":
                protocol.disconnect_if_idle(now_s=11.0, limit_s=10.0)
            else:
                protocol.timeout_keep_alive_handler()
            assert protocol.transport.is_closing() == (not sent), ends


@pytest.mark.parametrize(
    "part", [b"/%s", b"/health/live?%s=", b"/health/live HTTP/1.1\r\n%s: ", b"/ HTTP/1.1\r\nx: %s"]
)
def test_a_head_without_an_end_is_refused(part: bytes) -> None:
    with serving(fake_service(), PATIENT) as (server, address), connected(address) as client:
        client.sendall(b"GET " + part.partition(b"%s")[0])
        (connection,) = eventually(lambda: server.server_state.connections, "it is connected")
        with pytest.raises(ConnectionError):  # without the end, it would send forever
            while True:
                client.sendall(b"x" * 32_768)
        del connection
        gone(server)


@pytest.mark.parametrize("lines", [1, 1_000])
def test_a_head_that_is_too_large_is_refused_with_a_reason(lines: int) -> None:
    headers = b"".join(b"x-%d: %s\r\n" % (number, b"v" * (MAX_HEAD_BYTES // lines)) for number in range(lines))
    with serving(fake_service(), PATIENT) as (_, address), connected(address) as client:
        client.sendall(b"GET /health/live HTTP/1.1\r\n" + headers + b"\r\n")
        head, _, body = answer(client).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 431 ")
        assert orjson.loads(body)["type"] == "urn:headwater:problem:request_header_fields_too_large"


def status_of(client: socket.socket) -> int:
    """That of the next answer on a connection, which is read to its end: it may come in several parts."""
    with HTTPResponse(client) as response:
        response.begin()
        response.read()
        return response.status


def test_a_head_of_nearly_the_limit_and_many_requests_on_a_connection_are_answered() -> None:
    large = LIVE[:-2] + b"x: " + b"v" * (MAX_HEAD_BYTES - 1_000) + b"\r\n\r\n"
    with serving(fake_service(), PATIENT) as (_, address), connected(address) as client:
        for _ in range(5):
            client.sendall(large)
            assert status_of(client) == 200
    body = b'{"listing_id": "L1", "sold_for": %s1}' % (b" " * 300_000)
    with serving(fake_service(), PATIENT) as (_, address), connected(address) as client:
        for _ in range(3):
            client.sendall(POST + b"content-length: %d\r\n\r\n" % len(body) + body)
            assert status_of(client) == 201


def test_a_connection_is_kept_longer_than_common_clients_keep_one() -> None:
    """Else a client would now and then send a request to a server that is just closing its connection."""
    assert config_of(FastAPI()).timeout_keep_alive > PATIENT.idle_s
    assert (DEFAULT_LIMITS.keepalive_expiry or 0) < PATIENT.idle_s


def test_trailers_without_an_end_are_refused() -> None:
    with serving(fake_service(), PATIENT) as (server, address), connected(address) as client:
        client.sendall(POST + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n")
        with pytest.raises(ConnectionError):
            for number in range(100_000):
                client.sendall(b"x-%d: %s\r\n" % (number, b"v" * 1_000))
        gone(server)


def test_nonsense_is_a_bad_request() -> None:
    with serving(fake_service(), PATIENT) as (_, address), connected(address) as client:
        client.sendall(b"\x00" * 1_000)
        assert answer(client).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("path", ["/commands/listing.sell", "/observations/listing_viewed"])
def test_a_body_that_does_not_arrive_is_answered(path: str) -> None:
    service = replace(fake_service(), limits=Limits(body_s=0.5))
    with serving(service, PATIENT) as (_, address), connected(address) as client:
        head = f"POST {path} HTTP/1.1\r\nhost: headwater\r\ncontent-type: application/json\r\n"
        client.sendall(head.encode() + b"content-length: 1000\r\n\r\n{")
        found = answer(client)
        assert found.startswith(b"HTTP/1.1 408 ")
        assert b"urn:headwater:problem:body_incomplete" in found
        assert b"connection: close" in found.lower()


def test_the_lines_that_came_are_answered_and_the_request_ends() -> None:
    service: FakeService = replace(fake_service(), limits=Limits(body_s=0.5))
    with serving(service, SOON) as (server, address), connected(address) as client:
        client.sendall(MANY + b"transfer-encoding: chunked\r\n\r\n%x\r\n%b{\r\n" % (len(SELL) + 1, SELL))
        found = answer(client)
        assert found.startswith(b"HTTP/1.1 200 ")
        assert b'"status":201' in found
        assert found.endswith(b"0\r\n\r\n")
        gone(server)
    assert len(service.gateway.calls) == 1
