"""The sample `ski_lifts`, checked: the rows that must follow from its reports, computed apart."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from headwater.compose.samples.observed import Report
from headwater.compose.samples.ski_lifts import TRAFFIC
from tests.samples.observed import Checked, CheckedObserved, Domain, admitted, floor, row_key, time_text
from tests.samples.stored_rows import Rows

LENGTH, SLIDE = timedelta(minutes=10), timedelta(minutes=5)
AMENDED_WITHIN: Final = timedelta(hours=6)


def rides_per_lift(reports: Sequence[Report]) -> Rows:
    """The rows of `lift_rides`."""
    return {
        row_key(lift, start): {"lift": lift, "start": start, "rides": number}
        for start, lifts in _windows(reports).items()
        for lift, number in lifts.items()
    }


def busiest_lifts(reports: Sequence[Report]) -> Rows:
    """The rows of `busiest_lift`."""
    found: Rows = {}
    for start, lifts in _windows(reports).items():
        most = max(lifts.values())
        first = min(lift for lift, number in lifts.items() if number == most)
        found[time_text(start)] = {"start": start, "lift": first, "rides": most, "all_rides": lifts.total()}
    return found


def _windows(reports: Sequence[Report]) -> dict[datetime, Counter[str]]:
    """The rides per lift, by the start of each window."""
    found: dict[datetime, Counter[str]] = defaultdict(Counter)
    for report in admitted(reports, AMENDED_WITHIN):
        start = floor(report.time, SLIDE)
        while start > report.time - LENGTH:
            found[start][report.data["lift"]] += 1
            start -= SLIDE
    return found


def one_ride(name: str, now: datetime) -> Report:
    """One ride on a lift of its own, named after `name`."""
    data = {"lift": f"lift {name}", "ski_pass": f"pass-{name}"}
    return Report("lift_ridden", name, "turnstile", now, now, data)


SKI_LIFT_DOMAIN: Final = Domain(
    things="rides",
    traffic=TRAFFIC,
    one=one_ride,
    checked=(Checked("lift_rides", "key", rides_per_lift), Checked("busiest_lift", "window", busiest_lifts)),
)


sample: Final = partial(CheckedObserved, SKI_LIFT_DOMAIN)
