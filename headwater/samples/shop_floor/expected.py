"""The rows of the views of purchases, computed apart from Headwater."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from headwater.compose.samples.report import Report, admitted, floor, row_key
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
