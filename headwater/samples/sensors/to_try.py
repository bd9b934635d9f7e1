"""Requests to try with `sensors`: `make run` prints them, and tests run them."""

from typing import Final

TO_TRY: Final[tuple[tuple[str, str], ...]] = (
    ("what the sensors measured, per 5 seconds", "curl -sS '{api}/views/sensor_averages?sort=-start&limit=5'"),
    (
        "report a reading; then read its 5 seconds",
        "curl -sS -X POST {api}/observations/sensor_read -H 'content-type: application/json' "
        '-d \'{{"id": "mine-1", "source": "me", "data": {{"sensor": "desk", "value": 21.5}}}}\'',
    ),
    ("its averages", "curl -sS '{api}/views/sensor_averages?sensor=desk&sort=-start&limit=3'"),
    (
        "who went silent: reported after four minutes",
        "curl -sS '{api}/views/sensor_silences?sort=-silent_since&limit=5'",
    ),
    ("readings that came too late for that", "curl -sS '{api}/views/sensor_silences_late?sort=-late_s&limit=5'"),
)
"""What each does, and its command."""
