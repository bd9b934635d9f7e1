"""The sample `sensors`, checked: the rows that must follow from its reports, computed apart."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from functools import partial
from itertools import pairwise
from typing import Final

from headwater.compose.samples.observed import Report
from headwater.compose.samples.sensors import TRAFFIC
from tests.samples.observed import Checked, CheckedObserved, Domain, admitted, floor, row_key
from tests.samples.stored_rows import Rows

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
    for sensor, times in by_sensor.items():
        ordered = sorted(times)
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
        report.name: {
            "source": report.source,
            "type": report.type,
            "time": report.time,
            "data": json.dumps(report.data, separators=(",", ":")),
        }
        for report in reports
        if report.recorded - report.time > LATE_AFTER
    }


def one_reading(name: str, now: datetime) -> Report:
    """One reading of a sensor of its own, named after `name`."""
    return Report("sensor_read", name, "gateway", now, now, {"sensor": f"sensor {name}", "value": 20.5})


SENSOR_DOMAIN: Final = Domain(
    things="readings",
    traffic=TRAFFIC,
    one=one_reading,
    checked=(
        Checked("sensor_averages", "key", averages),
        Checked("sensor_silences", "key", silences, final=lambda row: row["silent_since"] + FINAL_AFTER),
        Checked("sensor_silences_late", "id", late_readings),
    ),
)


sample: Final = partial(CheckedObserved, SENSOR_DOMAIN)
