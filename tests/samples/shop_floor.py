"""The sample `shop_floor`, checked: the rows that must follow from its reports, computed apart."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from headwater.compose.samples.observed import Report
from headwater.compose.samples.shop_floor import TRAFFIC
from tests.samples.observed import Checked, CheckedObserved, Domain, Leaderboard, admitted, floor, row_key
from tests.samples.stored_rows import Rows

AMENDED_WITHIN: Final = timedelta(days=1)
DAY: Final = timedelta(days=1)


def totals(reports: Sequence[Report]) -> Rows:
    """The rows of `top_sellers`."""
    found: Rows = {}
    for report in admitted(reports, AMENDED_WITHIN):
        row = found.setdefault(report.data["product"], {"pieces": 0, "cents": 0, "last_sold": report.time})
        row["pieces"] += report.data["pieces"]
        row["cents"] += report.data["cents"]
        row["last_sold"] = max(row["last_sold"], report.time)
    return found


def daily(reports: Sequence[Report]) -> Rows:
    """The rows of `daily_sellers`."""
    found: Rows = {}
    for report in admitted(reports, AMENDED_WITHIN):
        day, product = floor(report.time, DAY), report.data["product"]
        row = found.setdefault(row_key(day, product), {"day": day, "product": product, "pieces": 0, "cents": 0})
        row["pieces"] += report.data["pieces"]
        row["cents"] += report.data["cents"]
    return found


TOP_SELLERS: Final = Leaderboard("top_sellers", "product", "cents")
DAILY_SELLERS: Final = Leaderboard("daily_sellers", "key", "cents", within=("day",))


def one_purchase(name: str, now: datetime) -> Report:
    """One piece of a product of its own."""
    return Report("item_sold", name, "till", now, now, {"product": name, "pieces": 1, "cents": 100})


SHOP_FLOOR_DOMAIN: Final = Domain(
    things="purchases",
    traffic=TRAFFIC,
    one=one_purchase,
    checked=(
        Checked("top_sellers", "product", totals, leaderboard=TOP_SELLERS),
        Checked("daily_sellers", "key", daily, leaderboard=DAILY_SELLERS),
    ),
)


sample: Final = partial(CheckedObserved, SHOP_FLOOR_DOMAIN)
