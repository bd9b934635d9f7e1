"""Requests to try with `orders`: `make run` prints them, and tests run them."""

from typing import Final

TO_TRY: Final[tuple[tuple[str, str], ...]] = (
    ("the history of an order: placed, paid, confirmed", "curl -sS {api}/streams/order/order-1"),
    (
        "place another order",
        "curl -sS -X POST {api}/commands/order.place -H 'content-type: application/json' "
        '-d \'{{"order_id": "mine", "customer": "Ada", '
        '"lines": [{{"sku": "tea", "quantity": 2, "unit_cents": 250}}]}}\'',
    ),
    (
        "pay it; then a process reserves its stock",
        "curl -sS -X POST {api}/commands/order.pay -H 'content-type: application/json' "
        '-d \'{{"order_id": "mine", "amount_cents": 500}}\'',
    ),
    ("its history", "curl -sS {api}/streams/order/mine"),
    ("the history of the stock of tea", "curl -sS {api}/streams/stock/tea"),
)
"""What each does, and its command."""
