"""Sales, changes of tiers and of tax rates, made up, as the events that they become."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from headwater.compose.samples.sample import Request

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
