"""The sample `sensors`: thermometers of a building, of which some go silent."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from headwater.compose.samples.observed import Delays, ObservedSample, Report, ReportTraffic

SENSORS: Final = ("hall", "roof", "cellar/boiler", "cellar/50 %", "kitchen", "server room")
PAUSES_S: Final = (0.25, 0.5, 1.0, 1.5, 2.0, 2.5)
LONG_PAUSES_S: Final = (29.9, 30.0, 30.001, 45.0)
"""At most 30 s are no silence."""
DELAYS: Final = Delays((0.0, 0.0, 0.1, 3.0, 20.0, 59.0), late_s=(61.0, 600.0, 7_200.0), late_share=0.03)
"""Late is later than a minute, and the last one is later than an hour."""


def readings(chance: random.Random, start: datetime, length: timedelta) -> list[Report]:
    """What the sensors measure from `start` for `length`, in the order of acceptance.

    Some sensors pause, some readings are late, some are sent twice.
    """
    reports: list[Report] = []
    for sensor in SENSORS:
        time, value = start + timedelta(milliseconds=chance.randrange(1_000)), chance.uniform(-20, 90)
        while time < start + length:
            value += chance.uniform(-1, 1)
            name = f"{start:%Y%m%d%H%M%S}-{len(reports)}"
            data = {"sensor": sensor, "value": round(value, 2)}
            reports += DELAYS.accepted(
                chance, Report("sensor_read", name, f"gateway-{len(sensor) % 3}", time, time, data)
            )
            pause_s = chance.choice(LONG_PAUSES_S if chance.random() < 0.03 else PAUSES_S)
            time += timedelta(seconds=pause_s)
    return sorted(reports, key=lambda report: report.recorded)


TRAFFIC: Final = ReportTraffic(
    length=timedelta(seconds=40),
    reports=readings,
    late_by=(timedelta(minutes=10), timedelta(hours=3)),
    awaited=("sensor_averages", "sensor_silences_late"),
)
sample: Final = partial(ObservedSample, TRAFFIC)


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
