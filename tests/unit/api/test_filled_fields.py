"""Fields that the API fills: clients cannot forge them, and a command that is sent again is the same."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headwater.api.app import create_app
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.sending.gateway import CommandGateway
from headwater.commands.sending.prepared_command import prepare
from headwater.eventlog.envelope import decode
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.topics import COMMANDS, EVENTS
from tests.support.owned import Open
from tests.unit.api.asgi_client import AppClient, client_of
from tests.unit.api.fake_service import FakeService, fake_service
from tests.unit.api.issuing import bearer, token
from tests.unit.api.test_guard_routes import NDJSON, guarded
from tests.unit.commands.test_client import handled, play

MODULES = ("tests.support.owned",)
HEADERS = bearer(token("commands:*", "observations:*", tenant="acme"))
OPEN = "/commands/account.open"
LOOKED = "/observations/account_looked"
REPORT = {"id": "1", "source": "s", "data": {"account_id": "A"}}


@pytest.fixture
def service() -> FakeService:
    return guarded(fake_service(modules=MODULES))


@pytest.fixture
def sent(service: FakeService, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The envelopes of the commands that the service sends."""
    found: list[Any] = []
    send = service.gateway.send

    def note(commands: Any, **options: Any) -> Any:
        found.extend(decode(command.entry.value) for command in commands)
        return send(commands, **options)

    monkeypatch.setattr(service.gateway, "send", note)
    yield found


def test_a_command_has_the_claims_of_its_caller(service: FakeService, sent: list[Any]) -> None:
    client = client_of(service)
    assert client.post(OPEN, json={"account_id": "A"}, headers=HEADERS).status_code == 201
    line = json.dumps({"type": "account.open", "body": {"account_id": "B"}}) + "\n"
    assert '"accepted"' in client.post("/commands", content=line, headers=NDJSON | HEADERS).text
    assert [event.data for event in sent] == [
        {"account_id": account, "owner": "user-1", "tenant": "acme"} for account in ("A", "B")
    ]
    assert [action.actor for action in sent] == ["user-1", "user-1"]


@pytest.mark.parametrize(
    ("field", "value"), [("owner", "user-1"), ("owner", None), ("tenant", "x"), ("at", "2026-01-02T03:04:05Z")]
)
def test_a_filled_field_in_a_body_is_refused_whatever_it_has(
    service: FakeService, sent: list[Any], field: str, value: Any
) -> None:
    client = client_of(service)
    body = {"account_id": "A", field: value}
    refused = client.post(OPEN, json=body, headers=HEADERS)
    assert (refused.status_code, refused.json()["type"]) == (422, "urn:headwater:problem:malformed_command")
    (fault,) = refused.json()["errors"]
    assert fault["pointer"] == f"#/{field}" and "leave it out" in fault["detail"]
    doubled = f'{{"account_id": "A", "{field}": {json.dumps(value)}, "{field}": {json.dumps(value)}}}'
    headers = HEADERS | {"content-type": "application/json"}
    assert client.post(OPEN, content=doubled, headers=headers).status_code == 422
    answer = client.post(
        "/commands", content=json.dumps({"type": "account.open", "body": body}), headers=NDJSON | HEADERS
    )
    assert answer.json()["problem"]["errors"][0]["pointer"] == f"#/body/{field}"
    assert sent == []


def test_a_caller_without_the_claim_is_refused(service: FakeService, sent: list[Any]) -> None:
    client = client_of(service)
    refused = client.post(OPEN, json={"account_id": "A"}, headers=bearer(token("commands:*")))
    assert (refused.status_code, refused.json()["claim"], refused.json()["field"]) == (403, "tenant", "tenant")
    opened = AppClient(create_app(fake_service(modules=MODULES)))
    assert opened.post(OPEN, json={"account_id": "A"}).json()["type"] == "urn:headwater:problem:unfit_claim"
    assert sent == []


