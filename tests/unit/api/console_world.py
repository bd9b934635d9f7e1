"""What the tests of the console share: an API with some listings, their events, and a person with a browser."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from html.parser import HTMLParser
from itertools import count
from pathlib import Path
from typing import Any

import httpx

from headwater.api.app import create_app
from headwater.api.guard.guard import Guard
from headwater.api.guard.keys import ApiKeys, new_key, now, write_keys
from headwater.api.reads.deployment import DeploymentLook
from headwater.eventlog.envelope import Envelope, encode, partition_of
from headwater.eventlog.ports import Entry
from headwater.eventlog.times import now_ms
from headwater.eventlog.topics import EVENTS
from headwater.projections.generations.upkeep.lag import Lag
from headwater.projections.generations.upkeep.view_metrics import Sample
from headwater.projections.table.types import format_time
from headwater.replay import parts
from tests.unit.api.fake_service import PARTITIONS, FakeService, catch_up, event, fake_service

PAGE = {"accept": "text/html,*/*"}
HOSTILE = (
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "{{ 7777 * 7777 }}",
    "javascript:alert(1)",
    "\u202eevil\u2066 مرحبا",
    "x" * 5_000,
    "..",
    "a/b?c=d#e&f;g",
)
LISTED: dict[str, Any] = {
    "city": "GALT", "zip": "z95632", "property_type": "Condo", "beds": 1, "baths": 1.0, "square_feet": 500,
    "price": 100, "latitude": 38.0, "longitude": -121.0, "description": "",
}  # fmt: skip


class Browser:
    """Sends requests as a browser does: with cookies, where they come from, and to one application."""

    def __init__(self, app: Any, root_path: str = "") -> None:
        self.app, self.cookies, self.root_path = app, httpx.Cookies(), root_path

    def get(self, path: str, **request: Any) -> httpx.Response:
        return self.request("GET", path, **request)

    def post(self, path: str, fields: Mapping[str, str], headers: Mapping[str, str] | None = None) -> httpx.Response:
        """Send a form; headers: instead of the one that says that a page of the console sent it."""
        own = {"sec-fetch-site": "same-origin"} if headers is None else headers
        return self.request("POST", path, data=dict(fields), headers=own)

    def request(self, method: str, path: str, **request: Any) -> httpx.Response:
        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False, root_path=self.root_path)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://headwater", cookies=self.cookies
            ) as client:
                headers = PAGE | dict(request.pop("headers", {}))
                answer = await client.request(method, path, headers=headers, **request)
                self.cookies = client.cookies
                return answer

        return asyncio.run(send())


class Links(HTMLParser):
    """Everything that a page links to, loads or sends to, and its tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.places: list[tuple[str, str]] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            self.attributes.append((name, value or ""))
            if name in ("href", "src", "action", "data-changes", "srcset", "formaction", "poster"):
                self.places.append((tag, value or ""))


def world(modules: tuple[str, ...] = ("listings",)) -> FakeService:
    """An API in which the listing L1 has seven events, and views are well."""
    service = fake_service(modules=modules)
    catch_up(service)
    add_listing(service, "L1")
    lags = [Lag("listings", "postgres", 1, 3, "caught up", {"0": 2}, 0, 0, 0.0)]
    well(service, *lags)
    return service


def well(service: FakeService, *lags: Lag) -> None:
    """Let the next look find these views."""
    at = now_ms()
    applied = {(lag.view, lag.store): at - 1_200 for lag in lags}
    service.overseer.found = DeploymentLook(tuple(map(parts.view_part, lags)), Sample(at, lags, applied))


def add_listing(service: FakeService, key: str, **columns: Any) -> list[Envelope]:
    """A listing with the prices 100, 102, …, 107, in the log, in the view `streams` and in the view `listings`."""
    stream = f"listing/{key}"
    events = [event(stream, 1, "listing.listed", listing_id=key, **(LISTED | columns))]
    city = events[0].data["city"]
    for version in range(2, 8):
        prices = {"price": 100 + version, "previous_price": 99 + version}
        events.append(event(stream, version, "listing.price_changed", listing_id=key, city=city, **prices))
    reader, partition = service.readers["postgres"], partition_of(stream, PARTITIONS)
    rows = reader.rows.setdefault("streams", {})
    for version, each in enumerate(events, 1):
        stored = Envelope(
            **{name: getattr(each, name) for name in each.__struct_fields__}
            | {"causation_id": f"command-{version}", "correlation_id": f"chain-{key}", "actor": f"clerk {key}"}
        )
        offset = service.log.submit(
            Entry(EVENTS, each.id, encode(stored), int(each.time.timestamp() * 1000)), partition
        ).result()
        rows[each.id] = {
            "event_id": each.id, "stream": stream, "sequence": each.sequence, "type": each.type,
            "time": format_time(each.time), "partition": partition, "offset": offset, "record": encode(stored).decode(),
        }  # fmt: skip
    row = dict.fromkeys(service.views["listings"].types)
    row |= {"listing_id": key, "city": city, "price": 107, "first_price": 100, "price_changes": 6}
    row |= {name: value for name, value in (LISTED | columns).items() if name in row and name != "price"}
    reader.rows.setdefault("listings", {})[key] = row
    return events


def open_console(service: FakeService | None = None) -> tuple[FakeService, Browser]:
    """A console that answers everybody on this machine."""
    made = service or world()
    return made, Browser(create_app(made))


def guarded_console(tmp_path: Path, *scopes: str) -> tuple[FakeService, Browser, str]:
    """A console that knows its callers, and a key with these scopes."""
    key, stored = new_key("ada", scopes or ("operate",), now(), None, {})
    write_keys(tmp_path / "keys.json", [stored])
    later = count(step=60)  # so that a change of the file is seen at once
    made = replace(world(), guard=Guard(ApiKeys(tmp_path / "keys.json", lambda: float(next(later)))))
    return made, Browser(create_app(made)), key


def sign_in(browser: Browser, key: str, **fields: str) -> httpx.Response:
    """Send a key from the page for signing in."""
    return browser.post("/console/sign-in", {"key": key, **fields})
