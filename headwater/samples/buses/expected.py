"""The rows of the views of buses, computed apart from Headwater."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from math import asin, cos, radians, sin, sqrt
from typing import Any, Final

from headwater.compose.samples.report import Report, admitted, row_key
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
EARTH_M: Final = 6_371_000.0


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
            metres = _distance_m(by_time[start].data, by_time[end].data)
            row = {"vehicle": vehicle, "start": start, "end": end, "metres": round(metres)}
            found[row_key(vehicle, start)] = {**row, "kmh": round(metres / (end - start).total_seconds() * 3.6, 1)}
    return found


def leg_is_final(row: Mapping[str, Any]) -> datetime:
    """When the row of a leg is sent."""
    end: datetime = row["end"]
    return end + FINAL_AFTER


def _distance_m(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    here, there = radians(one["latitude"]), radians(other["latitude"])
    east = radians(other["longitude"] - one["longitude"])
    return 2 * EARTH_M * asin(sqrt(sin((there - here) / 2) ** 2 + cos(here) * cos(there) * sin(east / 2) ** 2))
