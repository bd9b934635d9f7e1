"""The sample `sensors`: thermometers of a building, of which some go silent."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from functools import partial
from itertools import pairwise
from typing import Final

from headwater.compose.samples.observed import Checked, Delays, Domain, ObservedSample, Report, admitted, floor, row_key
from headwater.compose.samples.stored_rows import Rows

LENGTH: Final = timedelta(seconds=5)
SILENT_AFTER: Final = timedelta(seconds=30)
AMENDED_WITHIN, LATE_AFTER = timedelta(hours=1), timedelta(minutes=1)
FINAL_AFTER: Final = SILENT_AFTER + LATE_AFTER + timedelta(minutes=2)
PLACES: Final = Decimal("1e-10")
"""Decimal places of an average."""


def averages(reports: Sequence[Report]) -> Rows:
    """The rows of `sensor_averages`."""
    values: dict[tuple[str, datetime], list[Decimal]] = defaultdict(list)
    for report in admitted(reports, AMENDED_WITHIN):
        values[report.data["sensor"], floor(report.time, LENGTH)].append(Decimal(str(report.data["value"])))
    return {
        row_key(sensor, start): {
            "sensor": sensor,
            "start": start,
            "readings": len(found),
            "average": float((sum(found, Decimal()) / len(found)).quantize(PLACES, ROUND_HALF_UP)),
            "minimum": float(min(found)),
            "maximum": float(max(found)),
        }
        for (sensor, start), found in values.items()
    }


def silences(reports: Sequence[Report]) -> Rows:
    """The rows of `sensor_silences`, if no sensor reports again."""
    by_sensor: dict[str, list[tuple[datetime, str, float]]] = defaultdict(list)
    for report in admitted(reports, LATE_AFTER):
        by_sensor[report.data["sensor"]].append((report.time, report.name, report.data["value"]))
    found: Rows = {}
    for sensor, each in by_sensor.items():
        ordered = sorted(each)
        ends = [last for last, following in pairwise(ordered) if following[0] - last[0] > SILENT_AFTER]
        begin = ordered[0][0]
        for time, _, value in [*ends, ordered[-1]]:
            row = {"sensor": sensor, "silent_since": time, "active_since": begin, "last_value": value}
            found[row_key(sensor, time)] = row
            begin = min((later for later, *_ in ordered if later > time), default=time)
    return found


def late_readings(reports: Sequence[Report]) -> Rows:
    """The rows of `sensor_silences_late`, without what depends on when a report is really accepted."""
    return {
        each.name: {
            "source": each.source,
            "type": each.type,
            "time": each.time,
            "data": json.dumps(each.data, separators=(",", ":")),
        }
        for each in reports
        if each.recorded - each.time > LATE_AFTER
    }


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
    found: list[Report] = []
    for sensor in SENSORS:
        time, value = start + timedelta(milliseconds=chance.randrange(1_000)), chance.uniform(-20, 90)
        while time < start + length:
            value += chance.uniform(-1, 1)
            name = f"{start:%Y%m%d%H%M%S}-{len(found)}"
            found += DELAYS.accepted(chance, _reading(name, sensor, round(value, 2), time))
            pause_s = chance.choice(LONG_PAUSES_S if chance.random() < 0.03 else PAUSES_S)
            time += timedelta(seconds=pause_s)
    return sorted(found, key=lambda each: each.recorded)


def one_reading(name: str, now: datetime) -> Report:
    """One reading of a sensor of its own, named after `name`."""
    return _reading(name, f"sensor {name}", 20.5, now)


def _reading(name: str, sensor: str, value: float, time: datetime) -> Report:
    return Report("sensor_read", name, f"gateway-{len(sensor) % 3}", time, time, {"sensor": sensor, "value": value})


SENSOR_DOMAIN: Final = Domain(
    things="readings",
    length=timedelta(seconds=40),
    traffic=readings,
    one=one_reading,
    late_by=(timedelta(minutes=10), timedelta(hours=3)),
    checked=(
        Checked("sensor_averages", "key", averages),
        Checked("sensor_silences", "key", silences, final=lambda row: row["silent_since"] + FINAL_AFTER),
        Checked("sensor_silences_late", "id", late_readings),
    ),
)


sample: Final = partial(ObservedSample, SENSOR_DOMAIN)


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
