"""Clients that read nothing, and ones that read slowly, over real sockets."""

from __future__ import annotations

import time
from typing import Any

import orjson
import pytest

from headwater.api.limits import Limits
from headwater.api.server.connections import StalledClients
from headwater.eventlog.envelope import partition_of
from headwater.eventlog.ports import Entry
from headwater.eventlog.topics import PATCHES
from tests.support.waiting import eventually
from tests.unit.api.fake_service import FakeService, fake_service
from tests.unit.api.serving_clients import connected, gone, serving

pytestmark = pytest.mark.programs

STALL_S = 1.0
LIMITS = Limits(stall_s=STALL_S)
ROWS, ROW_BYTES = 100, 200_000
"""In all more than the buffers of both ends."""


@pytest.fixture
def service() -> FakeService:
    service = fake_service()
    rows = {f"L{number}": {"listing_id": f"L{number}", "city": "x" * ROW_BYTES} for number in range(ROWS)}
    service.readers["postgres"].rows["listings"] = rows
    return service


def change_all(service: FakeService) -> None:
    for number in range(ROWS):
        key = f"listings@1/L{number}"
        value = orjson.dumps({"p": 3, "o": number, "i": 0, "t": 1, "c": {}})
        service.log.submit(Entry(PATCHES, key, value, 1), partition_of(key, 4))
    service.readers["postgres"].reached = {partition: service.log.end(PATCHES, partition) for partition in range(4)}


class Reads:
    """A connection whose client takes nothing of what is there for it; `aborted`: whether it was disconnected."""

    def __init__(self) -> None:
        self.transport: Any = self
        self.aborted = False

    def get_write_buffer_size(self) -> int:
        return 1

    def get_extra_info(self, _: str) -> str:
        return "a client"

    def abort(self) -> None:
        self.aborted = True


def test_a_pause_of_the_server_itself_is_not_held_against_its_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.api.server.connections._acknowledged_bytes", lambda _: 7)
    stalled, client = StalledClients(60.0), Reads()
    for now_s in (1_000.0, 1_001.0, 5_000.0, 5_001.0):  # it stood still for an hour
        stalled.disconnect([client], now_s)
    assert not client.aborted
    for second in range(2, 40):
        stalled.disconnect([client], 5_000.0 + second)
    assert client.aborted


def test_a_follower_that_never_reads_is_disconnected(service: FakeService, caplog: pytest.LogCaptureFixture) -> None:
    service.readers["postgres"].reached = dict.fromkeys(range(4), 0)
    with serving(service, LIMITS) as (server, address), connected(address) as client:
        client.sendall(b"GET /views/listings/changes HTTP/1.1\r\nhost: headwater\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.1 200"
        change_all(service)
        gone(server)
        eventually(lambda: not service.feeds._followed, "its place is free")
    assert f"read nothing for {STALL_S:g} s" in caplog.text


def test_a_sender_of_commands_that_never_reads_is_disconnected(service: FakeService) -> None:
    line = b'{"type": "unknown.%s"}\n' % (b"x" * 1000)
    with serving(service, LIMITS) as (server, address), connected(address) as client:
        head = b"POST /commands HTTP/1.1\r\nhost: headwater\r\ncontent-type: application/x-ndjson\r\n"
        client.sendall(head + b"transfer-encoding: chunked\r\n\r\n")
        with pytest.raises(ConnectionError):  # without the end, the buffers of both ends would fill, and it would wait
            while True:
                client.sendall(b"%x\r\n%b\r\n" % (len(line) * 20, line * 20))
        gone(server)


def test_a_client_that_never_reads_a_whole_answer_is_disconnected(service: FakeService) -> None:
    with serving(service, LIMITS) as (server, address), connected(address) as client:
        client.sendall(b"GET /views/listings?limit=100 HTTP/1.1\r\nhost: headwater\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.1 200"
        gone(server)


def test_a_follower_that_reads_slowly_gets_everything(service: FakeService) -> None:
    service.readers["postgres"].reached = dict.fromkeys(range(4), 0)
    with serving(service, LIMITS) as (_, address), connected(address) as client:
        client.sendall(b"GET /views/listings/changes HTTP/1.1\r\nhost: headwater\r\n\r\n")
        read = len(client.recv(12))
        change_all(service)
        slow_until = time.monotonic() + 3 * STALL_S
        while read < ROWS * ROW_BYTES:
            content = client.recv(256 * 1024)
            assert content
            read += len(content)
            if time.monotonic() < slow_until:
                time.sleep(STALL_S / 20)
