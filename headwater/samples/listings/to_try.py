"""Requests to try with `listings`: `make run` prints them, and tests run them."""

from typing import Final

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
