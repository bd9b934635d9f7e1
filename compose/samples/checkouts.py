"""The sample `checkouts`: new devices of accounts, and payments from them, some by guessing cards."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from headwater.compose.samples.observed import Delays, ObservedSample, Report, ReportTraffic

PAUSES_S: Final = (0.0, 0.5, 1.0, 2.0, 3.0, 60.0, 299.5, 300.0)
COURSES: Final = ("+---$", "+--$", "+-----$$", "+--?-$", "+?---$", "++---$", "---$", "+---$---$", "+-+--$", "+--+-$-$")
"""Added, declined, confirmed ("?") and paid."""
TYPES: Final = {"+": "device_added", "-": "checkout_declined", "?": "device_confirmed", "$": "checkout_paid"}
DELAYS: Final = Delays((0.0, 0.0, 0.1, 5.0, 30.0), late_s=(30.001, 600.0), late_share=0.03)


def checkouts(chance: random.Random, start: datetime, length: timedelta) -> list[Report]:
    """Checkouts from `start` for `length`, in the order of acceptance; some are late, some are sent twice."""
    reports: list[Report] = []
    for number in range(24):
        time = start + timedelta(milliseconds=chance.randrange(5_000))
        who = {"account": f"account-{number % 8}", "device": f"phone-{number % 12}"}
        for sign in "".join(chance.choice(COURSES) for _ in range(3)):
            if time >= start + length:
                break
            data = who | ({"cents": chance.randrange(100, 50_000)} if sign in "-$" else {})
            name, source = f"{start:%Y%m%d%H%M%S}-{len(reports)}", f"web-{chance.randrange(3)}"
            reports += DELAYS.accepted(chance, Report(TYPES[sign], name, source, time, time, data))
            time += timedelta(seconds=chance.choice(PAUSES_S))
    return sorted(reports, key=lambda report: report.recorded)


TRAFFIC: Final = ReportTraffic(
    length=timedelta(seconds=20),
    reports=checkouts,
    late_by=(timedelta(minutes=5), timedelta(hours=8)),
)
sample: Final = partial(ObservedSample, TRAFFIC)


TO_TRY: Final[tuple[tuple[str, str], ...]] = (
    (
        "payments on a new device after three refused ones: reported after three minutes",
        "curl -sS '{api}/views/suspect_checkouts?sort=-paid_at&limit=3'",
    ),
    (
        "pay from a device",
        "curl -sS -X POST {api}/observations/checkout_paid -H 'content-type: application/json' "
        '-d \'{{"id": "mine-1", "source": "me", "data": {{"account": "mine", "device": "pc", "cents": 2500}}}}\'',
    ),
)
"""What each does, and its command."""
