"""The rows of the views of `sales`, computed from its events apart from Headwater."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from itertools import pairwise
from typing import Any, Final

from headwater.compose.samples.report import floor, row_key
from headwater.compose.samples.stored_rows import Rows

from .facts import Fact

LATE_AFTER: Final = timedelta(minutes=1)
MINUTE: Final = timedelta(minutes=1)
PER_MINUTE_LATE_AFTER: Final = timedelta(minutes=5)
TIERS_AMENDED_WITHIN: Final = timedelta(days=30)
FINAL_AFTER: Final = timedelta(seconds=5) + LATE_AFTER + timedelta(minutes=2)


def taxed(facts: Sequence[Fact]) -> Rows:
    """The rows of `taxed_sales`: of changes up to and including the time of the sale, the last one counts."""
    known = [each for each in facts if each.recorded - each.time <= LATE_AFTER]
    tiers, rates = _by("customer", known), _by("country", known)
    found: Rows = {}
    for sale in (each for each in known if each.type == "sale.made"):
        tier = _as_of(tiers[sale.data["customer"]], sale.time).get("tier")
        rate = _as_of(rates[sale.data["country"]], sale.time).get("basis_points")
        row = {**sale.data, "made_at": sale.time, "tier": tier, "basis_points": rate, "tax_cents": None}
        if rate is not None:
            exact = Decimal(sale.data["cents"] * rate) / 10_000
            row["tax_cents"] = int(exact.quantize(Decimal(1), ROUND_HALF_UP))
        found[row.pop("sale_id")] = row
    return found


def tiers(facts: Sequence[Fact]) -> Rows:
    """The rows of `membership_tiers`."""
    known = [each for each in facts if each.recorded - each.time <= TIERS_AMENDED_WITHIN]
    found: Rows = {}
    for customer, changes in _by("customer", known).items():
        for change, following in pairwise([*changes, None]):
            end = following and following.time
            if change and change.time != end:
                row = {"customer": customer, "valid_from": change.time, "valid_to": end}
                found[row_key(customer, change.time)] = {**row, "tier": change.data["tier"]}
    return found


def per_minute(facts: Iterable[Fact]) -> Rows:
    """The rows of `sales_per_minute`."""
    found: Rows = {}
    for each in facts:
        if each.type == "sale.made" and each.recorded - each.time <= PER_MINUTE_LATE_AFTER:
            customer, minute = each.data["customer"], floor(each.time, MINUTE)
            empty = {"customer": customer, "minute": minute, "sales": 0, "cents": 0}
            row = found.setdefault(row_key(customer, minute), empty)
            row["sales"] += 1
            row["cents"] += each.data["cents"]
    return found


def per_category(facts: Iterable[Fact]) -> Rows:
    """The rows of `category_sales`."""
    cents: dict[str, list[int]] = defaultdict(list)
    for each in facts:
        if each.type == "sale.made":
            cents[each.data["category"]].append(each.data["cents"])
    return {
        category: {"sales": len(each), "cents": sum(each), "average_cents": sum(each) / len(each)}
        for category, each in cents.items()
    }


def late_for_taxes(facts: Iterable[Fact]) -> Rows:
    """The rows of `taxed_sales_late`."""
    return _late(facts, LATE_AFTER)


def late_for_minutes(facts: Iterable[Fact]) -> Rows:
    """The rows of `sales_per_minute_late`."""
    return _late((each for each in facts if each.type == "sale.made"), PER_MINUTE_LATE_AFTER)


def sale_is_final(row: Mapping[str, Any]) -> datetime:
    """When the row of a sale is sent."""
    made: datetime = row["made_at"]
    return made + FINAL_AFTER


def _late(facts: Iterable[Fact], limit: timedelta) -> Rows:
    return {
        f"{each.stream}/{each.sequence}": {
            "source": each.stream,
            "type": each.type,
            "time": each.time,
            "recordedtime": each.recorded,
            "late_s": (each.recorded - each.time).total_seconds(),
            "data": dict(each.data),
        }
        for each in facts
        if each.recorded - each.time > limit
    }


def _by(name: str, facts: Iterable[Fact]) -> dict[str, list[Fact]]:
    """The changes of each customer or country, in the order in which they applied."""
    found: dict[str, list[Fact]] = defaultdict(list)
    for each in sorted(facts, key=lambda each: (each.time, each.sequence)):
        if each.type != "sale.made" and name in each.data:
            found[each.data[name]].append(each)
    return found


def _as_of(changes: Sequence[Fact], time: datetime) -> Mapping[str, Any]:
    """The data of the last change that is not after `time`; empty if there is none."""
    return next((each.data for each in reversed(changes) if each.time <= time), {})
