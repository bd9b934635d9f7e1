"""The sample `listings`, checked: its listings are traded, and every view is compared with pandas."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any, Final

import pandas as pd

from headwater.compose.samples.listings import Listings, list_all
from headwater.compose.samples.sample import Client, Deployment, Request
from tests.samples.checked import CheckedSample, read_after
from tests.samples.stored_rows import Rows, cached, differences, documents, table


def trade(frame: pd.DataFrame) -> list[list[Request]]:
    """Change prices, accept offers, sell, withdraw and relist; `frame` is updated.

    Returns rounds: the commands of one round concern different listings and may run at once.
    """
    ids = list(frame.index)
    repriced, offered, sold = ids[::3], ids[1::5], ids[1::10]
    withdrawn = [key for key in ids[2::7] if key not in set(sold)]
    relisted = withdrawn[::3]
    return [
        [change_price(frame, key, round(int(frame.at[key, "price"]) * 0.95)) for key in repriced],
        [_move(frame, key, "put_under_offer", "under_offer", "offer") for key in offered],
        [_move(frame, key, "sell", "sold", "sold_for") for key in sold],
        [_move(frame, key, "withdraw", "withdrawn") for key in withdrawn],
        [_move(frame, key, "relist", "listed") for key in relisted],
    ]


def change_price(frame: pd.DataFrame, key: str, price: int) -> Request:
    """The command that changes the price of listing `key` to `price`."""
    if price != frame.at[key, "price"]:
        frame.at[key, "price_changes"] += 1
    frame.at[key, "price"] = price
    return Request("listing.change_price", {"listing_id": key, "price": price})


def city_market(frame: pd.DataFrame) -> pd.DataFrame:
    """The view `city_market`, computed from the listings with pandas."""
    market = frame[frame["status"].isin(["listed", "under_offer"])]
    by_city = market.groupby("city")
    counts = {
        status: frame[frame["status"] == status].groupby("city").size()
        for status in ("listed", "under_offer", "sold", "withdrawn")
    }
    result = pd.DataFrame(counts, index=pd.Index(sorted(frame["city"].unique()), name="city")).fillna(0).astype(int)
    result["lowest_price"] = by_city["price"].min()
    result["highest_price"] = by_city["price"].max()
    result["average_price"] = by_city["price"].sum() / by_city.size()
    result["average_price_per_square_foot"] = by_city["price"].sum() / by_city["square_feet"].sum()
    return result


def _move(frame: pd.DataFrame, key: str, command: str, status: str, amount: str = "") -> Request:
    """The command that gives listing `key` this status. amount: the field with what somebody pays for it, if any."""
    frame.at[key, "status"] = status
    body: dict[str, Any] = {"listing_id": key}
    if amount:
        body[amount] = int(frame.at[key, "price"]) - 1000
    if status == "sold":
        frame.at[key, "sold_for"] = body[amount]
    return Request(f"listing.{command}", body)


CARD_COLUMNS = ["city", "property_type", "beds", "baths", "square_feet", "status", "price"]
SEARCH_COLUMNS = ["description", "zip", *CARD_COLUMNS]
LISTING_COLUMNS = [*SEARCH_COLUMNS, "latitude", "longitude", "first_price", "price_changes", "sold_for"]


def mismatches(frame: pd.DataFrame, deployment: Deployment) -> list[str]:
    """Every difference between a view and `frame`, as a text; empty if they are equal."""
    visible = frame[frame["status"] != "withdrawn"]
    checked = [
        ("listings", _rows(frame[LISTING_COLUMNS]), table(deployment, "listings", "listing_id")),
        ("city_market", _rows(city_market(frame)), table(deployment, "city_market", "city")),
        ("listing_search", _rows(visible[SEARCH_COLUMNS]), documents(deployment, "listing_search", "listing_id")),
        ("listing_card", _rows(visible[CARD_COLUMNS]), cached(deployment, "listing_card")),
    ]
    return [text for view, expected, actual in checked for text in differences(view, expected, actual, "pandas")]


def _rows(frame: pd.DataFrame) -> Rows:
    return {str(key): {str(name): _plain(value) for name, value in row.items()} for key, row in frame.iterrows()}


def _plain(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and math.isnan(value) else value


class CheckedListings(CheckedSample, Listings):
    """The 932 properties of Sacramento, traded."""

    things = "listings"
    measured = 100
    views = ("listings", "listing_search", "listing_card", "city_market")

    def __init__(self) -> None:
        super().__init__()
        self.number = len(self.frame)
        self._on_market: list[str] = []

    def rounds(self) -> Sequence[Sequence[Request]]:
        found = [list_all(self.frame), *trade(self.frame)]
        self._on_market = list(self.frame.index[self.frame["status"] == "listed"])
        return found

    async def write_and_read(self, client: Client, number: int) -> tuple[float, str]:
        key = self._on_market[number]
        receipt = await client.send(self._raise(key, 1000))
        took_s, answer = await read_after(client, f"/views/listings/{key}", receipt["position"])
        shown = answer.json().get("price") == self.frame.at[key, "price"]
        return took_s, "" if shown else f"listings/{key} did not show its own write: {answer.text}"

    async def trade(self, client: Client, number: int) -> None:
        await client.send(self._raise(self._on_market[number % len(self._on_market)], 500))

    async def mismatches(self, client: Client, deployment: Deployment) -> list[str]:
        await client.settle(self.rows)
        return await asyncio.to_thread(mismatches, self.frame, deployment)

    def _raise(self, key: str, by: int) -> Request:
        return change_price(self.frame, key, int(self.frame.at[key, "price"]) + by)


sample: Final = CheckedListings
