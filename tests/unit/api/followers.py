"""Followers of `/views/{v}/changes`, with the log and the store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar

import orjson

from headwater.api.app import create_app
from headwater.api.limits import Limits
from headwater.api.reading import Row
from headwater.eventlog.envelope import partition_of
from headwater.eventlog.ports import Entry
from headwater.eventlog.topics import PATCHES
from tests.support.waiting import BOUND_S
from tests.unit.api.fake_service import MODULES, fake_service

SELLER = ("product", "pieces", "cents", "last_sold")
STORES = {"listings": "postgres", "listing_search": "elasticsearch", "top_sellers": "valkey"}
"""The store of each view that changes are read from."""
Scenario = Callable[["World"], Awaitable[None]]


class World:
    """A service, its log, and the store that follows `patches` when it is told to."""

    def __init__(self, limits: Limits | None = None, view: str = "listings") -> None:
        self.view = view
        self.service = fake_service(limits, ["listings", "shop_floor"] if view == "top_sellers" else MODULES)
        self.log = self.service.log
        self.store = self.service.readers[STORES[view]]
        self.store.rows[view] = {}
        self.store.reached = dict.fromkeys(range(4), 0)
        self.app = create_app(self.service)
        self.events = self.followers = 0

    def change(self, key: str, tag: str = "listings@1", applied: bool = True, **columns: Any) -> None:
        """An event changes a row; the store has it at once, or later."""
        self.events += 1
        value = orjson.dumps({"p": 3, "o": self.events, "i": 0, "t": 1, "c": columns})
        self.log.submit(Entry(PATCHES, f"{tag}/{key}", value, 1), partition_of(f"{tag}/{key}", 4))
        if applied:
            self.store.rows["listings"][key] = {"listing_id": key} | columns
            self.apply()

    def batch(self, number: int, rows: Mapping[str, int], tag: str) -> None:
        """A batch of the query of `top_sellers`: products with their cents, which the store has at once."""
        for key, cents in rows.items():
            value = orjson.dumps({"b": number, "t": 1, "c": {"_batch": number, "cents": cents}})
            self.log.submit(Entry(PATCHES, f"{tag}/{key}", value, 1), partition_of(key, 4))
            self.store.rows["top_sellers"][key] = {name: None for name in SELLER} | {"product": key, "cents": cents}
        self.apply()

    def apply(self) -> None:
        """The store takes in everything."""
        self.store.reached = {partition: self.log.end(PATCHES, partition) for partition in range(4)}

    async def polled(self) -> None:
        """Wait until the store was asked twice what it has taken in."""
        polled = self.store.polled
        await until(lambda: self.store.polled >= polled + 2)

    async def read(self) -> None:
        """Wait until the feed has read every patch of the log."""
        (feed,) = self.service.feeds._feeds.values()
        await until(
            lambda: all(feed._read_to.get(partition, 0) >= self.log.end(PATCHES, partition) for partition in range(4))
        )

    async def offered(self) -> None:
        """Wait until every change was offered to the followers."""
        (feed,) = self.service.feeds._feeds.values()
        await until(
            lambda: all(feed.delivered.get(partition, 0) >= self.log.end(PATCHES, partition) for partition in range(4))
        )

    @asynccontextmanager
    async def following(self, query: str = "", last: str | None = None, slow: bool = False) -> AsyncIterator[Follower]:
        follower = Follower(slow, f"/views/{self.view}/changes", self.store.rows[self.view])
        self.followers += 1
        call = asyncio.create_task(follower.call(self.app, query, last))
        try:
            yield follower
        finally:
            follower.gone.set()
            await asyncio.wait_for(call, BOUND_S)
            self.followers -= 1
            assert self.followers or not self.service.feeds._feeds


class Follower:
    """A client: what it was sent, as events. rows: what a page shows that reads `stored` when it is told to."""

    def __init__(self, slow: bool, path: str, stored: Mapping[str, Row] | None = None) -> None:
        self.path = path
        self.rows: dict[str, Row] = {}
        self._stored, self._shown = {} if stored is None else stored, 0
        self.gone = asyncio.Event()
        self.reads = asyncio.Event()
        if not slow:
            self.reads.set()
        self.text, self.status = "", 0
        self.headers: dict[str, str] = {}
        self.ended = False

    async def call(self, app: Any, query: str, last: str | None) -> None:
        headers = [(b"last-event-id", last.encode())] if last else []
        path = {"path": self.path, "raw_path": self.path.encode(), "query_string": query.encode()}
        scope = {"type": "http", "http_version": "1.1", "method": "GET", "headers": headers, **path}
        await app(scope, self.receive, self.send)

    async def receive(self) -> Any:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            return
        self.text += message.get("body", b"").decode()
        self._show()
        self.ended = not message.get("more_body", False)
        while "change" in self.text and not self.reads.is_set():
            await self.reads.wait()

    def _show(self) -> None:
        events = self.events
        for name, data in events[self._shown :]:
            if name in ("open", "reset"):
                self.rows = {key: dict(row) for key, row in self._stored.items()}
            elif name == "change" and data["row"] is None:
                self.rows.pop(data["key"], None)
            elif name == "change":
                self.rows[data["key"]] = data["row"]
        self._shown = len(events)

    @property
    def events(self) -> list[tuple[str, Any]]:
        return [(name, data) for name, data, _ in self.parsed()]

    @property
    def last_id(self) -> str:
        return [place for _, _, place in self.parsed() if place][-1]

    def parsed(self) -> list[tuple[str, Any, str]]:
        found = []
        for block in self.text.split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines() if line and line[0] != ":")
            if "event" in fields:
                found.append((fields["event"], orjson.loads(fields["data"]), fields.get("id", "")))
        return found

    async def until(self, number: int) -> list[tuple[str, Any]]:
        """The first `number` events, once they are there."""
        await until(lambda: len(self.events) >= number)
        return self.events


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(BOUND_S):
        while not holds():  # noqa: ASYNC110 - what it asks about has no event to wait for
            await asyncio.sleep(0.002)


class Followed(Protocol):
    """What scenarios are played in."""

    service: Any


Place = TypeVar("Place", bound=Followed)


def play_in(new_place: Callable[[], Place], scenario: Callable[[Place], Awaitable[None]]) -> None:
    """Play a scenario in a new place, made in its loop."""

    async def main() -> None:
        place = new_place()
        try:
            async with asyncio.timeout(BOUND_S):
                await scenario(place)
        finally:
            await place.service.feeds.close()

    asyncio.run(main())


def play(scenario: Scenario, limits: Limits | None = None, view: str = "listings") -> None:
    play_in(lambda: World(limits, view), scenario)


def changed(events: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return [(data["key"], data["row"] and data["row"].get("price")) for name, data in events if name == "change"]
