"""The sample `listings`: trades real properties, and checks every view with pandas."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Final

from headwater.compose.samples.sample import Client, Deployment, Request, Sample

from . import sacramento
from .expected import mismatches


class Listings:
    """The 932 properties of Sacramento; see Sample for the methods."""

    things = "listings"
    measured = 100
    views: Sequence[str] = ("listings", "listing_search", "listing_card", "city_market")
    rows: Mapping[str, str] = {
        "listings": "sacramento-1",
        "listing_search": "sacramento-1",
        "listing_card": "sacramento-1",
        "city_market": "Sacramento",
        "streams": "listing/sacramento-1/1",
    }

    def __init__(self) -> None:
        self._frame = sacramento.load()
        self._on_market: list[str] = []

    @property
    def number(self) -> int:
        return len(self._frame)

    async def prepare(self, client: Client, deployment: Deployment) -> None:
        return

    def loading(self) -> Sequence[Mapping[str, Request]]:
        return [{f"load-{request.body['listing_id']}": request for request in sacramento.list_all(self._frame)}]

    def rounds(self) -> Sequence[Sequence[Request]]:
        found = [sacramento.list_all(self._frame), *sacramento.trade(self._frame)]
        self._on_market = list(self._frame.index[self._frame["status"] == "listed"])
        return found

    async def change(self) -> None:
        return

    async def write_and_read(self, client: Client, number: int) -> tuple[float, str]:
        key = self._on_market[number]
        receipt = await client.send(self._raise(key, 1000))
        began = time.perf_counter()
        answer = await client.http.get(f"/views/listings/{key}", params={"after": receipt["position"]})
        took_s = time.perf_counter() - began
        shown = answer.json().get("price") == self._frame.at[key, "price"]
        return took_s, "" if shown else f"listings/{key} did not show its own write: {answer.text}"

    async def trade(self, client: Client, number: int) -> None:
        await client.send(self._raise(self._on_market[number % len(self._on_market)], 500))

    async def mismatches(self, client: Client, deployment: Deployment) -> list[str]:
        await client.settle(self.rows)
        return await asyncio.to_thread(mismatches, self._frame, deployment)

    def _raise(self, key: str, by: int) -> Request:
        return sacramento.change_price(self._frame, key, int(self._frame.at[key, "price"]) + by)


def sample() -> Sample:
    """What `run` and `demo` send, and check."""
    return Listings()


TO_TRY: Final[tuple[tuple[str, str], ...]] = (
    ("one listing", "curl -sS {api}/views/listings/sacramento-1"),
    ("a search", "curl -sS '{api}/views/listing_search/search?q=condo&price.lte=150000&sort=price&limit=3'"),
    ("a city's market", "curl -sS {api}/views/city_market/Sacramento"),
    (
        "change a price",
        "curl -sS -X POST {api}/commands/listing.change_price -H 'content-type: application/json' "
        '-d \'{{"listing_id": "sacramento-1", "price": 61000}}\'',
    ),
    ("its history", "curl -sS {api}/streams/listing/sacramento-1"),
)
"""What each does, and its command."""
