"""A caller whose key was revoked, or whose token or session has ended, while it waited, does and gets nothing."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater.api.app import create_app
from headwater.api.guard.caller import Caller
from headwater.api.guard.guard import SESSION_S, Guard
from headwater.api.guard.jwks import IssuerKeys, keys_of
from headwater.api.guard.keys import ApiKeys, new_key, now, write_keys
from headwater.api.guard.tokens import Roles, Tokens
from headwater.eventlog.personal.memory import MemoryKeys
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import FakeService, catch_up, fake_service
from tests.unit.api.issuing import AUDIENCE, ISSUER, bearer, jwks, token

BODY = json.dumps({"listing_id": "L1", "sold_for": 5})
REPORT = json.dumps({"id": "1", "source": "s", "data": {"listing_id": "L1"}})
LINE = json.dumps({"type": "listing.sell", "body": json.loads(BODY)})
JSON = {"content-type": "application/json"}
NDJSON = {"content-type": "application/x-ndjson"}
SCOPES = ("commands:*", "observations:*", "views:*", "streams:*", "operate", "personal", "erase")


class World:
    """An API, and a caller whose key `revoke` revokes within the second that it may take."""

    def __init__(self, folder: Path, modules: tuple[str, ...] = ("listings",)) -> None:
        key, stored = new_key("ada", list(SCOPES), now(), None, {})
        self.file, self.clock_s = folder / "keys.json", 0.0
        write_keys(self.file, [stored])
        guard = Guard(ApiKeys(self.file, lambda: self.clock_s))
        self.service: FakeService = replace(fake_service(modules=modules), guard=guard)
        catch_up(self.service)
        self.client, self.headers = AppClient(create_app(self.service)), bearer(key)

    def revoke(self) -> None:
        write_keys(self.file, [])
        self.clock_s += 10.0

    def revoked_after(self, wait: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """The same wait, during which the key is revoked."""

        async def waited(*args: Any, **named: Any) -> Any:
            found = await wait(*args, **named)
            self.revoke()
            return found

        return waited


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize(
    ("path", "content", "headers"),
    [
        ("/commands/listing.sell", BODY, JSON),
        ("/commands", LINE + "\n", NDJSON),
        ("/observations/listing_viewed", REPORT, JSON),
        ("/observations/listing_viewed", REPORT + "\n", NDJSON),
    ],
)
def test_what_arrives_after_the_key_was_revoked_is_not_done(
    world: World, path: str, content: str, headers: dict[str, str]
) -> None:
    async def slowly() -> Any:
        yield content[:10].encode()
        world.revoke()
        yield content[10:].encode()

    answer = world.client.post(path, content=slowly(), headers=headers | world.headers)
    assert "unauthenticated" in answer.text, answer.text
    assert not world.service.gateway.calls and not world.service.recorder.reports


@pytest.mark.parametrize(
    ("path", "content", "headers"),
    [
        ("/commands/listing.sell", BODY, JSON),
        ("/commands", LINE + "\n", NDJSON),
        ("/observations/listing_viewed", REPORT, JSON),
        ("/observations/listing_viewed", REPORT + "\n", NDJSON),
    ],
)
def test_what_waited_for_a_thread_meanwhile_is_not_done(
    world: World, monkeypatch: pytest.MonkeyPatch, path: str, content: str, headers: dict[str, str]
) -> None:
    monkeypatch.setattr(world.service.bodies, "read", world.revoked_after(world.service.bodies.read))
    answer = world.client.post(path, content=content, headers=headers | world.headers)
    assert "unauthenticated" in answer.text, answer.text
    assert not world.service.gateway.calls and not world.service.recorder.reports


@pytest.mark.parametrize(
    "path", ["/views/listings", "/views/listings/L1", "/views", "/streams/listing/L1", "/receipts/c?stream=listing/L1"]
)
def test_nothing_is_read_by_who_waited_too_long(world: World, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr(world.service.waiter, "wait", world.revoked_after(world.service.waiter.wait))
    monkeypatch.setattr(world.service.gateway, "receipt", world.revoked_after(world.service.gateway.receipt))
    monkeypatch.setattr(world.service.generations, "live", world.revoked_after(world.service.generations.live))
    answer = world.client.get(path, headers=world.headers)
    assert (answer.status_code, answer.json()["type"]) == (401, "urn:headwater:problem:unauthenticated")


def test_a_person_is_not_erased_for_who_waited_too_long(
    tmp_path: Path, keys: MemoryKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, ("tests.support.personal_customers",))
    key_id = keys.key_of("ada").key_id
    monkeypatch.setattr(world.service.generations, "live", world.revoked_after(world.service.generations.live))
    assert world.client.request("DELETE", "/persons/ada", headers=world.headers).status_code == 401
    assert [key.key_id for key in keys.keys_of("ada") if key.erased is None] == [key_id]


class RotatedKeys:
    """The keys of an issuer, which a test withdraws."""

    def __init__(self) -> None:
        self.keys: IssuerKeys = keys_of(jwks())

    def current(self) -> IssuerKeys:
        return self.keys

    async def with_key(self, key_id: str) -> IssuerKeys:
        return self.keys

    def close(self) -> None:
        """Nothing."""


def test_a_token_and_its_session_end_with_the_key_that_signed_it() -> None:
    source = RotatedKeys()
    guard = Guard(None, Tokens(ISSUER, AUDIENCE, source, Roles(None, "roles")), session_key="k" * 32)
    caller = asyncio.run(guard.caller([(b"authorization", f"Bearer {token('operate')}".encode())]))
    cookie = guard.begin_session(caller)
    assert guard.is_valid(caller) and guard.session(cookie) is not None
    source.keys = keys_of(jwks("rsa-1"))
    assert not guard.is_valid(caller) and guard.session(cookie) is None
    document = jwks("ed-2")
    document["keys"][0]["kid"] = "ed-1"
    source.keys = keys_of(document)  # another key under the same id
    assert not guard.is_valid(caller) and guard.session(cookie) is None


def test_a_session_that_has_ended_is_not_valid_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, stored = new_key("ada", ["operate"], now(), None, {})
    write_keys(tmp_path / "keys.json", [stored])
    guard = Guard(ApiKeys(tmp_path / "keys.json"))
    began_s = time.time()
    found: Caller | None = guard.session(
        guard.begin_session(asyncio.run(guard.caller([(b"authorization", f"Bearer {key}".encode())])))
    )
    assert found is not None and guard.is_valid(found) and 0 < guard.left_s(found) <= SESSION_S
    monkeypatch.setattr(time, "time", lambda: began_s + SESSION_S + 1)
    assert not guard.is_valid(found) and guard.left_s(found) == 0
