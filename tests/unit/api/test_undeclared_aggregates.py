"""Events of aggregates that are not declared here, such as those of another service, are for operators only."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headwater.api.app import create_app
from headwater.api.changes.subscription import Change
from headwater.api.guard.caller import Caller
from headwater.api.guard.scopes import Scopes
from headwater.api.reading import Made
from headwater.eventlog import topics
from headwater.eventlog.envelope import encode, timestamp_ms
from headwater.eventlog.ports import Entry
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import FakeService, catch_up, event, fake_service
from tests.unit.api.issuing import bearer, token
from tests.unit.api.test_guard_routes import guarded

OURS, THEIRS = "listing/L1/1", "invoice/I1/1"
READER, OPERATOR = ("streams:*", "views:*"), ("operate",)


@pytest.fixture
def service() -> FakeService:
    made = guarded(fake_service())
    catch_up(made)
    events = [event(each.rpartition("/")[0], 1, "any.event") for each in (OURS, THEIRS)]
    for each in events:
        made.log.submit(Entry(topics.EVENTS, each.id, encode(each), timestamp_ms(each.time)), 0)
    rows = {
        each.id: dict.fromkeys(made.views["streams"].types) | {"event_id": each.id, "stream": each.stream}
        for each in events
    }
    for name in ("streams", "then"):
        made.readers["postgres"].rows[name] = rows
    made.generations.made_views["then"] = Made("then", "streams", made.views["streams"].version, "", {}, None)
    return made


def read(service: FakeService, path: str, *scopes: str) -> Any:
    return AppClient(create_app(service)).get(path, headers=bearer(token(*scopes)))


@pytest.mark.parametrize("view", ["streams", "then"])
def test_rows_of_the_view_of_all_events(service: FakeService, view: str) -> None:
    def ids(query: str, *scopes: str) -> list[str | None]:
        return [row and row["event_id"] for row in read(service, f"/views/{view}{query}", *scopes).json()["rows"]]

    named = f"/rows?key={OURS}&key={THEIRS}"
    assert ids("", *READER) == [OURS] and sorted(map(str, ids("", *OPERATOR))) == [THEIRS, OURS]
    assert ids(named, *READER) == [OURS, None] and ids(named, *OPERATOR) == [OURS, THEIRS]
    assert read(service, f"/views/{view}?count=true", *READER).json()["total"] == 1
    assert read(service, f"/views/{view}/{THEIRS}", *READER).status_code == 404
    assert read(service, f"/views/{view}/{THEIRS}", *OPERATOR).status_code == 200


def test_the_log(service: FakeService) -> None:
    def streams(*scopes: str) -> list[str]:
        return [each["event"]["subject"] for each in read(service, "/streams/$all", *scopes).json()["events"]]

    assert streams(*READER) == ["listing/L1"]
    assert sorted(streams(*OPERATOR)) == ["invoice/I1", "listing/L1"]


@pytest.mark.parametrize(("scopes", "expected"), [(READER, [OURS]), (OPERATOR, [OURS, THEIRS])])
def test_changes(service: FakeService, scopes: tuple[str, ...], expected: list[str]) -> None:
    async def followed() -> list[str]:
        service.readers["postgres"].reached = dict.fromkeys(range(4), 0)
        caller = Caller("me", Scopes.of(scopes))
        follower = await service.feeds.follow(service.views["streams"], None, None, caller)
        try:
            follower.offer([Change.of(key, {}, None) for key in (OURS, THEIRS)])
            return [change.key for change in (await follower.take()).changes]
        finally:
            await service.feeds.close()

    assert asyncio.run(followed()) == expected
