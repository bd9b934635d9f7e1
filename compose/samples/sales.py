"""The sample `sales`: sales between changes of tiers and of tax rates, and the rows that Python expects."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from itertools import chain, pairwise
from typing import Any, Final, NamedTuple

from headwater.compose.samples.observed import SENT_WITHIN, Checked, floor, row_key
from headwater.compose.samples.sample import Client, Deployment, Request, Sample, happened, settled, wait_until
from headwater.compose.samples.stored_rows import Rows
from headwater.eventlog.envelope import EPOCH

CUSTOMERS: Final = (*(f"customer {number}" for number in range(9)), "50 % off/tea", "no member")
COUNTRIES: Final = ("AT", "FR", "US", "no taxes")
CATEGORIES: Final = ("books", "groceries", "tools/hand")
TIERS: Final = ("basic", "silver", "gold")
RATES: Final = (0, 550, 1_000, 2_000, 10_000)
PAUSES_S: Final = (0.0, 0.0, 0.001, 0.5, 4.999, 5.0, 20.0)
DELAYS_S: Final = (0.0, 0.0, 0.1, 5.0, 60.0)
LATE_S: Final = (60.001, 299.0, 300.0, 300.001, 4_000.0)
AGAIN: Final = 0.4
"""The share of changes of a tier after which it changes once more at the same time."""
COMMANDS: Final = {
    "sale.made": "sale.make",
    "membership.tier_changed": "membership.change_tier",
    "tax_rate.changed": "tax_rate.change",
}


class Fact(NamedTuple):
    """An event. time: when its command was accepted. recorded: when it was decided. Both have whole milliseconds."""

    stream: str
    sequence: int
    type: str
    time: datetime
    recorded: datetime
    data: Mapping[str, Any]

    @property
    def request(self) -> Request:
        """The command that leads to it."""
        return Request(COMMANDS[self.type], dict(self.data))


def facts(chance: random.Random, start: datetime, length: timedelta) -> list[Fact]:
    """Events from `start` for `length`, in the order of their decisions; some are decided late.

    Many have the same time, such as a sale and a change of its country's rate. One customer has no tier, and one
    country no rate.
    """
    found: list[Fact] = []
    time, changed, taxed = start, None, COUNTRIES[0]
    while time < start + length:
        stream, kind, data = _one(chance, f"{start:%Y%m%d%H%M%S}-{len(found)}", changed, taxed)
        accepted = time - timedelta(milliseconds=chance.choice((0, 0, 0, 1, 700)))
        delay_s = chance.choice(LATE_S if chance.random() < 0.05 else DELAYS_S)
        found.append(Fact(stream, 0, kind, accepted, accepted + timedelta(seconds=delay_s), data))
        changed = data["customer"] if kind == "membership.tier_changed" and chance.random() < AGAIN else None
        taxed = data["country"] if kind == "tax_rate.changed" else taxed
        time += timedelta(seconds=0.0 if changed else chance.choice(PAUSES_S))
    return _decided(found)


def _decided(found: list[Fact]) -> list[Fact]:
    """In the order of their decisions, which is that of the versions of each stream; no time goes back in a stream."""
    last: dict[str, Fact] = {}
    decided = []
    for each in sorted(found, key=lambda each: each.recorded):
        before = last.get(each.stream, each)
        fact = last[each.stream] = each._replace(sequence=before.sequence + 1, time=max(before.time, each.time))
        decided.append(fact)
    return decided


def _one(chance: random.Random, name: str, changed: str | None, taxed: str) -> tuple[str, str, dict[str, Any]]:
    """The stream, the type and the data of an event.

    changed: the customer whose tier changes once more. taxed: the country whose rate has changed last.
    """
    drawn = chance.random()
    if changed or drawn < 0.2:
        customer = changed or chance.choice(CUSTOMERS[:-1])
        return f"membership/{customer}", "membership.tier_changed", {"customer": customer, "tier": chance.choice(TIERS)}
    if drawn < 0.4:
        country = chance.choice(COUNTRIES[:-1])
        rate = {"country": country, "basis_points": chance.choice(RATES)}
        return f"tax_rate/{country}", "tax_rate.changed", rate
    where = {"customer": chance.choice(CUSTOMERS), "country": chance.choice((*COUNTRIES, taxed, taxed, taxed))}
    what = {"category": chance.choice(CATEGORIES), "cents": chance.choice((1, 5, 10, 99, chance.randrange(1, 100_000)))}
    return f"sale/{name}", "sale.made", {"sale_id": name, **where, **what}


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


SEED: Final = 1
LENGTH: Final = timedelta(minutes=30)
ROUNDS: Final = 30
"""What is sent in one round has nearly the same times; with several, sales fall between changes."""


VIEWS: Final = (
    Checked("category_sales", "category", per_category),
    Checked("membership_tiers", "key", tiers),
    Checked("sales_per_minute", "key", per_minute),
    Checked("sales_per_minute_late", "id", late_for_minutes),
    Checked("taxed_sales", "sale_id", taxed, final=lambda sale: sale["made_at"] + FINAL_AFTER),
    Checked("taxed_sales_late", "id", late_for_taxes),
)


class Sales(Sample):
    """Sales between changes of tiers and tax rates.

    The times of events are those at which the API accepted their commands. So the expected rows are computed from the
    events, as the view `streams` has them; that each sale has its event is checked as well.
    """

    things = "sales"
    measured = 100
    views = tuple(each.view for each in VIEWS)

    def __init__(self) -> None:
        self.number = sum(each.type == "sale.made" for each in _traffic())
        self._sent: dict[str, Mapping[str, Any]] = {}
        self._due = EPOCH

    async def write_and_read(self, client: Client, number: int) -> tuple[float, str]:
        sale = _sale(f"fresh-{number}", f"category {number}")
        receipt = await client.send(self._noted(sale))
        path = f"/views/category_sales/{sale.data['category']}"
        took_s, answer = await client.read_after(path, receipt["events"][0]["position"])
        shown = answer.is_success and answer.json().get("cents") == sale.data["cents"]
        return took_s, "" if shown else f"category_sales did not show its own write: {answer.text}"

    async def trade(self, client: Client, number: int) -> None:
        await client.send(self._noted(_sale(f"traded-{number}", "books")))

    async def mismatches(self, client: Client, deployment: Deployment) -> list[str]:
        await client.settle(self.rows)
        events = await asyncio.to_thread(happened, deployment, ("sale", "membership", "tax_rate"))
        made = [Fact(each.stream, each.sequence, each.type, each.time, each.recorded, each.data) for each in events]
        found = list(self._missing(made))
        if self._due == EPOCH:
            self._due = max(each.time for each in made) + FINAL_AFTER + SENT_WITHIN
        await wait_until(self._due, "taxed_sales")
        return found + await settled(lambda: chain.from_iterable(each.differences(deployment, made) for each in VIEWS))

    def rounds(self) -> Sequence[Sequence[Request]]:
        sent = sorted(_traffic(), key=lambda each: each.time)
        first = next(each.data["sale_id"] for each in sent if each.type == "sale.made")
        self.rows = {"category_sales": "books", "streams": f"sale/{first}/1"}
        size = -(-len(sent) // ROUNDS)
        return [[self._noted(each) for each in sent[at : at + size]] for at in range(0, len(sent), size)]

    def _noted(self, fact: Fact) -> Request:
        if fact.type == "sale.made":
            self._sent[fact.data["sale_id"]] = fact.data
        return fact.request

    def _missing(self, events: Iterable[Fact]) -> Iterator[str]:
        """Every sale that was sent and is not, or is otherwise, among the events, and the other way round."""
        made = {each.data["sale_id"]: each.data for each in events if each.type == "sale.made"}
        for name in sorted(made.keys() | self._sent.keys()):
            if made.get(name) != self._sent.get(name):
                yield f"sale {name} is {made.get(name)}, but {self._sent.get(name)} was sent"


def _traffic() -> list[Fact]:
    return facts(random.Random(SEED), EPOCH, LENGTH)


def _sale(name: str, category: str) -> Fact:
    data = {"sale_id": name, "customer": "Ada", "country": "AT", "category": category, "cents": 250}
    return Fact(f"sale/{name}", 1, "sale.made", EPOCH, EPOCH, data)


sample: Final = Sales


TO_TRY: Final[tuple[tuple[str, str], ...]] = (
    ("the sales of each category", "curl -sS '{api}/views/category_sales?sort=-cents'"),
    (
        "sell something",
        "curl -sS -X POST {api}/commands/sale.make -H 'content-type: application/json' "
        '-d \'{{"sale_id": "mine", "customer": "me", "country": "AT", "category": "books", "cents": 1250}}\'',
    ),
    ("who bought most per minute", "curl -sS '{api}/views/sales_per_minute?sort=-sales&limit=5'"),
    ("which tiers a customer was in, and when", "curl -sS '{api}/views/membership_tiers?sort=-valid_from&limit=5'"),
    (
        "sales with the tier and the tax rate of their time: reported after four minutes",
        "curl -sS '{api}/views/taxed_sales?sort=-made_at&limit=5'",
    ),
)
"""What each does, and its command."""
