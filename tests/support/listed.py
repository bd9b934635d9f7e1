"""A property to list: the body of `listing.list_property`, but for its `listing_id`."""

from __future__ import annotations

from typing import Any, Final

LISTING: Final[dict[str, Any]] = {
    "city": "Sacramento",
    "zip": "z95838",
    "property_type": "Residential",
    "beds": 2,
    "baths": 1.0,
    "square_feet": 836,
    "price": 59_222,
    "latitude": 38.63,
    "longitude": -121.43,
}
