"""A view of another kind over HTTP: listed, described, read, and waited for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from headwater.api.app import create_app
from headwater.api.service import Service
from headwater.eventlog.envelope import Position
from headwater.eventlog.errors import LogUnavailable
from tests.support.whole_rows import BUSIEST
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import PARTITIONS, MemoryReader, event

TEN = {"hour": "10", "listing": "L1", "views": 3, "at": None}


@pytest.fixture
def both(service: Service) -> Service:
    cache: Any = service.readers["valkey"]
    cache.rows["busiest"] = {"10": TEN}
    return replace(service, views={**service.views, "busiest": BUSIEST})


def test_it_is_listed_described_and_read(both: Service) -> None:
    client = AppClient(create_app(both))
    (described,) = (entry for entry in client.get("/views").json()["views"] if entry["name"] == "busiest")
    assert described["columns"] == {"hour": "text", "listing": "text", "views": "integer", "at": "time"}
    assert client.get("/views/busiest/10").json() == TEN
    schema = client.get("/openapi.json").json()["components"]["schemas"]["busiest.row"]
    assert [*schema["properties"]] == [*TEN]
    assert client.get("/views/busiest?hours=1").json()["known"][:4] == [*TEN]


@pytest.mark.parametrize("source", ["2", "observations/2"])
def test_after_waits_for_every_ledger_since_no_record_tells_the_rows_that_it_changes(
    both: Service, source: str
) -> None:
    events: Any = both.events
    events.events[Position(2, 100)] = event("listing/L1", 5, "listing.sold", listing_id="L1")
    if source != "2":
        events.error = LogUnavailable("reading an event", "it is an observation")
    client, cache = AppClient(create_app(both)), cast(MemoryReader, both.readers["valkey"])
    cache.applied = {partition: {source: 100 - (partition == 3)} for partition in range(PARTITIONS)}
    assert client.get(f"/views/busiest/10?after={source}:100&wait_ms=20").status_code == 503
    cache.applied[3] = {source: 100}
    assert client.get(f"/views/busiest/10?after={source}:100&wait_ms=0").status_code == 200
