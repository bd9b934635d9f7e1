"""Requests to try with `sales`: `make run` prints them, and tests run them."""

from typing import Final

TO_TRY: Final[tuple[tuple[str, str], ...]] = (
    ("the sales of each category", "curl -sS '{api}/views/category_sales?sort=-cents'"),
    (
        "sell something",
        "curl -sS -X POST {api}/commands/sale.make -H 'content-type: application/json' "
        '-d \'{{"sale_id": "mine", "customer": "me", "country": "AT", "category": "books", "cents": 1250}}\'',
    ),
    ("who bought most per minute", "curl -sS '{api}/views/sales_per_minute?sort=-sales&limit=5'"),
    ("which tiers a customer was in, and when", "curl -sS '{api}/views/membership_tiers?sort=-valid_from&limit=5'"),
    (
        "sales with the tier and the tax rate of their time: reported after four minutes",
        "curl -sS '{api}/views/taxed_sales?sort=-made_at&limit=5'",
    ),
)
"""What each does, and its command."""
