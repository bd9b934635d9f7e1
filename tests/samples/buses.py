"""The sample `buses`, checked: the rows that must follow from its reports, computed apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Final

from headwater.compose.samples.buses import PLANNED_S, TRAFFIC
from headwater.compose.samples.observed import Report
from tests.samples.observed import Checked, CheckedObserved, Domain, admitted, distance_m, row_key
from tests.samples.stored_rows import Rows

PLACES_LATE_AFTER, LEGS_LATE_AFTER = timedelta(minutes=10), timedelta(minutes=1)
FORGOTTEN_AFTER: Final = timedelta(minutes=10)
FINAL_AFTER: Final = timedelta(seconds=5 + 30) + LEGS_LATE_AFTER + timedelta(minutes=2)


def positions(reports: Sequence[Report]) -> Rows:
    """The rows of `bus_positions`."""
    found: Rows = {}
    for report in sorted(admitted(reports, PLACES_LATE_AFTER), key=lambda item: (item.time, item.name)):
        empty = dict.fromkeys(("located_at", "place", "line", "stop", "delay_s"))
        row = found.setdefault(report.data["vehicle"], {**empty})
        if report.type == "bus_located":
            row |= {
                "located_at": report.time,
                "place": {"lat": report.data["latitude"], "lon": report.data["longitude"]},
            }
        else:
            line, stop = report.data["line"], report.data["stop"]
            planned_s = PLANNED_S.get((line, stop))
            delay_s = None if planned_s is None else report.data["departed_s"] - planned_s
            row |= {"line": line, "stop": stop, "delay_s": delay_s}
    return found


def legs(reports: Sequence[Report]) -> Rows:
    """The rows of `bus_legs`."""
    places: dict[str, dict[datetime, Report]] = defaultdict(dict)
    for report in sorted(admitted(reports, LEGS_LATE_AFTER), key=lambda item: (item.time, item.name)):
        if report.type == "bus_located":
            places[report.data["vehicle"]].setdefault(report.time, report)
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


def one_place(name: str, now: datetime) -> Report:
    """The place of a bus of its own."""
    return Report("bus_located", name, name, now, now, {"vehicle": name, "latitude": 48.2, "longitude": 16.37})


BUS_DOMAIN: Final = Domain(
    things="drives",
    traffic=TRAFFIC,
    one=one_place,
    checked=(
        Checked("bus_legs", "key", legs, final=lambda leg: leg["end"] + FINAL_AFTER),
        Checked("bus_positions", "vehicle", positions),
    ),
)


sample: Final = partial(CheckedObserved, BUS_DOMAIN)
