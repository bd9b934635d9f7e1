"""The sample `shop_floor`: what the tills of a shop sell."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from headwater.compose.samples.observed import (
    Checked,
    Delays,
    Domain,
    Leaderboard,
    ObservedSample,
    Report,
    admitted,
    floor,
    row_key,
)
from headwater.compose.samples.stored_rows import Rows

AMENDED_WITHIN: Final = timedelta(days=1)
DAY: Final = timedelta(days=1)


def totals(reports: Sequence[Report]) -> Rows:
    """The rows of `top_sellers`."""
    found: Rows = {}
    for each in admitted(reports, AMENDED_WITHIN):
        row = found.setdefault(each.data["product"], {"pieces": 0, "cents": 0, "last_sold": each.time})
        row["pieces"] += each.data["pieces"]
        row["cents"] += each.data["cents"]
        row["last_sold"] = max(row["last_sold"], each.time)
    return found


def daily(reports: Sequence[Report]) -> Rows:
    """The rows of `daily_sellers`."""
    found: Rows = {}
    for each in admitted(reports, AMENDED_WITHIN):
        day, product = floor(each.time, DAY), each.data["product"]
        row = found.setdefault(row_key(day, product), {"day": day, "product": product, "pieces": 0, "cents": 0})
        row["pieces"] += each.data["pieces"]
        row["cents"] += each.data["cents"]
    return found


PRICES: Final = {"tea": 450, "coffee": 450, "milk": 150, "bread": 300, "50% off/soap": 225, "rice": 200, "salt": 100}
LATE_S: Final = (3_600.001, 40_000.0, 86_400.0, 86_400.001)
DELAYS: Final = Delays((0.0, 0.0, 0.5, 60.0, 3_600.0), LATE_S, late_share=0.05)
TOP_SELLERS: Final = Leaderboard("top_sellers", "product", "cents")
DAILY_SELLERS: Final = Leaderboard("daily_sellers", "key", "cents", within=("day",))


def purchases(chance: random.Random, start: datetime, length: timedelta) -> list[Report]:
    """What is sold from `start` for `length`, in the order of acceptance; some are late, some are sent twice."""
    found: list[Report] = []
    time = start
    while time < start + length:
        product, pieces = chance.choice(list(PRICES)), chance.randrange(1, 6)
        name, till = f"{start:%Y%m%d%H%M%S}-{len(found)}", f"till-{chance.randrange(4)}"
        data = {"product": product, "pieces": pieces, "cents": pieces * PRICES[product]}
        found += DELAYS.accepted(chance, Report("item_sold", name, till, time, time, data))
        time += timedelta(milliseconds=chance.choice((0, 200, 1_000, 20_000)))
    return sorted(found, key=lambda each: each.recorded)


def one_purchase(name: str, now: datetime) -> Report:
    """One piece of a product of its own."""
    return Report("item_sold", name, "till", now, now, {"product": name, "pieces": 1, "cents": 100})


SHOP_FLOOR_DOMAIN: Final = Domain(
    things="purchases",
    length=timedelta(minutes=10),
    traffic=purchases,
    one=one_purchase,
    late_by=(timedelta(hours=2), timedelta(hours=30)),
    checked=(
        Checked("top_sellers", "product", totals, leaderboard=TOP_SELLERS),
        Checked("daily_sellers", "key", daily, leaderboard=DAILY_SELLERS),
    ),
)


sample: Final = partial(ObservedSample, SHOP_FLOOR_DOMAIN)


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
