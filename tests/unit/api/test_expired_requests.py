"""Rows that expire: no request finds them any more, and followers hear that they went."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import orjson
import pytest

from headwater.api.app import create_app
from headwater.api.changes import changed_rows, feed
from headwater.api.reading import Made
from headwater.eventlog.envelope import partition_of
from headwater.eventlog.ports import Entry
from headwater.eventlog.topics import PATCHES
from headwater.projections.table.types import format_time
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import catch_up, fake_service
from tests.unit.api.followers import Follower, play_in, until

HOUR = timedelta(hours=1)


class Sessions:
    """Sessions in every store, and who follows them."""

    def __init__(self, view: str) -> None:
        self.service = fake_service(modules=["tests.support.expiring"])
        self.view, self.log, self.number = view, self.service.log, 0
        self.stores = [self.service.readers[store.name] for store in self.service.views[view].stores]
        for reader in self.service.readers.values():
            reader.rows[view], reader.reached = {}, dict.fromkeys(range(4), 0)
        self.app = create_app(self.service)

    def see(self, key: str, left: timedelta | None, *, stores: Any = None) -> None:
        """An event changes a row, which expires in this time; None: never."""
        self.number += 1
        tag = self.service.views[self.view].tag
        value = orjson.dumps({"p": 3, "o": self.number, "i": 0, "t": 1, "c": {"user": "u"}})
        self.log.submit(Entry(PATCHES, f"{tag}/{key}", value, 1), partition_of(f"{tag}/{key}", 4))
        for counted in self.stores if stores is None else stores:
            counted.rows[self.view][key] = row(key, left)
            counted.reached = {partition: self.log.end(PATCHES, partition) for partition in range(4)}

    def expire(self, *keys: str, stores: Any = None) -> None:
        """Let rows expire now, or in a moment: after the end of every look that there was."""
        for counted, key in product(self.stores if stores is None else stores, keys):
            counted.rows[self.view][key]["seen_at"] = row(key, timedelta(milliseconds=2))["seen_at"]

    @asynccontextmanager
    async def following(self, query: str = "", last: str | None = None) -> AsyncIterator[Follower]:
        follower = Follower(False, f"/views/{self.view}/changes")
        call = asyncio.create_task(follower.call(self.app, query, last))
        try:
            yield follower
        finally:
            follower.gone.set()
            await asyncio.wait_for(call, 60)


def row(key: str, left: timedelta | None) -> dict[str, Any]:
    seen_at = None if left is None else format_time(datetime.now(UTC) - HOUR + left)
    return {"session_id": key, "user": "u", "seen_at": seen_at, "day": "2026-01-01", "times": 1}


def play(scenario: Callable[[Sessions], Awaitable[None]], view: str) -> None:
    play_in(lambda: Sessions(view), scenario)


def told(follower: Follower) -> list[tuple[str, bool]]:
    """Key of each change, and whether the row is there."""
    return [(change["key"], change["row"] is not None) for name, change in follower.events if name == "change"]


@pytest.fixture
def same_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changed_rows, "CLOCKS", timedelta(0))
    monkeypatch.setattr(changed_rows, "LOOK_S", 0.05)
    monkeypatch.setattr(feed, "LOOK_S", 0.05)


VIEWS = pytest.mark.parametrize("view", ["sessions", "plain_sessions"])


@VIEWS
@pytest.mark.usefixtures("same_clocks")
def test_followers_hear_that_a_row_went(view: str) -> None:
    async def scenario(sessions: Sessions) -> None:
        sessions.see("gone", -HOUR)
        sessions.see("stays", HOUR)
        sessions.see("never", None)
        sessions.see("before", HOUR)
        async with sessions.following() as all_rows, sessions.following("key=one&key=stays") as some:
            await all_rows.until(1)
            await some.until(1)
            sessions.see("one", HOUR)
            sessions.see("two", HOUR)
            await until(lambda: {("one", True), ("two", True)} == set(told(all_rows)))
            await until(lambda: told(some) == [("one", True)])
            sessions.expire("before", "one", "two")
            await until(lambda: {("before", False), ("one", False), ("two", False)} <= set(told(all_rows)))
            await until(lambda: told(some) == [("one", True), ("one", False)])
            sessions.see("one", HOUR)  # it is back, with all that it ever had
            await until(lambda: told(all_rows)[-1] == ("one", True))
            assert {key for key, _ in told(all_rows)} == {"before", "one", "two"}
            positions = [
                event["position"] for name, event in all_rows.events if name == "change" and event["row"] is None
            ]
            assert positions == [None] * 3

    play(scenario, view)


@pytest.mark.usefixtures("same_clocks")
def test_a_store_that_lacks_a_newer_time_says_nothing_of_the_row_before() -> None:
    async def scenario(sessions: Sessions) -> None:
        postgres, others = sessions.stores[0], sessions.stores[1:]
        sessions.see("one", HOUR)
        async with sessions.following() as follower:
            await follower.until(1)
            sessions.see("one", 2 * HOUR, stores=others)
            await until(lambda: told(follower) == [("one", True)])
            sessions.expire("one", stores=[postgres])
            await until(lambda: postgres.rows["sessions"]["one"]["seen_at"] < format_time(datetime.now(UTC) - HOUR))
            polled = postgres.polled
            await until(lambda: postgres.polled > polled + 3)
            assert told(follower) == [("one", True)]
            sessions.expire("one", stores=others)
            await until(lambda: others[0].rows["sessions"]["one"]["seen_at"] < format_time(datetime.now(UTC) - HOUR))
            # it has the row only after the row expired, and it went all the same
            postgres.rows["sessions"]["one"] = others[0].rows["sessions"]["one"]
            postgres.reached = others[0].reached
            await until(lambda: told(follower) == [("one", True), ("one", False)])

    play(scenario, "sessions")


@pytest.mark.usefixtures("same_clocks")
def test_if_too_many_rows_go_at_once_all_are_read_again() -> None:
    async def scenario(sessions: Sessions) -> None:
        async with sessions.following() as follower:
            await follower.until(1)
            going = row("", timedelta(seconds=0.5))  # all at one time: a look could end between two times
            sessions.stores[0].rows["plain_sessions"] |= {
                str(number): going | {"session_id": str(number)} for number in range(1_001)
            }
            await until(lambda: follower.events[-1] == ("reset", {"reason": "too_far_behind"}))
            sessions.see("next", HOUR)
            await until(lambda: ("next", True) in told(follower))

    play(scenario, "plain_sessions")


def test_who_returns_reads_all_rows_again() -> None:
    async def scenario(sessions: Sessions) -> None:
        async with sessions.following() as follower:
            await follower.until(1)
            sessions.see("one", HOUR)
            await until(lambda: told(follower) == [("one", True)])
            place = follower.last_id
        async with sessions.following(last=place) as again:
            await until(lambda: ("reset", {"reason": "position_gone"}) in again.events)

    play(scenario, "plain_sessions")


def test_no_request_finds_it() -> None:
    service = fake_service(modules=["tests.support.expiring"])
    catch_up(service)
    for reader in service.readers.values():
        reader.rows["sessions"] = {key: row(key, left) for key, left in (("a", HOUR), ("b", -HOUR), ("c", None))}
        reader.rows["then"] = reader.rows["sessions"]
        reader.rows["users"] = {name: {"user": name, "session": session} for name, session in (("x", "a"), ("y", "b"))}
    service.generations.made_views["then"] = Made("then", "sessions", 1, "", {}, None)
    client = AppClient(create_app(service))
    expires = {entry["name"]: entry["expires"] for entry in client.get("/views").json()["views"]}
    assert (expires["sessions"], expires["users"]) == ({"column": "seen_at", "after_s": 3600.0}, None)
    assert expires["then"] is None
    assert [client.get(f"/views/sessions/{key}").status_code for key in "abc"] == [200, 404, 200]
    assert client.get("/views/sessions?count=true").json()["total"] == 2
    keys = client.get("/views/sessions/rows?key=a&key=b").json()["rows"]
    assert [key and key["session_id"] for key in keys] == ["a", None]
    assert client.get("/views/sessions/search?q=u").json()["total"] == 2
    assert [each["times"] for each in client.get("/views/users").json()["rows"]] == [1, None]
    assert client.get("/views/then?count=true").json()["total"] == 3, "a view that was made never changes"
