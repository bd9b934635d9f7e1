"""Bodies whose numbers would be rounded: exact, or refused, in both ways to send a command."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from headwater.api.app import create_app
from headwater.eventlog.envelope import decode
from tests.support.purses import PURSES
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import FakeGateway, FakeService

NDJSON = {"content-type": "application/x-ndjson"}
JSON = {"content-type": "application/json"}
LONG = "123456789012345678901234567890"


class KeepingGateway(FakeGateway):
    """Keeps the last command."""

    data: object = None

    async def decide(self, command):  # type: ignore[no-untyped-def]
        self.data = decode(command.entry.value).data
        return await super().decide(command)


@pytest.fixture
def gateway() -> KeepingGateway:
    return KeepingGateway(PURSES)


@pytest.fixture
def purses(service: FakeService, gateway: KeepingGateway) -> AppClient:
    return AppClient(create_app(replace(service, commands=PURSES, gateway=gateway)))


@pytest.mark.parametrize(
    ("members", "pointer"),
    [
        (f'"paid": {LONG}', "paid"),
        ('"paid": 0.12345678901234567890', "paid"),
        ('"note": {"deep": 18446744073709551616}', "note/deep"),
    ],
)
def test_a_number_that_is_not_kept_is_refused(
    purses: AppClient, gateway: KeepingGateway, members: str, pointer: str
) -> None:
    body = f'{{"purse_id": "P", {members}}}'
    one = purses.post("/commands/purse.pay", content=body, headers=JSON)
    assert one.status_code == 422
    assert [error["pointer"] for error in one.json()["errors"]] == [f"#/{pointer}"]
    many = purses.post("/commands", content=f'{{"type": "purse.pay", "body": {body}}}\n', headers=NDJSON)
    problem = orjson.loads(many.content)["problem"]
    assert problem["status"] == 422
    assert [error["pointer"] for error in problem["errors"]] == [f"#/body/{pointer}"]
    assert not gateway.calls


@pytest.mark.parametrize("written", [f'"{LONG}"', "9223372036854775807", '"0.12345678901234567890"'])
def test_what_is_sent_as_text_arrives(purses: AppClient, gateway: KeepingGateway, written: str) -> None:
    body = f'{{"purse_id": "P", "paid": {written}}}'
    assert purses.post("/commands/purse.pay", content=body, headers=JSON).status_code == 201
    assert gateway.data == orjson.loads(body)
    gateway.data = None
    purses.post("/commands", content=f'{{"type": "purse.pay", "id": "{LONG}", "body": {body}}}\n', headers=NDJSON)
    assert gateway.data == orjson.loads(body)
