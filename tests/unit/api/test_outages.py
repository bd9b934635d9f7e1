"""Answers about outages: what to do, and no addresses and users of servers."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headwater.api.problems import AGAIN_S, Outages
from headwater.eventlog.errors import LogUnavailable
from headwater.projections.errors import StoreUnavailable
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import FakeService, MemoryReader

LINE = '{"type": "listing.withdraw", "body": {"listing_id": "L1"}}\n'
NDJSON = {"content-type": "application/x-ndjson"}


@pytest.fixture
def secret() -> str:
    """What the client of a server says; another text in each test, because each is logged once in a while."""
    return f'connection to server at "10.1.2.3", port 5432 failed: no password for user "hw" {uuid.uuid4()}'


def test_an_answer_says_neither_where_a_store_is_nor_who_uses_it(
    client: AppClient, service: FakeService, stored: MemoryReader, secret: str, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        stored.errors = [StoreUnavailable("PostgreSQL", secret)]
        problem = client.get("/views/listings/L1").json()
        assert problem["status"] == 503
        assert problem["detail"] == "PostgreSQL is unavailable: try again; the server log has the reason"
    assert caplog.text.count(secret) == 1


@pytest.mark.parametrize("what", ["a command", "commands", "all streams", "readiness"])
def test_an_answer_does_not_say_where_the_log_is(
    client: AppClient, service: FakeService, secret: str, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    error = LogUnavailable('appending to "commands"', secret)
    service.gateway.error = service.events.error = error
    match what:
        case "a command":
            text = client.post("/commands/listing.withdraw", json={"listing_id": "L1"}).text
        case "commands":
            text = client.post("/commands", content=3 * LINE, headers=NDJSON).text
        case "all streams":
            service.audit.page = failing(error)  # type: ignore[assignment, method-assign]
            text = client.get("/streams/$all").text
        case _:
            answer = client.get("/health/ready")
            assert answer.status_code == 503
            text = answer.text
    assert "the log is unavailable while appending to" in text
    assert secret not in text
    assert "10.1.2.3" not in text
    assert caplog.text.count(secret) == 1


def test_readiness_does_not_say_where_the_registry_is(client: AppClient, service: FakeService, secret: str) -> None:
    service.generations.error = StoreUnavailable("PostgreSQL", secret)
    answer = client.get("/health/ready")
    assert answer.status_code == 503
    assert "PostgreSQL is unavailable" in answer.json()["parts"]["registry"]
    assert "10.1.2.3" not in answer.text


def test_a_cause_is_logged_again_after_a_while(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    outages = Outages(lambda: now[0])
    for now[0] in (0.0, AGAIN_S - 1, AGAIN_S, AGAIN_S + 1):
        outages.note(StoreUnavailable("PostgreSQL", "away"))
    outages.note(StoreUnavailable("PostgreSQL", "another"))
    assert [record.message.count("away") for record in caplog.records] == [1, 1, 0]


def failing(error: Exception) -> Callable[..., Awaitable[Any]]:
    async def fail(*_: object) -> None:
        raise error

    return fail
