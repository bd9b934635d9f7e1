"""The sample `buses`: buses that drive around, and stop at the stops of their line."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Any, Final

from headwater.compose.samples.observed import (
    Checked,
    Delays,
    Domain,
    ObservedSample,
    Report,
    admitted,
    distance_m,
    row_key,
)
from headwater.compose.samples.stored_rows import Rows

PLANNED_S: Final = {
    ("7", "Depot"): 0,
    ("7", "Market"): 180,
    ("7", "Station"): 420,
    ("7", "Hospital"): 600,
    ("18", "Station"): 0,
    ("18", "University"): 240,
    ("18", "Lake"): 540,
}
PLACES_LATE_AFTER, LEGS_LATE_AFTER = timedelta(minutes=10), timedelta(minutes=1)
FORGOTTEN_AFTER: Final = timedelta(minutes=10)
FINAL_AFTER: Final = timedelta(seconds=5 + 30) + LEGS_LATE_AFTER + timedelta(minutes=2)


def positions(reports: Sequence[Report]) -> Rows:
    """The rows of `bus_positions`."""
    found: Rows = {}
    for each in sorted(admitted(reports, PLACES_LATE_AFTER), key=lambda each: (each.time, each.name)):
        empty = dict.fromkeys(("located_at", "place", "line", "stop", "delay_s"))
        row = found.setdefault(each.data["vehicle"], {**empty})
        if each.type == "bus_located":
            row |= {"located_at": each.time, "place": {"lat": each.data["latitude"], "lon": each.data["longitude"]}}
        else:
            line, stop = each.data["line"], each.data["stop"]
            planned_s = PLANNED_S.get((line, stop))
            delay_s = None if planned_s is None else each.data["departed_s"] - planned_s
            row |= {"line": line, "stop": stop, "delay_s": delay_s}
    return found


def legs(reports: Sequence[Report]) -> Rows:
    """The rows of `bus_legs`."""
    places: dict[str, dict[datetime, Report]] = defaultdict(dict)
    for each in sorted(admitted(reports, LEGS_LATE_AFTER), key=lambda each: (each.time, each.name)):
        if each.type == "bus_located":
            places[each.data["vehicle"]].setdefault(each.time, each)
    found: Rows = {}
    for vehicle, by_time in places.items():
        times = sorted(by_time)
        for start, end in pairwise(times):
            if end - start > FORGOTTEN_AFTER:
                continue
            metres = distance_m(by_time[start].data, by_time[end].data)
            row = {"vehicle": vehicle, "start": start, "end": end, "metres": round(metres)}
            found[row_key(vehicle, start)] = {**row, "kmh": round(metres / (end - start).total_seconds() * 3.6, 1)}
    return found


UNPLANNED: Final = ("18", "Depot")
PAUSES_S: Final = (0.0, 1.0, 5.0, 15.0, 599.0, 600.0, 600.001)
DELAYS: Final = Delays((0.0, 0.0, 0.5, 60.0), late_s=(60.001, 599.0, 600.0, 600.001), late_share=0.05)


def drives(chance: random.Random, start: datetime, length: timedelta) -> list[Report]:
    """Places and stops from `start` for `length`, in the order of acceptance; some are late, some are sent twice."""
    found: list[Report] = []
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
            name = f"{start:%Y%m%d%H%M%S}-{len(found)}"
            found += DELAYS.accepted(chance, Report(kind, name, vehicle, time, time, data))
            time += timedelta(seconds=chance.choice(PAUSES_S))
    return sorted(found, key=lambda each: each.recorded)


def one_place(name: str, now: datetime) -> Report:
    """The place of a bus of its own."""
    return Report("bus_located", name, name, now, now, {"vehicle": name, "latitude": 48.2, "longitude": 16.37})


BUS_DOMAIN: Final = Domain(
    things="drives",
    length=timedelta(seconds=45),
    traffic=drives,
    one=one_place,
    late_by=(timedelta(minutes=11), timedelta(hours=8)),
    checked=(
        Checked("bus_legs", "key", legs, final=lambda leg: leg["end"] + FINAL_AFTER),
        Checked("bus_positions", "vehicle", positions),
    ),
)


sample: Final = partial(ObservedSample, BUS_DOMAIN)


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
