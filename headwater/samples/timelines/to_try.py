"""Requests to try with `timelines`: `make run` prints them, and tests run them."""

from typing import Final

TO_TRY: Final[tuple[tuple[str, str], ...]] = (
    (
        "the timeline of a reader",
        "curl -sS '{api}/views/home_timelines?reader=eve&sort=-written_at&limit=3'",
    ),
    (
        "write a post, which you see",
        "curl -sS -X POST {api}/observations/post_written -H 'content-type: application/json' "
        '-d \'{{"id": "mine-1", "source": "me", "data": {{"post": "mine-1", "author": "me", "text": "Hello."}}}}\'',
    ),
    (
        "follow another author",
        "curl -sS -X POST {api}/observations/author_followed -H 'content-type: application/json' "
        '-d \'{{"id": "mine-2", "source": "me", "data": {{"reader": "me", "author": "ada"}}}}\'',
    ),
    ("your timeline", "curl -sS '{api}/views/home_timelines?reader=me&sort=-written_at&limit=3'"),
)
"""What each does, and its command."""
