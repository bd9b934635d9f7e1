"""The sample `ski_lifts`: skiers at the turnstiles of lifts."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from headwater.compose.samples.observed import (
    Checked,
    Delays,
    Domain,
    ObservedSample,
    Report,
    admitted,
    floor,
    row_key,
    time_text,
)
from headwater.compose.samples.stored_rows import Rows

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


LIFTS: Final = ("nursery", "glacier", "summit", "north/south", "sunrise")
WEIGHTS: Final = (2, 5, 5, 3, 1)
DELAYS: Final = Delays((0.0, 0.0, 0.5, 60.0, 1_799.0, 1_800.0), late_s=(1_801.0, 7_200.0, 21_601.0), late_share=0.03)
"""Late is later than 30 minutes, and the last one is later than 6 hours."""


def rides(chance: random.Random, start: datetime, length: timedelta) -> list[Report]:
    """Who rides which lift from `start` for `length`, in the order of acceptance: some late, some sent twice."""
    found: list[Report] = []
    time = start
    while time < start + length:
        name = f"{start:%Y%m%d%H%M%S}-{len(found)}"
        (lift,) = chance.choices(LIFTS, WEIGHTS)
        found += DELAYS.accepted(chance, _ride(name, lift, f"pass-{chance.randrange(200)}", time))
        time += timedelta(milliseconds=chance.choice((0, 200, 1_000, 3_000, 15_000)))
    return sorted(found, key=lambda each: each.recorded)


def one_ride(name: str, now: datetime) -> Report:
    """One ride on a lift of its own, named after `name`."""
    return _ride(name, f"lift {name}", f"pass-{name}", now)


def _ride(name: str, lift: str, ski_pass: str, time: datetime) -> Report:
    data = {"lift": lift, "ski_pass": ski_pass}
    return Report("lift_ridden", name, f"turnstile-{len(lift) % 4}", time, time, data)


SKI_LIFT_DOMAIN: Final = Domain(
    things="rides",
    length=timedelta(minutes=20),
    traffic=rides,
    one=one_ride,
    late_by=(timedelta(hours=2), timedelta(hours=8)),
    checked=(Checked("lift_rides", "key", rides_per_lift), Checked("busiest_lift", "window", busiest_lifts)),
)


sample: Final = partial(ObservedSample, SKI_LIFT_DOMAIN)


TO_TRY: Final[tuple[tuple[str, str], ...]] = (
    ("the busiest lift, in 10 minutes every 5 minutes", "curl -sS '{api}/views/busiest_lift?sort=-start&limit=3'"),
    (
        "ride a lift",
        "curl -sS -X POST {api}/observations/lift_ridden -H 'content-type: application/json' "
        '-d \'{{"id": "mine-1", "source": "me", "data": {{"lift": "glacier", "ski_pass": "mine"}}}}\'',
    ),
    ("its rides", "curl -sS '{api}/views/lift_rides?lift=glacier&sort=-start&limit=3'"),
)
"""What each does, and its command."""
