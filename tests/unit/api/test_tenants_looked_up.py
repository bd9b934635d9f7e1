"""Look-ups in the view of all events show no event of another tenant, whatever text a row has in place of its id."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headwater.api.app import create_app
from headwater.api.guard.caller import DECLARED, Caller, OwnStreams
from headwater.api.guard.scopes import Scopes
from headwater.eventlog.envelope import encode
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import FakeService, catch_up, event, fake_service
from tests.unit.api.test_guard_routes import guarded
from tests.unit.api.test_tenants import HERS, MINE, MODULE, SECRET, caller

NOTING = "tests.support.tenants_noting"
NAMED = [*(f"{her}/1" for her in HERS), "account/other/A1/2", "tally/7/p/1"]


@pytest.fixture
def service() -> FakeService:
    made = guarded(fake_service(modules=(MODULE, NOTING)))
    catch_up(made)
    rows: dict[str, Any] = {}
    for stream in (*MINE, *HERS):
        for version in (1, 2):
            word = SECRET if stream in HERS else "mine"
            each = event(stream, version, "account.opened", tenant="t", account_id="a", owner=word)
            rows[each.id] = {"event_id": each.id, "record": encode(each).decode(), "type": each.type}
    made.readers["postgres"].rows["streams"] = rows
    return made


@pytest.fixture
def client(service: FakeService) -> AppClient:
    return AppClient(create_app(service))


def note(service: FakeService, *names: str) -> None:
    """Rows of the caller, in which it has written these names of events."""
    rows = {f"account/acme/{at}": {"tenant": "acme", "note": name} for at, name in enumerate(names)}
    service.readers["postgres"].rows["notes"] = {key: {"stream": key, **row} for key, row in rows.items()}


@pytest.mark.parametrize("path", ["", "/account/acme/0", "/rows?key=account/acme/0"])
def test_an_event_of_another_tenant_is_not_looked_up(client: AppClient, service: FakeService, path: str) -> None:
    hers = {f"{her}/1" for her in HERS} | {"account/other/A1/2"}
    for name in NAMED:
        note(service, name)
        answer = client.get(f"/views/notes{path}", headers=caller())
        assert answer.status_code == 200, name
        if name in hers:
            assert SECRET not in answer.text, name
            assert '"happened":null' in answer.text, name
        else:
            assert '"happened":"account.opened"' in answer.text, name  # no claim is part of its id


def test_ones_own_event_is_looked_up_and_any_for_an_operator(client: AppClient, service: FakeService) -> None:
    note(service, f"{MINE[0]}/1", f"{HERS[0]}/1", "nothing", "")
    mine = client.get("/views/notes", headers=caller()).json()["rows"]
    assert [row["happened"] for row in mine] == ["account.opened", None, None, None]
    every = client.get("/views/notes", headers=caller("operate", "views:*")).json()["rows"]
    assert [row["happened"] for row in every] == ["account.opened", "account.opened", None, None]
    hers = client.get("/views/notes", headers=caller(tenant=["acme", "other"])).json()["rows"]
    assert [row["happened"] for row in hers] == ["account.opened", "account.opened", None, None]


def test_it_is_not_even_read(client: AppClient, service: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    note(service, f"{HERS[0]}/1")
    asked: list[str] = []
    reader = service.readers["postgres"]
    get_many = reader.get_many

    async def noted(live: Any, keys: Any, columns: Any = ()) -> Any:
        asked.extend(keys)
        return await get_many(live, keys, columns)

    monkeypatch.setattr(reader, "get_many", noted)
    client.get("/views/notes", headers=caller())
    assert f"{HERS[0]}/1" not in asked


def test_followers_of_different_tenants_do_not_share_what_was_looked_up(service: FakeService) -> None:
    view = service.views["notes"]

    def seen(*scopes: str, **claims: Any) -> object:
        return service.lookups.readable(view, Caller("x", Scopes.of(scopes or ("views:*",)), None, claims))

    assert seen(tenant="acme") == seen(tenant="acme", sub="another")
    assert (
        len({seen(tenant="acme"), seen(tenant="other"), seen(tenant=["acme", "other"]), seen(), seen("operate")}) == 5
    )

    async def shown(of: Caller | None) -> Any:
        row = {"stream": "account/acme/0", "tenant": "acme", "note": f"{HERS[0]}/1"}
        return (await service.lookups.show(view, [row], ["event"], of))[0]["event"]

    assert asyncio.run(shown(None)) is None  # a feed without a caller


def test_deployments_without_tenants_look_up_every_event() -> None:
    plain = OwnStreams(fake_service().commands)
    assert plain.seen_by(None) == plain.seen_by(Caller("x", Scopes(), None, {})) == DECLARED
    assert plain.exists_for(None, "listing/L1")
