"""Requests to try with `payments`: `make run` prints them, and tests run them."""

from typing import Final

TO_TRY: Final[tuple[tuple[str, str], ...]] = (
    (
        "cards charged several times within 10 seconds: reported after three minutes",
        "curl -sS '{api}/views/rapid_payments?sort=-start&limit=3'",
    ),
    (
        "charge a card",
        "curl -sS -X POST {api}/observations/card_charged -H 'content-type: application/json' "
        '-d \'{{"id": "mine-1", "source": "me", '
        '"data": {{"card": "mine", "cents": 2500, "latitude": 48.21, "longitude": 16.37}}}}\'',
    ),
    ("what happened to one of these cards: an alert blocks it", "curl -sS {api}/streams/card/card-1"),
    (
        "open it again",
        "curl -sS -X POST {api}/commands/card.unblock -H 'content-type: application/json' "
        '-d \'{{"card": "card-1"}}\'',
    ),
    ("payments far from the holder's phone", "curl -sS '{api}/views/distant_payments?sort=-paid_at&limit=3'"),
    (
        "payments above all earlier ones of the card",
        "curl -sS '{api}/views/record_payments?sort=-paid_at&limit=3'",
    ),
)
"""What each does, and its command."""
