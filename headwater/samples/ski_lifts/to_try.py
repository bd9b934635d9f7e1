"""Requests to try with `ski_lifts`: `make run` prints them, and tests run them."""

from typing import Final

TO_TRY: Final[tuple[tuple[str, str], ...]] = (
    ("the busiest lift, in 10 minutes every 5 minutes", "curl -sS '{api}/views/busiest_lift?sort=-start&limit=3'"),
    (
        "ride a lift",
        "curl -sS -X POST {api}/observations/lift_ridden -H 'content-type: application/json' "
        '-d \'{{"id": "mine-1", "source": "me", "data": {{"lift": "glacier", "ski_pass": "mine"}}}}\'',
    ),
    ("its rides", "curl -sS '{api}/views/lift_rides?lift=glacier&sort=-start&limit=3'"),
)
"""What each does, and its command."""
