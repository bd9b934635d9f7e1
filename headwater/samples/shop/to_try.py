"""Requests to try with `shop`: `make run` prints them, and tests run them."""

from typing import Final

TO_TRY: Final[tuple[tuple[str, str], ...]] = (
    ("a customer: a row of the shop's database, with the payments", "curl -sS {api}/views/customer_360/1"),
    ("a search of its products", "curl -sS '{api}/views/product_search/search?q=saffron&category=tea&limit=3'"),
    ("how many orders have each status, and what they cost", "curl -sS {api}/views/orders_by_status"),
    (
        "receive a payment; then read the customer again",
        "curl -sS -X POST {api}/commands/payment.receive -H 'content-type: application/json' "
        '-d \'{{"payment_id": "mine", "customer_id": "1", "amount_cents": 2500}}\'',
    ),
    ("change the database by ordinary SQL", "{bin}/python -m headwater.samples.shop traffic --transactions 500"),
    ("how far it is captured", "{bin}/headwater sources status"),
)
"""What each does, and its command."""
