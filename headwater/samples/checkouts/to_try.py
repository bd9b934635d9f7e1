"""Requests to try with `checkouts`: `make run` prints them, and tests run them."""

from typing import Final

TO_TRY: Final[tuple[tuple[str, str], ...]] = (
    (
        "payments on a new device after three refused ones: reported after three minutes",
        "curl -sS '{api}/views/suspect_checkouts?sort=-paid_at&limit=3'",
    ),
    (
        "pay from a device",
        "curl -sS -X POST {api}/observations/checkout_paid -H 'content-type: application/json' "
        '-d \'{{"id": "mine-1", "source": "me", "data": {{"account": "mine", "device": "pc", "cents": 2500}}}}\'',
    ),
)
"""What each does, and its command."""
