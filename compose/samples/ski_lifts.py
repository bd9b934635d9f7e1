"""The sample `ski_lifts`: skiers at the turnstiles of lifts."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from headwater.compose.samples.observed import Delays, ObservedSample, Report, ReportTraffic

LIFTS: Final = ("nursery", "glacier", "summit", "north/south", "sunrise")
WEIGHTS: Final = (2, 5, 5, 3, 1)
DELAYS: Final = Delays((0.0, 0.0, 0.5, 60.0, 1_799.0, 1_800.0), late_s=(1_801.0, 7_200.0, 21_601.0), late_share=0.03)
"""Late is later than 30 minutes, and the last one is later than 6 hours."""


def rides(chance: random.Random, start: datetime, length: timedelta) -> list[Report]:
    """Who rides which lift from `start` for `length`, in the order of acceptance: some late, some sent twice."""
    reports: list[Report] = []
    time = start
    while time < start + length:
        name = f"{start:%Y%m%d%H%M%S}-{len(reports)}"
        (lift,) = chance.choices(LIFTS, WEIGHTS)
        data = {"lift": lift, "ski_pass": f"pass-{chance.randrange(200)}"}
        report = Report("lift_ridden", name, f"turnstile-{len(lift) % 4}", time, time, data)
        reports += DELAYS.accepted(chance, report)
        time += timedelta(milliseconds=chance.choice((0, 200, 1_000, 3_000, 15_000)))
    return sorted(reports, key=lambda report: report.recorded)


TRAFFIC: Final = ReportTraffic(
    length=timedelta(minutes=20),
    reports=rides,
    late_by=(timedelta(hours=2), timedelta(hours=8)),
    awaited=("lift_rides", "busiest_lift"),
)
sample: Final = partial(ObservedSample, TRAFFIC)


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