@pytest.mark.parametrize("tenant", [7, None, ["acme"], {"a": 1}])
def test_a_claim_that_is_no_value_of_the_field_is_refused(service: FakeService, tenant: Any) -> None:
    headers = bearer(token("commands:*", tenant=tenant))
    refused = client_of(service).post(OPEN, json={"account_id": "A"}, headers=headers)
    assert (refused.status_code, refused.json()["claim"]) == (403, "tenant")
    report = client_of(service).post(
        LOOKED, json=REPORT | {"data": {"account_id": 7}}, headers=bearer(token("observations:*"))
    )
    assert report.json()["errors"][0]["pointer"] == "#/data/account_id"


def test_an_observation_has_them_too(service: FakeService) -> None:
    client = client_of(service)
    assert client.post(LOOKED, json=REPORT, headers=HEADERS).status_code == 201
    lines = "".join(json.dumps(each) + "\n" for each in (REPORT, REPORT | {"data": {"account_id": "A", "who": "x"}}))
    answer = client.post(LOOKED, content=lines, headers=NDJSON | HEADERS).json()
    assert (answer["stored"], answer["problems"][0]["problem"]["errors"][0]["pointer"]) == (1, "#/data/who")
    for report in service.recorder.reports:
        assert report.data.who == "user-1"
        assert timedelta(0) <= datetime.now(UTC) - report.data.at < timedelta(minutes=5)
    assert service.recorder.options["actor"] == "user-1"
    for field, value in (("who", "x"), ("at", "2026-01-02T03:04:05Z")):
        forged = REPORT | {"data": {"account_id": "A", field: value}}
        refused = client.post(LOOKED, json=forged, headers=HEADERS)
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, f"#/data/{field}")


def test_the_openapi_document_does_not_have_them(service: FakeService) -> None:
    schemas = client_of(service).get("/openapi.json", headers=HEADERS).json()["components"]["schemas"]
    assert schemas["account.open"]["properties"].keys() == {"account_id"}
    assert schemas["account.open"]["required"] == ["account_id"]
    assert schemas["account_looked.report.Looked"]["properties"].keys() == {"account_id"}
    assert schemas["account.opened.data"]["properties"].keys() == {"account_id", "owner", "at"}


def test_a_command_that_is_sent_again_later_has_its_first_receipt_and_its_first_time() -> None:
    log, registry = MemoryLog(partitions=2), CommandRegistry.load(MODULES)
    kind, body = registry.command("account.open"), b'{"account_id": "A"}'
    first = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

    async def scenario() -> None:
        gateway = CommandGateway(log, registry)
        await gateway.start()
        receipts = []
        for time, claims in (
            (first, {"sub": "ann", "tenant": "acme"}),
            (first + timedelta(hours=1), {"sub": "ann", "tenant": "acme"}),
            (first + timedelta(hours=2), {"sub": "bob", "tenant": "acme"}),
        ):
            command = prepare(kind, body, time, claims=claims, command_id="k", actor=claims["sub"])
            receipts.append(await gateway.send([command])[0])
        await gateway.close()
        assert receipts[0] == receipts[1]
        assert (receipts[0].outcome, receipts[0].actor) == ("accepted", "ann")
        assert receipts[2].error is not None and receipts[2].error.code == "idempotency_key_reused"

    with handled(log, MODULES):
        asyncio.run(scenario())
    (event,) = [
        decode(record.value) for p in (0, 1) for record in log.read(EVENTS, p, 0) if "heartbeat" not in record.key
    ]
    assert event.data == {"account_id": "A", "owner": "ann@acme", "at": "2026-01-02T03:04:05Z"}
    assert event.actor == "ann"


def test_the_python_client_fills_them_itself_and_says_who_it_is() -> None:
    log = MemoryLog(partitions=2)
    at = datetime(2026, 1, 2, tzinfo=UTC)

    async def scenario(client: Any) -> None:
        receipt = await client.send(Open(account_id="A", owner="ann", at=at), actor="import")
        assert receipt.actor == "import"

    play(scenario, log, MODULES)
    (command,) = [
        decode(record.value) for p in (0, 1) for record in log.read(COMMANDS, p, 0) if "heartbeat" not in record.key
    ]
    assert command.data["at"] == "2026-01-02T00:00:00Z"


def test_an_open_api_knows_no_actor() -> None:
    service = fake_service()
    AppClient(create_app(replace(service))).post("/commands/listing.withdraw", json={"listing_id": "L1"})
    assert "actor" not in service.gateway.calls[0]
