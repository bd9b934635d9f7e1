"""Requests to try with `saved_searches`: `make run` prints them, and tests run them."""

from typing import Final

TO_TRY: Final[tuple[tuple[str, str], ...]] = (
    ("homes that saved searches have found", "curl -sS '{api}/views/search_alerts?sort=-offered_at&limit=3'"),
    (
        "save a search",
        "curl -sS -X POST {api}/commands/saved_search.save -H 'content-type: application/json' "
        '-d \'{{"search_id": "mine", "city": "Linz", "max_price": 300000, "words": "balcony"}}\'',
    ),
    (
        "offer a home",
        "curl -sS -X POST {api}/observations/home_offered -H 'content-type: application/json' "
        '-d \'{{"id": "mine-1", "source": "me", "data": {{"home": "mine", "city": "Linz", "price": 250000, '
        '"beds": 2, "description": "With a balcony.", "latitude": 48.3, "longitude": 14.29}}}}\'',
    ),
    ("what the search has found", "curl -sS '{api}/views/search_alerts?search=mine&limit=3'"),
)
"""What each does, and its command."""
