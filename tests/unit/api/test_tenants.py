"""Tenants: of another tenant's streams nothing can be read, guessed, or told from what was never there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import product
from typing import Any

import httpx
import pytest

from headwater.api.app import create_app
from headwater.api.errors import Forbidden
from headwater.api.guard.caller import Caller, OwnStreams
from headwater.api.guard.guard import Guard
from headwater.api.guard.scopes import Scopes
from headwater.api.reading import Made
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.sending.gateway import CommandGateway
from headwater.eventlog.envelope import encode
from headwater.eventlog.memory import MemoryLog
from tests.support import owned
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import FakeService, catch_up, event, fake_service
from tests.unit.api.issuing import bearer, token
from tests.unit.api.test_guard_routes import guarded
from tests.unit.commands.test_client import handled

MODULE = "tests.support.tenants"
NDJSON = {"content-type": "application/x-ndjson"}
SECRET = "zebra"  # noqa: S105 - a word in every event of the other tenant, so that an answer with one is found
MINE = ("account/acme/A1", "account/acme/a%2Fb", "account/acme/%E6%97%A5", "tally/7/p")
HERS = ("account/other/A1", "account/other/only", "account/acme%2Fother/A1", "account/Acme/A1", "account/acme%20/A1")
SCOPES = ("commands:*", "views:*", "streams:*", "observations:*")


def caller(*scopes: str, **claims: Any) -> dict[str, str]:
    return bearer(token(*(scopes or SCOPES), **{"tenant": "acme", **claims}))


@pytest.fixture
def service() -> FakeService:
    made = guarded(fake_service(modules=(MODULE,)))
    catch_up(made)
    rows = {}
    for stream in (*MINE, *HERS):
        for version in (1, 2):
            word = SECRET if stream in HERS else "mine"
            kind = "tally.counted" if stream.startswith("tally") else "account.opened"
            data = (
                {"shelf": 7, "place": "p"}
                if kind == "tally.counted"
                else {"tenant": "t", "account_id": "a", "owner": word}
            )
            each = event(stream, version, kind, **data)
            rows[each.id] = {
                "event_id": each.id,
                "stream": stream,
                "sequence": version,
                "record": encode(each).decode(),
            }
    made.readers["postgres"].rows["streams"] = rows
    made.readers["postgres"].rows["accounts"] = {
        each: {"stream": each, "tenant": each.split("/")[1], "owner": SECRET if each in HERS else "mine", "opened": 1}
        for each in (*MINE[:1], *HERS[:2])
    }
    return made


@pytest.fixture
def client(service: FakeService) -> AppClient:
    return AppClient(create_app(service))


def paths(stream: str) -> list[str]:
    """How a stream can be named in a request."""
    aggregate, _, name = stream.partition("/")
    encoded = name.replace("%", "%25")
    return [
        f"/streams/{aggregate}/{encoded}?",
        f"/streams/{aggregate}/{encoded.replace('/', '%2F')}?",
        f"/streams?stream={aggregate}/{encoded}&",
        f"/streams?stream={aggregate}%2F{encoded.replace('/', '%2f')}&",
    ]


@pytest.mark.parametrize("stream", MINE)
def test_a_tenant_reads_its_own_streams(client: AppClient, stream: str) -> None:
    for path in paths(stream):
        page = client.get(path, headers=caller())
        assert (page.status_code, page.json()["stream"], page.json()["version"]) == (200, stream, 2), path
        following = client.get(f"{path}limit=1", headers=caller()).json()["links"]["next"]
        assert client.get(following, headers=caller()).json()["events"][0]["sequence"] == 2
        assert client.get(f"{path}version=1", headers=caller()).status_code == 200


@pytest.mark.parametrize("stream", HERS)
def test_what_is_not_the_callers_is_answered_like_what_never_was(
    client: AppClient, service: FakeService, stream: str
) -> None:
    queries = ("", "from=2", "version=1", "version=9", "at=2030-01-01T00:00:00Z", "after=2:100", "limit=1")
    both = zip(paths(stream), paths(f"{stream}-nobody"), strict=True)
    for (path, other), query in product(both, queries):
        found = client.get(path + query, headers=caller())
        never = client.get(other + query, headers=caller())
        assert (found.status_code, found.json()["type"]) == (404, "urn:headwater:problem:stream_missing")
        assert found.text.replace(stream, f"{stream}-nobody") == never.text.replace("%25", "%25")
        assert SECRET not in found.text
    assert client.get(paths(stream)[0], headers=caller("operate")).status_code == 200


def test_it_is_not_even_looked_for(client: AppClient, service: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the time of the answer depends on the name alone."""

    async def looked_for(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(service.readers["postgres"], "find", looked_for)
    monkeypatch.setattr(service.waiter, "wait", looked_for)
    for stream in HERS:
        assert client.get(f"{paths(stream)[0]}after=2:100", headers=caller()).status_code == 404


def test_no_other_name_leads_to_it(client: AppClient) -> None:
    for path in (
        "/streams/account/acme/../other/A1",
        "/streams/account/acme%2F..%2Fother%2FA1",
        "/streams/account/%2e%2e/account/other/A1",
        "/streams/account//other/A1",
        "/streams/account/other%252FA1",
        "/streams/account/oth%2565r/A1",
        "/streams/account/other/A1/",
        "/streams/account/other/A1/1",
        "/streams/account/acme",
        "/streams/account/",
        "/streams/account/acme/%00",
        "/streams/Account/other/A1",
        "/streams?stream=account/other/A1&stream=account/acme/A1",
        "/streams?stream=account/acme/A1&stream=account/other/A1",
        "/streams?stream=account/acme/A1%00",
        "/streams/account/acme/A1?tenant=other",
    ):
        answer = client.get(path, headers=caller())
        assert answer.status_code in (404, 422), (path, answer.text)
        assert SECRET not in answer.text, path


def test_a_claim_is_compared_as_it_is(client: AppClient) -> None:
    tenants = (None, "", ["acme2"], {"acme": 1}, 7, True, "other/A1", "acme%2Fother", "*", "\ufffd", "ACME")
    for tenant, stream in product(tenants, (*MINE[:3], *HERS)):
        assert client.get(paths(stream)[0], headers=caller(tenant=tenant)).status_code == 404, (stream, tenant)


def test_any_value_of_a_list_counts(client: AppClient) -> None:
    for stream, status in ((MINE[0], 200), (HERS[0], 200), (HERS[3], 404)):
        assert client.get(paths(stream)[0], headers=caller(tenant=["acme", "other"])).status_code == status


ALL_EVENTS = (
    "/streams/$all",
    "/streams/$all?type=account.opened",
    "/streams/$all?from=0:0",
    "/views/streams",
    "/views/streams/rows?key=account/other/A1/1",
    "/views/streams/account/other/A1/1",
    "/views/streams?stream=account/other/A1",
    "/views/streams/changes?for_ms=1",
    "/views/streams/search?q=x",
    "/views/streams?count=true&limit=1",
)


def test_the_events_of_all_streams_are_for_operators(client: AppClient) -> None:
    for path in ALL_EVENTS:
        answer = client.get(path, headers=caller())
        assert (answer.status_code, answer.json()["scope"]) == (403, "operate"), path
        assert client.get(path, headers=caller("operate")).status_code not in (401, 403), path


def test_so_are_views_that_were_made_of_them(client: AppClient, service: FakeService) -> None:
    view = service.views["streams"]
    service.generations.made_views["then"] = Made("then", "streams", view.version, "", {}, None)
    service.readers["postgres"].rows["then"] = service.readers["postgres"].rows["streams"]
    for path in ("/views/then", "/views/then/account/other/A1/1"):
        assert client.get(path, headers=caller()).status_code == 403
        assert client.get(path, headers=caller("operate")).status_code == 200
    listed = {entry["name"] for entry in client.get("/views", headers=caller()).json()["views"]}
    assert listed == {"accounts"}


def test_the_document_says_what_they_need(client: AppClient) -> None:
    described = client.get("/openapi.json", headers=caller()).json()["paths"]
    for path, scope in (
        ("/streams/$all", "operate"),
        ("/views/streams", "operate"),
        ("/views/accounts", "views:accounts"),
    ):
        assert described[path]["get"]["security"] == [{"caller": [scope]}]
    (parameter,) = [
        each for each in described["/streams/account/{aggregate_id}"]["get"]["parameters"] if each["in"] == "path"
    ]
    assert "tenant/account_id" in parameter["description"]


def test_deployments_without_tenants_are_as_before() -> None:
    plain = AppClient(create_app(guarded(fake_service())))
    assert plain.get("/streams/$all", headers=caller()).status_code == 200
    assert plain.get("/views/streams", headers=caller()).status_code == 200


@pytest.mark.parametrize("body", [{"tenant": "other"}, {"tenant": "acme"}, {"Tenant": "other"}, {"tenant ": "x"}])
def test_the_tenant_of_a_command_cannot_be_forged(
    client: AppClient, service: FakeService, body: dict[str, str]
) -> None:
    whole = {"account_id": "A1", **body}
    assert client.post("/commands/account.open", json=whole, headers=caller()).status_code == 422
    line = json.dumps({"type": "account.open", "body": whole})
    answer = client.post("/commands", content=line, headers=NDJSON | caller())
    assert json.loads(answer.text)["status"] == 422
    assert service.gateway.calls == []


@pytest.mark.parametrize(
    ("claims", "account_id", "stream"),
    [
        ({}, "A1", "account/acme/A1"),
        ({}, "../other/A1", "account/acme/..%2Fother%2FA1"),
        ({}, "x%2F", "account/acme/x%252F"),
        ({"tenant": "acme/A1"}, "B", "account/acme%2FA1/B"),
        ({"tenant": ".."}, "..", "account/../.."),
        ({"tenant": "日"}, "本", "account/%E6%97%A5/%E6%9C%AC"),
    ],
)
def test_the_link_of_a_command_leads_to_its_stream(
    client: AppClient, service: FakeService, claims: dict[str, str], account_id: str, stream: str
) -> None:
    sent = client.post("/commands/account.open", json={"account_id": account_id}, headers=caller(**claims))
    assert (sent.status_code, sent.json()["stream"]) == (201, stream)
    one = event(stream, 1, "account.opened", tenant="t", account_id="a", owner="o")
    row = {"event_id": one.id, "stream": stream, "sequence": 1, "record": encode(one).decode()}
    service.readers["postgres"].rows["streams"] = {one.id: row}
    link = sent.json()["links"]["stream"]
    assert link == sent.headers["location"]
    read = client.get(link, headers=caller(**claims))
    assert (read.status_code, read.json()["stream"]) == (200, stream), link
    assert client.get(link, headers=caller(tenant="nobody")).status_code == 404


def test_a_plain_link_has_plain_slashes(client: AppClient) -> None:
    sent = client.post("/commands/account.open", json={"account_id": "A1"}, headers=caller())
    assert sent.json()["links"]["stream"] == "/streams/account/acme/A1"


@pytest.mark.parametrize("claims", [{"tenant": None}, {"tenant": ""}, {"tenant": 7}, {"tenant": ["acme"]}])
def test_a_caller_without_a_tenant_sends_nothing(client: AppClient, claims: dict[str, Any]) -> None:
    refused = client.post("/commands/account.open", json={"account_id": "A1"}, headers=caller(**claims))
    assert (refused.status_code, refused.json()["type"]) == (403, "urn:headwater:problem:unfit_claim")


def test_rows_keyed_by_stream_are_those_of_the_tenant(client: AppClient) -> None:
    page = client.get("/views/accounts?count=true", headers=caller()).json()
    assert ([row["stream"] for row in page["rows"]], page["total"]) == (["account/acme/A1"], 1)
    assert client.get("/views/accounts/account/acme/A1", headers=caller()).status_code == 200
    assert client.get("/views/accounts/account/other/A1", headers=caller()).status_code == 404
    hers = client.get("/views/accounts?limit=1", headers=caller(tenant=["other", "acme"])).json()
    stolen = client.get(f"/views/accounts?limit=1&cursor={hers['next']}", headers=caller())
    assert SECRET not in stolen.text


# Receipts, with a handler and a gateway


Ask = Callable[..., Awaitable[httpx.Response]]


def play(scenario: Callable[[Ask], Awaitable[None]], partitions: int = 1) -> None:
    """Run a scenario against an API whose commands are decided; with one partition, all ids meet."""

    async def main(log: MemoryLog) -> None:
        service = guarded(fake_service(modules=(MODULE,)))
        gateway = CommandGateway(log, service.commands, timeout_s=30)
        await gateway.start()
        app = create_app(replace(service, gateway=gateway))  # type: ignore[arg-type]
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        try:
            async with httpx.AsyncClient(transport=transport, base_url="http://headwater") as client:
                await scenario(client.request)
        finally:
            await gateway.close()

    log = MemoryLog(partitions)
    with handled(log, (MODULE,)):
        asyncio.run(main(log))


async def send(ask: Ask, tenant: str, key: str, account_id: str = "A1") -> Any:
    headers = caller(tenant=tenant) | {"idempotency-key": key}
    answer = await ask("POST", "/commands/account.open", json={"account_id": account_id}, headers=headers)
    assert answer.status_code in (201, 409), answer.text
    return answer.json()


def test_receipts_of_others_do_not_exist_also_if_they_have_the_same_id() -> None:
    async def scenario(ask: Ask) -> None:
        answers = [await send(ask, tenant, "order-1") for tenant in ("other", "acme")]
        shown = []
        for tenant, sent in zip(("other", "acme"), answers, strict=True):
            found = await ask("GET", sent["links"]["receipt"], headers=caller(tenant=tenant))
            assert (found.status_code, found.json()["stream"]) == (200, f"account/{tenant}/A1")
            shown.append(set(found.json()))
            other = await ask("GET", sent["links"]["receipt"], headers=caller(tenant="third"))
            never = await ask("GET", "/receipts/order-1?stream=account/nobody/A1", headers=caller(tenant="third"))
            assert (other.status_code, other.text) == (404, never.text)
        alone = await send(ask, "acme", "alone", "B")
        kept = await ask("GET", alone["links"]["receipt"], headers=caller())
        assert shown == [set(kept.json())] * 2, "nothing says that another tenant has the id"

    play(scenario)


@pytest.mark.parametrize("key", ["order-1", "never"])
def test_without_its_stream_a_receipt_is_not_looked_for(key: str) -> None:
    async def scenario(ask: Ask) -> None:
        await send(ask, "other", "order-1")
        for path in (f"/receipts/{key}", f"/receipts?command_id={key}", f"/receipts/{key}?origin=client"):
            for who in (caller(), caller("operate", "commands:*"), caller("commands:tally.count")):
                refused = await ask("GET", path, headers=who)
                assert (refused.status_code, refused.json()["parameter"]) == (422, "stream"), refused.text

    play(scenario)


@pytest.mark.parametrize("tenants_is_first", [True, False])
def test_who_sends_nothing_to_tenants_does_not_learn_their_ids_either(tenants_is_first: bool) -> None:
    async def scenario(ask: Ask) -> None:
        async def count(key: str) -> httpx.Response:
            mine = caller("commands:tally.count") | {"idempotency-key": key}
            return await ask("POST", "/commands/tally.count", json={"shelf": 7, "place": "p"}, headers=mine)

        if tenants_is_first:
            await send(ask, "other", "order-1")
        answers = {key: await count(key) for key in ("order-1", "mine-alone")}
        if not tenants_is_first:
            await send(ask, "other", "order-1")
        found = []
        for sent in answers.values():
            link = sent.json()["links"]["receipt"]
            receipt = await ask("GET", link, headers=caller("commands:tally.count"))
            assert (receipt.status_code, receipt.json()["stream"]) == (200, "tally/7/p"), receipt.text
            found.append(set(receipt.json()))
        assert found[0] == found[1]

    play(scenario)


def test_an_id_that_another_tenant_used_is_free() -> None:
    async def scenario(ask: Ask) -> None:
        first, second = await send(ask, "other", "k"), await send(ask, "acme", "k")
        again = await send(ask, "acme", "k")
        assert (first["stream"], second["stream"]) == ("account/other/A1", "account/acme/A1")
        assert again == second

    play(scenario)


# What decides it


REGISTRY = CommandRegistry.load([MODULE])


def known(*scopes: str, **claims: Any) -> Caller:
    return Caller("me", Scopes.of(scopes), claims=claims)


def test_an_open_api_shows_all_streams(service: FakeService) -> None:
    open_client = AppClient(create_app(replace(service, guard=Guard())))
    assert open_client.get(paths(HERS[0])[0]).status_code == 200
    assert open_client.get("/streams/$all").status_code == 200


def test_aggregates_without_claims_in_their_ids_are_everybodys() -> None:
    found = OwnStreams(REGISTRY)
    assert found.names == ("account",)
    assert found.exists_for(known(), "tally/7/p") and not found.exists_for(known(), "account/acme/A1")
    assert OwnStreams(CommandRegistry([("here", owned.account)])).names == ()


def test_an_aggregate_that_is_not_declared_here_is_for_operators() -> None:
    for found in (OwnStreams(REGISTRY), OwnStreams(CommandRegistry([("here", owned.account)]))):
        for caller in (None, known(), known("streams:*", "commands:*"), known("streams:elsewhere")):
            assert not found.exists_for(caller, "elsewhere/acme/1")
        assert found.exists_for(known("operate"), "elsewhere/acme/1")
        assert found.seen_by(known("operate")) != found.seen_by(known("streams:*"))


def test_what_is_not_allowed_is_named() -> None:
    with pytest.raises(Forbidden, match='needs the scope "operate"'):
        known("streams:*").must(*OwnStreams(REGISTRY).all_events)
    known("streams:*").must(*OwnStreams(CommandRegistry([("here", owned.account)])).all_events)


def test_readiness_names_no_stream_where_callers_are_known(client: AppClient, service: FakeService) -> None:
    service.events.slow = [f'partition 3 of the handler waits: "decide" of "{HERS[0]}"', "partition 4 …"]
    ready = client.get("/health/ready")
    assert ready.status_code == 200 and HERS[0] not in ready.text
    assert ready.json()["parts"]["handlers"].startswith("2 partitions wait for code that does not return")
