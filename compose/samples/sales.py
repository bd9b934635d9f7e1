"""The sample `sales`: sales between changes of tiers and of tax rates."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from headwater.compose.samples.sample import Request, Sample
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
    all_facts: list[Fact] = []
    time, changed, taxed = start, None, COUNTRIES[0]
    while time < start + length:
        stream, kind, data = _one(chance, f"{start:%Y%m%d%H%M%S}-{len(all_facts)}", changed, taxed)
        accepted = time - timedelta(milliseconds=chance.choice((0, 0, 0, 1, 700)))
        delay_s = chance.choice(LATE_S if chance.random() < 0.05 else DELAYS_S)
        all_facts.append(Fact(stream, 0, kind, accepted, accepted + timedelta(seconds=delay_s), data))
        changed = data["customer"] if kind == "membership.tier_changed" and chance.random() < AGAIN else None
        taxed = data["country"] if kind == "tax_rate.changed" else taxed
        time += timedelta(seconds=0.0 if changed else chance.choice(PAUSES_S))
    return _decided(all_facts)


def _decided(found: list[Fact]) -> list[Fact]:
    """In the order of their decisions, which is that of the versions of each stream; no time goes back in a stream."""
    last: dict[str, Fact] = {}
    decided = []
    for report in sorted(found, key=lambda found_fact: found_fact.recorded):
        before = last.get(report.stream, report)
        fact = last[report.stream] = report._replace(sequence=before.sequence + 1, time=max(before.time, report.time))
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


SEED: Final = 1
LENGTH: Final = timedelta(minutes=30)
ROUNDS: Final = 30
"""What is sent in one round has nearly the same times; with several, sales fall between changes."""


class Sales(Sample):
    """Sales between changes of tiers and tax rates."""

    def __init__(self) -> None:
        self.facts = sorted(facts(random.Random(SEED), EPOCH, LENGTH), key=lambda fact: fact.time)
        first = next(fact.stream for fact in self.facts if fact.type == "sale.made")
        self.rows = {"category_sales": "books", "streams": f"{first}/1"}

    def loading(self) -> Sequence[Sequence[Request]]:
        size = -(-len(self.facts) // ROUNDS)
        starts = range(0, len(self.facts), size)
        return [[fact.request for fact in self.facts[at : at + size]] for at in starts]


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
