"""The sample `sales`, checked: the rows that Python expects of its events."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from itertools import chain, pairwise
from typing import Any, Final

from headwater.compose.samples.sales import Fact, Sales
from headwater.compose.samples.sample import Client, Deployment, Request
from headwater.eventlog.envelope import EPOCH
from tests.samples.checked import CheckedSample, happened, read_after, settled, wait_until
from tests.samples.observed import SENT_WITHIN, Checked, floor, row_key
from tests.samples.stored_rows import Rows

LATE_AFTER: Final = timedelta(minutes=1)
MINUTE: Final = timedelta(minutes=1)
PER_MINUTE_LATE_AFTER: Final = timedelta(minutes=5)
TIERS_AMENDED_WITHIN: Final = timedelta(days=30)
FINAL_AFTER: Final = timedelta(seconds=5) + LATE_AFTER + timedelta(minutes=2)


def taxed(facts: Sequence[Fact]) -> Rows:
    """The rows of `taxed_sales`: of changes up to and including the time of the sale, the last one counts."""
    known = [fact for fact in facts if fact.recorded - fact.time <= LATE_AFTER]
    tiers, rates = _by("customer", known), _by("country", known)
    found: Rows = {}
    for sale in (report for report in known if report.type == "sale.made"):
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
    known = [fact for fact in facts if fact.recorded - fact.time <= TIERS_AMENDED_WITHIN]
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
    for fact in facts:
        if fact.type == "sale.made" and fact.recorded - fact.time <= PER_MINUTE_LATE_AFTER:
            customer, minute = fact.data["customer"], floor(fact.time, MINUTE)
            empty = {"customer": customer, "minute": minute, "sales": 0, "cents": 0}
            row = found.setdefault(row_key(customer, minute), empty)
            row["sales"] += 1
            row["cents"] += fact.data["cents"]
    return found


def per_category(facts: Iterable[Fact]) -> Rows:
    """The rows of `category_sales`."""
    cents: dict[str, list[int]] = defaultdict(list)
    for fact in facts:
        if fact.type == "sale.made":
            cents[fact.data["category"]].append(fact.data["cents"])
    return {
        category: {"sales": len(amounts), "cents": sum(amounts), "average_cents": sum(amounts) / len(amounts)}
        for category, amounts in cents.items()
    }


def late_for_taxes(facts: Iterable[Fact]) -> Rows:
    """The rows of `taxed_sales_late`."""
    return _late(facts, LATE_AFTER)


def late_for_minutes(facts: Iterable[Fact]) -> Rows:
    """The rows of `sales_per_minute_late`."""
    return _late((fact for fact in facts if fact.type == "sale.made"), PER_MINUTE_LATE_AFTER)


def _late(facts: Iterable[Fact], limit: timedelta) -> Rows:
    return {
        f"{fact.stream}/{fact.sequence}": {
            "source": fact.stream,
            "type": fact.type,
            "time": fact.time,
            "recordedtime": fact.recorded,
            "late_s": (fact.recorded - fact.time).total_seconds(),
            "data": dict(fact.data),
        }
        for fact in facts
        if fact.recorded - fact.time > limit
    }


def _by(name: str, facts: Iterable[Fact]) -> dict[str, list[Fact]]:
    """The changes of each customer or country, in the order in which they applied."""
    found: dict[str, list[Fact]] = defaultdict(list)
    for fact in sorted(facts, key=lambda report: (report.time, report.sequence)):
        if fact.type != "sale.made" and name in fact.data:
            found[fact.data[name]].append(fact)
    return found


def _as_of(changes: Sequence[Fact], time: datetime) -> Mapping[str, Any]:
    """The data of the last change that is not after `time`; empty if there is none."""
    return next((change.data for change in reversed(changes) if change.time <= time), {})


VIEWS: Final = (
    Checked("category_sales", "category", per_category),
    Checked("membership_tiers", "key", tiers),
    Checked("sales_per_minute", "key", per_minute),
    Checked("sales_per_minute_late", "id", late_for_minutes),
    Checked("taxed_sales", "sale_id", taxed, final=lambda sale: sale["made_at"] + FINAL_AFTER),
    Checked("taxed_sales_late", "id", late_for_taxes),
)


class CheckedSales(CheckedSample, Sales):
    """Sales between changes of tiers and tax rates.

    The times of events are those at which the API accepted their commands. So the expected rows are computed from the
    events, as the view `streams` has them; that each sale has its event is checked as well.
    """

    things = "sales"
    measured = 100
    views = tuple(view.view for view in VIEWS)

    def __init__(self) -> None:
        super().__init__()
        self.number = sum(fact.type == "sale.made" for fact in self.facts)
        self._sent: dict[str, Mapping[str, Any]] = {}
        self._due = EPOCH

    async def write_and_read(self, client: Client, number: int) -> tuple[float, str]:
        sale = _sale(f"fresh-{number}", f"category {number}")
        receipt = await client.send(self._noted(sale))
        path = f"/views/category_sales/{sale.data['category']}"
        took_s, answer = await read_after(client, path, receipt["events"][0]["position"])
        shown = answer.is_success and answer.json().get("cents") == sale.data["cents"]
        return took_s, "" if shown else f"category_sales did not show its own write: {answer.text}"

    async def trade(self, client: Client, number: int) -> None:
        await client.send(self._noted(_sale(f"traded-{number}", "books")))

    async def mismatches(self, client: Client, deployment: Deployment) -> list[str]:
        await client.settle(self.rows)
        events = await asyncio.to_thread(happened, deployment, ("sale", "membership", "tax_rate"))
        made = [
            Fact(event.stream, event.sequence, event.type, event.time, event.recorded, event.data) for event in events
        ]
        found = list(self._missing(made))
        if self._due == EPOCH:
            self._due = max(report.time for report in made) + FINAL_AFTER + SENT_WITHIN
        await wait_until(self._due, "taxed_sales")
        return found + await settled(lambda: chain.from_iterable(view.differences(deployment, made) for view in VIEWS))

    def rounds(self) -> Sequence[Sequence[Request]]:
        for fact in self.facts:
            self._noted(fact)
        return self.loading()

    def _noted(self, fact: Fact) -> Request:
        if fact.type == "sale.made":
            self._sent[fact.data["sale_id"]] = fact.data
        return fact.request

    def _missing(self, events: Iterable[Fact]) -> Iterator[str]:
        """Every sale that was sent and is not, or is otherwise, among the events, and the other way round."""
        made = {event.data["sale_id"]: event.data for event in events if event.type == "sale.made"}
        for name in sorted(made.keys() | self._sent.keys()):
            if made.get(name) != self._sent.get(name):
                yield f"sale {name} is {made.get(name)}, but {self._sent.get(name)} was sent"


def _sale(name: str, category: str) -> Fact:
    data = {"sale_id": name, "customer": "Ada", "country": "AT", "category": category, "cents": 250}
    return Fact(f"sale/{name}", 1, "sale.made", EPOCH, EPOCH, data)


sample: Final = CheckedSales
