"""Following the rows that are one's own: a row that stops to be is sent as removed, and no other is sent at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from headwater.api.app import create_app
from headwater.api.changes import subscription as own_rows
from headwater.api.changes.patch_tail import Touch
from headwater.api.changes.subscription import Change, OwnRows
from headwater.api.requests.filters import Filter
from headwater.eventlog.envelope import partition_of
from headwater.eventlog.ports import Entry
from headwater.eventlog.topics import PATCHES
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import fake_service
from tests.unit.api.followers import Follower, play_in, until
from tests.unit.api.issuing import bearer, token
from tests.unit.api.test_guard_routes import guarded

MINE, HERS = "user-1", "user-2"


class OwnFollower(Follower):
    """A follower with a token."""

    def __init__(self, path: str, headers: dict[str, str]) -> None:
        super().__init__(False, path)
        self._headers = [(name.encode(), value.encode()) for name, value in headers.items()]

    async def call(self, app: Any, query: str, last: str | None) -> None:
        headers = [*self._headers, (b"host", b"x"), *([(b"last-event-id", last.encode())] if last else [])]
        path = {"path": self.path, "raw_path": self.path.encode(), "query_string": query.encode()}
        scope = {"type": "http", "http_version": "1.1", "method": "GET", "headers": headers, **path}
        await app(scope, self.receive, self.send)

    @property
    def told(self) -> list[tuple[str, str | None]]:
        """Key and words of each change."""
        return [
            (change["key"], change["row"] and change["row"]["words"])
            for name, change in self.events
            if name == "change"
        ]


class Notes:
    """Notes of several owners in every store, and who follows them."""

    def __init__(self, view: str = "plain_notes") -> None:
        self.service = guarded(fake_service(modules=["tests.support.own_rows"]))
        self.view, self.log, self.number = view, self.service.log, 0
        self.stores = [self.service.readers[store.name] for store in self.service.views[view].stores]
        for reader in self.service.readers.values():
            reader.rows[view], reader.reached = {}, dict.fromkeys(range(4), 0)
        self.app = create_app(self.service)

    def put(self, key: str, owner: str | None, words: str = "", *, stored: bool = True, brings: bool = True) -> None:
        """An event changes a row. brings: its patch has the owner."""
        self.number += 1
        tag = self.service.views[self.view].tag
        changes = {"words": words} | ({"owner": owner} if brings else {})
        value = orjson.dumps({"p": 3, "o": self.number, "i": 0, "t": 1, "c": changes})
        self.log.submit(Entry(PATCHES, f"{tag}/{key}", value, 1), partition_of(f"{tag}/{key}", 4))
        if stored:
            self.store(key, owner, words)
            self.apply()

    def store(self, key: str, owner: str | None, words: str = "") -> None:
        row = {"note_id": key, "owner": owner, "words": words, "team": 1, "size": 1, "about": "a"}
        for store in self.stores:
            store.rows[self.view][key] = row

    def remove(self, key: str) -> None:
        for store in self.stores:
            store.rows[self.view].pop(key)
        self.put(key, None, stored=False)
        self.apply()

    def apply(self) -> None:
        for store in self.stores:
            store.reached = {partition: self.log.end(PATCHES, partition) for partition in range(4)}

    @asynccontextmanager
    async def following(
        self, query: str = "", subject: str = MINE, last: str | None = None, scope: str = "views:*"
    ) -> AsyncIterator[OwnFollower]:
        follower = OwnFollower(f"/views/{self.view}/changes", bearer(token(scope, sub=subject)))
        call = asyncio.create_task(follower.call(self.app, query, last))
        try:
            yield follower
        finally:
            follower.gone.set()
            await asyncio.wait_for(call, 60)


def play(scenario: Callable[[Notes], Awaitable[None]], view: str = "plain_notes") -> None:
    play_in(lambda: Notes(view), scenario)


@pytest.mark.parametrize("view", ["plain_notes", "notes"])
def test_only_own_rows_are_sent(view: str) -> None:
    async def scenario(notes: Notes) -> None:
        notes.put("h0", HERS, "secret")
        async with notes.following() as me, notes.following(subject=HERS) as her:
            assert (await me.until(1))[0] == ("open", {"position": None, "generation": 1})
            await her.until(1)
            notes.put("h1", HERS, "secret")
            notes.put("n1", MINE, "mine")
            notes.put("none", None, "secret")
            notes.put("h0", HERS, "secret")
            notes.remove("h0")
            notes.put("n2", MINE, "last")
            await until(lambda: ("n2", "last") in me.told)
            await until(lambda: ("h0", None) in her.told)
            assert dict(me.told) == {"n1": "mine", "n2": "last"}
            assert {key for key, _ in her.told} == {"h0", "h1"}
            assert "secret" not in me.text and "id:" not in me.text and HERS not in me.text

    play(scenario, view)


def test_a_row_that_moves_is_removed_for_one_and_new_for_the_other() -> None:
    async def scenario(notes: Notes) -> None:
        notes.put("n1", MINE, "mine")
        async with notes.following() as me, notes.following(subject=HERS) as her:
            await me.until(1)
            await her.until(1)
            notes.put("n1", HERS, "secret")
            assert (await me.until(2))[1][1]["row"] is None
            assert her.told == [("n1", "secret")] or (await her.until(2)) is not None
            for number in range(3):  # what happens to it then is not this caller's matter
                notes.put("n1", HERS, f"secret {number}", brings=False)
            notes.put("end", MINE, "end")
            await until(lambda: me.told[-1] == ("end", "end"))
            assert me.told == [("n1", None), ("end", "end")]
            notes.put("n1", MINE, "back")
            await until(lambda: me.told[-1] == ("n1", "back"))
            await until(lambda: her.told[-1] == ("n1", None))
            notes.remove("n1")
            await until(lambda: me.told[-1] == ("n1", None))
            assert "secret" not in me.text and "back" not in her.text

    play(scenario)


def test_rows_that_are_named() -> None:
    async def scenario(notes: Notes) -> None:
        notes.put("n1", MINE)
        notes.put("h1", HERS)
        async with notes.following("key=n1&key=h1&key=n2") as me:
            await me.until(1)
            for key, owner in (("h1", HERS), ("n1", HERS), ("n3", MINE), ("n2", MINE)):
                notes.put(key, owner, "x")
            await until(lambda: ("n2", "x") in me.told)
            assert sorted(me.told, key=str) == [("n1", None), ("n2", "x")]

    for view in ("plain_notes", "cached_notes", "notes"):
        play(scenario, view)


def test_a_follower_that_returns_reads_its_rows_again() -> None:
    async def scenario(notes: Notes) -> None:
        for last in ("1;0:0,1:0,2:0,3:0", "nonsense"):
            async with notes.following(last=last) as me:
                assert (await me.until(2))[1] == ("reset", {"reason": "position_gone"})
                notes.put("n1", MINE, last)
                await until(lambda: ("n1", last) in me.told)  # noqa: B023

    play(scenario)


def test_a_rebuilt_view_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.api.changes.feed.LOOK_S", 0.01)

    async def scenario(notes: Notes) -> None:
        async with notes.following() as me:
            await me.until(1)
            notes.service.generations.number = 2
            await me.until(2)
            assert me.events[-1] == ("end", {"reason": "read_again"})
        async with notes.following() as me:
            assert (await me.until(1))[0] == ("open", {"position": None, "generation": 2})

    play(scenario)


def test_operators_get_all_changes_with_positions() -> None:
    async def scenario(notes: Notes) -> None:
        async with notes.following(scope="operate") as operator:
            assert (await operator.until(1))[0][1]["position"]
            notes.put("h1", HERS, "secret")
            notes.put("h1", MINE, "moved")
            await until(lambda: operator.told[-1:] == [("h1", "moved")])
            assert operator.last_id

    play(scenario)


def test_a_caller_without_the_claim_gets_nothing() -> None:
    async def scenario(notes: Notes) -> None:
        async with notes.following() as me, notes.following(scope="operate") as operator:
            await me.until(1)
            await operator.until(1)
            notes.put("n1", MINE, "x")
            await operator.until(2)
            assert me.told == []

    play(scenario, "team_notes")


def test_what_is_looked_up_in_rows_of_others_is_null_for_each_follower() -> None:
    async def scenario(notes: Notes) -> None:
        for reader in notes.service.readers.values():
            reader.rows["notes"] = {"h1": {"note_id": "h1", "owner": HERS, "words": "secret"}}
        async with notes.following() as me, notes.following(subject=HERS) as her, notes.following(subject="c") as other:
            for follower in (me, her, other):
                await follower.until(1)
            notes.stores[0].rows["subjects"]["b"] = {"about": "b", "note": "h1"}
            notes.put("b", None, stored=False)
            notes.apply()
            await asyncio.gather(me.until(2), her.until(2), other.until(2))
            assert (me.told, her.told, other.told) == ([("b", None)], [("b", "secret")], [("b", None)])

    play(scenario, "subjects")


def test_too_many_own_rows_have_to_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()
    for number in range(3):
        notes.store(f"n{number}", MINE)
    monkeypatch.setattr(own_rows, "MAX_OWN_ROWS", 2)
    client = AppClient(notes.app)
    refused = client.get("/views/plain_notes/changes?for_ms=10", headers=bearer(token("views:*")))
    assert (refused.status_code, refused.json()["parameter"]) == (422, "key")
    assert (
        client.get("/views/plain_notes/changes?for_ms=10&key=n1", headers=bearer(token("views:*"))).status_code == 200
    )
    cached = client.get("/views/cached_notes/changes?for_ms=10", headers=bearer(token("views:*")))
    assert (cached.status_code, cached.json()["parameter"]) == (422, "key")
    for scope in ("operate", "views:*"):
        others = client.get("/views/plain_notes/changes?for_ms=10", headers=bearer(token(scope, sub="user-9")))
        assert others.status_code == 200


def changed(key: str, owner: str | None, offset: int) -> Change:
    row = None if owner is None else {"owner": owner, "note_id": key}
    return Change.of(key, row, Touch(0, offset, None), ("owner",))


def told(follower: OwnRows) -> dict[str, Any]:
    found = {
        key: orjson.loads(change.event.partition(b"data: ")[2])["row"] for key, change in follower._changes.items()
    }
    follower._clear()
    return found


def own(*keys: str) -> OwnRows:
    made = OwnRows(None, "", conditions=(Filter("owner", "in", (MINE,)),))
    made.know(keys)
    return made


def test_a_row_that_was_own_between_two_reads_is_removed() -> None:
    """Its patch says that it was: the rows that the feed reads are those after the next change."""
    follower = own()
    follower.bring("n1", 5, {"owner": MINE})
    follower.offer([changed("n1", HERS, 6)])
    assert told(follower) == {"n1": None}
    follower.offer([changed("n1", HERS, 7)])
    assert told(follower) == {}


def test_a_row_that_is_own_again_is_removed_again() -> None:
    follower = own("n1")
    follower.bring("n1", 9, {"owner": MINE})
    follower.offer([changed("n1", HERS, 8)])
    assert told(follower) == {"n1": None}
    follower.offer([changed("n1", HERS, 10)])
    assert told(follower) == {"n1": None}


def test_a_patch_of_somebody_else_makes_nothing_own() -> None:
    follower = own()
    for values in ({"owner": HERS}, {}, {"owner": None}):
        follower.bring("h1", 1, values)
    follower.offer([changed("h1", HERS, 2), changed("h1", None, 3)])
    assert told(follower) == {}


def test_what_changed_before_the_own_rows_are_known() -> None:
    follower = OwnRows(None, "", conditions=(Filter("owner", "in", (MINE,)),))
    follower.offer([changed("moved", HERS, 1), changed("hers", HERS, 1), changed("new", MINE, 1)])
    follower.offer([changed("new", HERS, 2), changed("hers", MINE, 3), changed("twice", MINE, 1)])
    follower.know(["moved"])
    assert {key: row and row["owner"] for key, row in told(follower).items()} == {
        "moved": None,
        "new": None,
        "hers": MINE,
        "twice": MINE,
    }
    assert follower.position == ""
