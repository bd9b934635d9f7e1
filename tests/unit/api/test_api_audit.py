"""The whole log over HTTP, with the log in memory: order, filters, pages, and what is no event."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from headwater.api.reads import scans
from headwater.api.reads.scans import AuditReader
from headwater.api.service import Service
from headwater.commands.handling.command_task import heartbeat
from headwater.eventlog import topics
from headwater.eventlog.envelope import encode, timestamp_ms
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import Entry, Record
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import event

START = datetime(2026, 1, 2, tzinfo=UTC)
MIB = 1024 * 1024


@pytest.fixture
def log() -> MemoryLog:
    """Three partitions of twenty events in turn, a second apart, with heartbeats, a tombstone and nonsense between."""
    log = MemoryLog(partitions=4)
    for number in range(20):
        time = START + timedelta(seconds=number)
        kind = "listing.sold" if number % 2 else "listing.listed"
        stored = event(f"listing/L{number}", 1, kind, number=number)
        stored = structs.replace(stored, time=time)
        append(log, number % 3, stored.id, encode(stored), timestamp_ms(time))
        beat = heartbeat(number % 3, time)
        append(log, number % 3, beat.key, beat.value, beat.timestamp_ms)
    append(log, 0, "listing/L0/1", None, timestamp_ms(START))
    append(log, 1, "strange", b"nonsense", timestamp_ms(START + timedelta(hours=1)))
    return log


def append(log: MemoryLog, partition: int, key: str, value: bytes | None, timestamp: int) -> None:
    log.submit(Entry(topics.EVENTS, key, value, timestamp), partition)


@pytest.fixture
def all_streams(client: AppClient, service: Service, log: MemoryLog) -> AppClient:
    object.__setattr__(service, "audit", AuditReader(log))
    return client


def read(client: AppClient, query: str = "") -> dict[str, Any]:
    answer = client.get(f"/streams/$all?{query}")
    assert answer.status_code == 200, answer.text
    return answer.json()  # type: ignore[no-any-return]


def numbers(page: dict[str, Any]) -> list[int]:
    return [each["event"]["data"]["number"] for each in page["events"]]


def test_every_event_in_order_of_time(all_streams: AppClient) -> None:
    page = read(all_streams)
    assert numbers(page) == list(range(20))
    assert page["events"][4]["position"] == "1:2"
    assert page["unreadable"] == ["1:14"]
    assert (page["links"], page["position"]) == ({}, "0:15,1:15,2:12,3:0")


@pytest.mark.parametrize("limit", [1, 3, 19])
def test_pages_add_up(all_streams: AppClient, limit: int) -> None:
    found: list[int] = []
    path: str | None = f"/streams/$all?limit={limit}"
    while path:
        page = all_streams.get(path).json()
        assert len(page["events"]) <= limit
        found += numbers(page)
        path = page["links"].get("next")
    assert found == list(range(20))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("type=listing.sold", range(1, 20, 2)),
        ("type=listing.sold&type=listing.listed&limit=5", range(5)),
        ("type=boat.sunk", ()),
        ("since=2026-01-02T00:00:05Z", range(5, 20)),
        ("since=2026-01-02T01:00:05%2B01:00&until=2026-01-02T00:00:08Z", (5, 6, 7)),
        ("until=2026-01-02T00:00:00.000001Z", (0,)),
        ("since=2027-01-01T00:00:00Z", ()),
        ("from=0:0,1:999,2:999&limit=3", (0, 3, 6)),
        ("type=listing.listed&from=0:8,1:8,2:8", range(12, 20, 2)),
    ],
)
def test_filters(all_streams: AppClient, query: str, expected: Any) -> None:
    assert numbers(read(all_streams, query)) == list(expected)


def test_going_on_where_the_log_ended(all_streams: AppClient, log: MemoryLog) -> None:
    position = read(all_streams)["position"]
    assert numbers(read(all_streams, f"from={position}")) == []
    later = event("listing/L99", 1, "listing.sold", number=99)
    append(log, 3, later.id, encode(later), 1)
    assert numbers(read(all_streams, f"from={position}")) == [99]


def test_a_page_looks_at_a_bounded_part(all_streams: AppClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "MAX_OFFSETS", 8)
    monkeypatch.setattr(scans, "FIRST_CHUNK", 2)
    found, pages, path = [], 0, "/streams/$all?type=listing.sold"
    while path:
        page = all_streams.get(path).json()
        found += numbers(page)
        pages, path = pages + 1, page["links"].get("next")
    assert sorted(found) == list(range(1, 20, 2))
    assert pages > 3


class Weighing(MemoryLog):
    """Sums up the bytes that each call of `read` gives."""

    def __init__(self) -> None:
        super().__init__(partitions=4)
        self.given: list[int] = []

    def read(self, topic: str, partition: int, start: int, end: int | None = None) -> Iterator[Record]:
        self.given.append(0)
        for record in super().read(topic, partition, start, end):
            self.given[-1] += len(record.value or b"")
            yield record


@pytest.fixture
def large(service: Service) -> Weighing:
    """Four partitions of forty events of 1 MiB."""
    log = Weighing()
    value = encode(event("listing/L1", 1, "listing.sold", city="x" * MIB))
    for number in range(160):
        append(log, number % 4, f"listing/L1/{number}", value, number)
    object.__setattr__(service, "audit", AuditReader(log))
    return log


@pytest.mark.parametrize("query", ["limit=1", "limit=1000", "type=boat.sunk"])
def test_a_page_has_a_bounded_part_of_large_events_in_memory(client: AppClient, large: Weighing, query: str) -> None:
    found: list[str] = []
    path: str | None = f"/streams/$all?{query}"
    while path and len(found) < 20:
        large.given.clear()
        answer = client.get(path)
        assert max(large.given) < 5.1 * MIB
        assert sum(large.given) < 70 * MIB
        assert len(answer.content) < 9.1 * MIB
        found += [each["position"] for each in answer.json()["events"]]
        path = answer.json()["links"].get("next")
    expected = 0 if query == "type=boat.sunk" else len(found)
    assert found == [f"{number % 4}:{number // 4}" for number in range(expected)]
    assert (path is None) == (query == "type=boat.sunk")


@pytest.mark.parametrize(
    "query",
    [
        "from=9:1",
        "from=x",
        "from=",
        "from=0:1,0:2",
        "from=1:99999999999999999999",
        "from=0:1&from=1:1",
        "since=noon",
        "until=2026-01-01",
        "limit=0",
        "limit=1001",
        "city=x",
        "type=%00",
        "&".join(f"type=t{number}" for number in range(101)),
    ],
)
def test_wrong_parameters(all_streams: AppClient, query: str) -> None:
    problem = all_streams.get(f"/streams/$all?{query}").json()
    assert (problem["status"], problem["type"]) == (422, "urn:headwater:problem:bad_parameter")
    assert problem["parameter"] == query.partition("=")[0]
