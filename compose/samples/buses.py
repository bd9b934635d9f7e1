"""The sample `buses`: buses that drive around, and stop at the stops of their line."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from headwater.compose.samples.observed import Delays, ObservedSample, Report, ReportTraffic

PLANNED_S: Final = {
    ("7", "Depot"): 0,
    ("7", "Market"): 180,
    ("7", "Station"): 420,
    ("7", "Hospital"): 600,
    ("18", "Station"): 0,
    ("18", "University"): 240,
    ("18", "Lake"): 540,
}
UNPLANNED: Final = ("18", "Depot")
PAUSES_S: Final = (0.0, 1.0, 5.0, 15.0, 599.0, 600.0, 600.001)
DELAYS: Final = Delays((0.0, 0.0, 0.5, 60.0), late_s=(60.001, 599.0, 600.0, 600.001), late_share=0.05)


def drives(chance: random.Random, start: datetime, length: timedelta) -> list[Report]:
    """Places and stops from `start` for `length`, in the order of acceptance; some are late, some are sent twice."""
    reports: list[Report] = []
    for vehicle in (f"bus-{number}" for number in range(12)):
        time = start + timedelta(milliseconds=chance.randrange(5_000))
        latitude, longitude = 48.2, 16.37
        while time < start + length:
            data: dict[str, Any]
            if chance.random() < 0.3:
                line, stop = chance.choice([*PLANNED_S, UNPLANNED])
                data = {"vehicle": vehicle, "line": line, "stop": stop, "departed_s": chance.randrange(-60, 900)}
                kind = "bus_stopped"
            else:
                latitude += chance.uniform(-0.01, 0.01)
                longitude += chance.uniform(-0.01, 0.01)
                data, kind = {"vehicle": vehicle, "latitude": latitude, "longitude": longitude}, "bus_located"
            name = f"{start:%Y%m%d%H%M%S}-{len(reports)}"
            reports += DELAYS.accepted(chance, Report(kind, name, vehicle, time, time, data))
            time += timedelta(seconds=chance.choice(PAUSES_S))
    return sorted(reports, key=lambda report: report.recorded)


TRAFFIC: Final = ReportTraffic(
    length=timedelta(seconds=45),
    reports=drives,
    late_by=(timedelta(minutes=11), timedelta(hours=8)),
    awaited=("bus_positions",),
)
sample: Final = partial(ObservedSample, TRAFFIC)


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
