"""The sample `payments`, checked: the rows that must follow from its reports, computed apart."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from headwater.compose.samples.observed import Report
from headwater.compose.samples.payments import PLACES, TRAFFIC
from tests.samples.checked import Happened
from tests.samples.observed import (
    SENT_WITHIN,
    Checked,
    CheckedObserved,
    Domain,
    Followed,
    admitted,
    distance_m,
    row_key,
)
from tests.samples.stored_rows import Rows

CLOSE, NEAR_IN_TIME = timedelta(seconds=10), timedelta(minutes=1)
LATE_AFTER: Final = timedelta(seconds=30)
IN_ORDER: Final = timedelta(seconds=5)
WATERMARK: Final = LATE_AFTER + timedelta(minutes=2)
FAR_KM: Final = 100
EVIDENCE: Final = 100
"""So many payments of a series are named when its card is blocked."""


def rapid(reports: Sequence[Report]) -> Rows:
    """The rows of `rapid_payments`, if no card is charged again."""
    by_card: dict[str, list[tuple[datetime, str, int]]] = defaultdict(list)
    for report in _of("card_charged", reports):
        by_card[report.data["card"]].append((report.time, report.name, report.data["cents"]))
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
    for report in _of("phone_located", reports):
        phones[report.data["card"]].append(report)
    found: Rows = {}
    for paid in _of("card_charged", reports):
        near = [
            (abs(seen.time - paid.time), seen.name, seen)
            for seen in phones[paid.data["card"]]
            if abs(seen.time - paid.time) <= NEAR_IN_TIME
        ]
        if near and (km := round(distance_m(paid.data, min(near)[2].data) / 1_000)) > FAR_KM:
            row = {"card": paid.data["card"], "cents": paid.data["cents"], "paid_at": paid.time, "kilometres": km}
            found[paid.name] = {**row, "phone_id": min(near)[1]}
    return found


def records(reports: Sequence[Report]) -> Rows:
    """The rows of `record_payments`."""
    by_card: dict[str, list[Report]] = defaultdict(list)
    for report in _of("card_charged", reports):
        by_card[report.data["card"]].append(report)
    found: Rows = {}
    for charged in by_card.values():
        earlier: list[Report] = []
        for paid in sorted(charged, key=lambda report: (report.time, report.name)):
            if earlier:
                highest = max(earlier, key=lambda report: report.data["cents"])  # the first of equal ones
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
    return [report for report in admitted(reports, LATE_AFTER) if report.type == kind]


def one_charge(name: str, now: datetime) -> Report:
    """One payment by a card of its own, named after `name`."""
    latitude, longitude = PLACES["Vienna"]
    data = {"card": f"card {name}", "cents": 100, "latitude": latitude, "longitude": longitude}
    return Report("card_charged", name, "shop", now, now, data)


PAYMENT_DOMAIN: Final = Domain(
    things="charges",
    traffic=TRAFFIC,
    one=one_charge,
    checked=(
        Checked("rapid_payments", "key", rapid, series_is_final),
        Checked("distant_payments", "id", distant, final=lambda row: row["paid_at"] + NEAR_IN_TIME + WATERMARK),
        # Spark passes on the payments of five seconds together
        Checked("record_payments", "id", records, final=lambda row: row["paid_at"] + IN_ORDER + WATERMARK),
    ),
    followed=Followed(("card",), wrongly_blocked),
)


sample: Final = partial(CheckedObserved, PAYMENT_DOMAIN)
