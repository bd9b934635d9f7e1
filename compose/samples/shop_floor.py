"""The sample `shop_floor`: what the tills of a shop sell."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from headwater.compose.samples.observed import Delays, ObservedSample, Report, ReportTraffic

PRICES: Final = {"tea": 450, "coffee": 450, "milk": 150, "bread": 300, "50% off/soap": 225, "rice": 200, "salt": 100}
LATE_S: Final = (3_600.001, 40_000.0, 86_400.0, 86_400.001)
DELAYS: Final = Delays((0.0, 0.0, 0.5, 60.0, 3_600.0), LATE_S, late_share=0.05)


def purchases(chance: random.Random, start: datetime, length: timedelta) -> list[Report]:
    """What is sold from `start` for `length`, in the order of acceptance; some are late, some are sent twice."""
    reports: list[Report] = []
    time = start
    while time < start + length:
        product, pieces = chance.choice(list(PRICES)), chance.randrange(1, 6)
        name, till = f"{start:%Y%m%d%H%M%S}-{len(reports)}", f"till-{chance.randrange(4)}"
        data = {"product": product, "pieces": pieces, "cents": pieces * PRICES[product]}
        reports += DELAYS.accepted(chance, Report("item_sold", name, till, time, time, data))
        time += timedelta(milliseconds=chance.choice((0, 200, 1_000, 20_000)))
    return sorted(reports, key=lambda report: report.recorded)


TRAFFIC: Final = ReportTraffic(
    length=timedelta(minutes=10),
    reports=purchases,
    late_by=(timedelta(hours=2), timedelta(hours=30)),
    awaited=("top_sellers", "daily_sellers"),
)
sample: Final = partial(ObservedSample, TRAFFIC)


TO_TRY: Final[tuple[tuple[str, str], ...]] = (
    ("the three best sellers", "curl -sS '{api}/views/top_sellers?sort=-cents&limit=3'"),
    (
        "sell something",
        "curl -sS -X POST {api}/observations/item_sold -H 'content-type: application/json' "
        '-d \'{{"id": "mine-1", "source": "me", "data": {{"product": "tea", "pieces": 100, "cents": 45000}}}}\'',
    ),
    (
        "the three best sellers of today",
        'curl -sS "{api}/views/daily_sellers?day=$(date -u +%Y-%m-%dT00:00:00Z)&sort=-cents&limit=3"',
    ),
)
"""What each does, and its command."""
