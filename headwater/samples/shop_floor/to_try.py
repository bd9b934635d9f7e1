"""Requests to try with `shop_floor`: `make run` prints them, and tests run them."""

from typing import Final

TO_TRY: Final[tuple[tuple[str, str], ...]] = (
    ("the three best sellers", "curl -sS '{api}/views/top_sellers?sort=-cents&limit=3'"),
    (
        "sell something",
        "curl -sS -X POST {api}/observations/item_sold -H 'content-type: application/json' "
        '-d \'{{"id": "mine-1", "source": "me", "data": {{"product": "tea", "pieces": 100, "cents": 45000}}}}\'',
    ),
    (
        "the three best sellers of today",
        'curl -sS "{api}/views/daily_sellers?day=$(date -u +%Y-%m-%dT00:00:00Z)&sort=-cents&limit=3"',
    ),
)
"""What each does, and its command."""
