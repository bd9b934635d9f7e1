"""The rows of the views of payments, and which cards are blocked, computed apart from Headwater."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from math import asin, cos, radians, sin, sqrt
from typing import Any, Final

from headwater.compose.samples.observed import SENT_WITHIN
from headwater.compose.samples.report import Report, admitted, row_key
from headwater.compose.samples.sample import Happened
from headwater.compose.samples.stored_rows import Rows

CLOSE, NEAR_IN_TIME = timedelta(seconds=10), timedelta(minutes=1)
LATE_AFTER: Final = timedelta(seconds=30)
IN_ORDER: Final = timedelta(seconds=5)
WATERMARK: Final = LATE_AFTER + timedelta(minutes=2)
FAR_KM, EARTH_KM = 100, 6_371.0
EVIDENCE: Final = 100
"""So many payments of a series are named when its card is blocked."""


def rapid(reports: Sequence[Report]) -> Rows:
    """The rows of `rapid_payments`, if no card is charged again."""
    by_card: dict[str, list[tuple[datetime, str, int]]] = defaultdict(list)
    for each in _of("card_charged", reports):
        by_card[each.data["card"]].append((each.time, each.name, each.data["cents"]))
    found: Rows = {}
    for card, charged in by_card.items():
        series: list[tuple[datetime, str, int]] = []
        for charge in sorted(charged):
            series = [*series, charge] if series and charge[0] - series[-1][0] <= CLOSE else [charge]
            if len(series) > 1:
                found[row_key(card, series[0][0])] = {
                    "card": card,
                    "start": series[0][0],
                    "last": charge[0],
                    "payments": len(series),
                    "cents": sum(cents for *_, cents in series),
                    "ids": [name for _, name, _ in series],
                }
    return found


def distant(reports: Sequence[Report]) -> Rows:
    """The rows of `distant_payments`."""
    phones: dict[str, list[Report]] = defaultdict(list)
    for each in _of("phone_located", reports):
        phones[each.data["card"]].append(each)
    found: Rows = {}
    for paid in _of("card_charged", reports):
        near = [
            (abs(seen.time - paid.time), seen.name, seen)
            for seen in phones[paid.data["card"]]
            if abs(seen.time - paid.time) <= NEAR_IN_TIME
        ]
        if near and (km := round(_distance_km(paid.data, min(near)[2].data))) > FAR_KM:
            row = {"card": paid.data["card"], "cents": paid.data["cents"], "paid_at": paid.time, "kilometres": km}
            found[paid.name] = {**row, "phone_id": min(near)[1]}
    return found


def records(reports: Sequence[Report]) -> Rows:
    """The rows of `record_payments`."""
    by_card: dict[str, list[Report]] = defaultdict(list)
    for each in _of("card_charged", reports):
        by_card[each.data["card"]].append(each)
    found: Rows = {}
    for charged in by_card.values():
        earlier: list[Report] = []
        for paid in sorted(charged, key=lambda each: (each.time, each.name)):
            if earlier:
                highest = max(earlier, key=lambda each: each.data["cents"])  # the first of equal ones
                if paid.data["cents"] > highest.data["cents"]:
                    row = {"card": paid.data["card"], "cents": paid.data["cents"], "paid_at": paid.time}
                    found[paid.name] = {
                        **row,
                        "previous_cents": highest.data["cents"],
                        "previous_id": highest.name,
                    }
            earlier.append(paid)
    return found


def series_is_final(row: Mapping[str, Any]) -> datetime:
    """When the row of a series is sent."""
    last: datetime = row["last"]
    return last + CLOSE + WATERMARK


def payment_is_final(row: Mapping[str, Any]) -> datetime:
    """When the row of a payment is sent: its phone may be seen up to a minute later."""
    paid: datetime = row["paid_at"]
    return paid + NEAR_IN_TIME + WATERMARK


def record_is_final(row: Mapping[str, Any]) -> datetime:
    """When the row of a record is sent: Spark passes on the payments of five seconds together."""
    paid: datetime = row["paid_at"]
    return paid + IN_ORDER + WATERMARK


def wrongly_blocked(reports: Sequence[Report], events: Sequence[Happened], now: datetime) -> Iterator[str]:
    """How the cards differ from those with a series of payments, each of which is blocked once for one of its series.

    A series that has just become final may have blocked its card, or not yet.
    """
    evidence: dict[str, list[list[str]]] = defaultdict(list)
    due = set[str]()
    for row in rapid(reports).values():
        evidence[row["card"]].append(row["ids"][:EVIDENCE])
        if series_is_final(row) + SENT_WITHIN <= now:
            due.add(row["card"])
    blocked = Counter(event.data["card"] for event in events)
    for card in sorted(due - blocked.keys()):
        yield f"card/{card} is open, but Python says that it has alerts"
    for card, number in sorted(blocked.items()):
        if number > 1:
            yield f"card/{card} has {number} events, not one"
    for event in events:
        if event.type != "card.blocked" or event.data["evidence"] not in evidence[event.data["card"]]:
            yield f"{event.stream} has {event.type} with {event.data}, which no series of payments explains"


def _of(kind: str, reports: Sequence[Report]) -> list[Report]:
    return [each for each in admitted(reports, LATE_AFTER) if each.type == kind]


def _distance_km(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    here, there = radians(one["latitude"]), radians(other["latitude"])
    east = radians(other["longitude"] - one["longitude"])
    half = sin((there - here) / 2) ** 2 + cos(here) * cos(there) * sin(east / 2) ** 2
    return 2 * EARTH_KM * asin(sqrt(half))
