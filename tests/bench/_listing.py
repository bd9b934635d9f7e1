"""A property to list, for benches that send commands; it imports nothing that a light client does not need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

LISTING: Final[Mapping[str, Any]] = {
    "city": "SACRAMENTO",
    "zip": "95815",
    "property_type": "Residential",
    "beds": 3,
    "baths": 2.0,
    "square_feet": 1_200,
    "price": 250_000,
    "latitude": 38.6,
    "longitude": -121.4,
    "description": "three bedrooms and a garden",
}
