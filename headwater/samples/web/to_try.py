"""Requests to try with `web`: `make run` prints them, and tests run them."""

from typing import Final

TO_TRY: Final[tuple[tuple[str, str], ...]] = (
    ("views of each page, per 5 minutes", "curl -sS '{api}/views/page_views?sort=-start,-views&limit=5'"),
    (
        "open a page",
        "curl -sS -X POST {api}/observations/page_opened -H 'content-type: application/json' "
        '-d \'{{"id": "mine-1", "source": "me", '
        '"data": {{"view_id": "mine-1", "visitor": "me", "page": "/tea"}}}}\'',
    ),
    ("its views", "curl -sS '{api}/views/page_views?page=/tea&sort=-start&limit=3'"),
    ("visits, which end after 30 minutes without a page", "curl -sS '{api}/views/visits?sort=-start&limit=5'"),
    ("clicks per search, two hours later", "curl -sS '{api}/views/click_through?sort=-hour,-rate&limit=5'"),
)
"""What each does, and its command."""
