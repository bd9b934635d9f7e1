"""Requests to try with `buses`: `make run` prints them, and tests run them."""

from typing import Final

TO_TRY: Final[tuple[tuple[str, str], ...]] = (
    ("the buses that are latest", "curl -sS '{api}/views/bus_positions?sort=-delay_s&limit=5'"),
    (
        "those within two kilometres of a place",
        "curl -sS '{api}/views/bus_positions/search?near=48.2,16.37&within_km=2'",
    ),
    (
        "say where a bus is: shown within 30 seconds",
        "curl -sS -X POST {api}/observations/bus_located -H 'content-type: application/json' "
        '-d \'{{"id": "mine-1", "source": "me", '
        '"data": {{"vehicle": "mine", "latitude": 48.2, "longitude": 16.37}}}}\'',
    ),
    ("the fastest legs, after four minutes", "curl -sS '{api}/views/bus_legs?sort=-kmh&limit=5'"),
)
"""What each does, and its command."""
