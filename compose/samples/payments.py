"""The sample `payments`: cards that are charged, some by thieves, and the phones of their holders."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from headwater.compose.samples.observed import (
    SENT_WITHIN,
    Checked,
    Delays,
    Domain,
    Followed,
    ObservedSample,
    Report,
    admitted,
    distance_m,
    row_key,
)
from headwater.compose.samples.sample import Happened
from headwater.compose.samples.stored_rows import Rows

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
        if near and (km := round(distance_m(paid.data, min(near)[2].data) / 1_000)) > FAR_KM:
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


PLACES: Final = {"Vienna": (48.21, 16.37), "Schwechat": (48.14, 16.47), "Graz": (47.07, 15.44), "Linz": (48.31, 14.29)}
LONG_S: Final = 150.0
PAUSES_S: Final = (0.0, 1.0, 9.999, 10.0, 10.001, 15.0, LONG_S, LONG_S)
EDGES_S: Final = (-60.001, -60.0, 60.0, 60.001)
SEEN_AFTER_S: Final = (*EDGES_S, -20.0, -0.5, 0.0, 0.5, 20.0)
DELAYS: Final = Delays((0.0, 0.0, 0.1, 5.0, 30.0), late_s=(30.001, 600.0), late_share=0.03)
CENTS: Final = (*range(1, 50_000, 997), *([49_999] * 5))
"""Often the same, and often the most."""


def charges(chance: random.Random, start: datetime, length: timedelta) -> list[Report]:
    """Payments and places of phones from `start` for `length`, in the order of acceptance.

    Some are late, some are sent twice.
    """
    found: list[Report] = []

    def add(kind: str, time: datetime, data: Mapping[str, Any]) -> None:
        name, source = f"{start:%Y%m%d%H%M%S}-{len(found)}", f"{kind[:4]}-{chance.randrange(3)}"
        found.extend(DELAYS.accepted(chance, Report(kind, name, source, time, time, data)))

    for card in (f"card-{number}" for number in range(8)):
        time, before_s = start + timedelta(milliseconds=chance.randrange(10_000)), LONG_S
        while time < start + length:
            after_s = chance.choice(PAUSES_S)
            # far from all others, its phone is nearest in time at an edge
            is_alone = before_s == after_s == LONG_S
            add("card_charged", time, {"card": card, "cents": chance.choice(CENTS), **_place(chance)})
            for _ in range(1 if is_alone else chance.choice((0, 1, 2))):
                seen = time + timedelta(seconds=chance.choice(EDGES_S if is_alone else SEEN_AFTER_S))
                if start <= seen < start + length:
                    add("phone_located", seen, {"card": card, **_place(chance)})
            time, before_s = time + timedelta(seconds=after_s), after_s
    return sorted(found, key=lambda each: each.recorded)


def one_charge(name: str, now: datetime) -> Report:
    """One payment by a card of its own, named after `name`."""
    latitude, longitude = PLACES["Vienna"]
    data = {"card": f"card {name}", "cents": 100, "latitude": latitude, "longitude": longitude}
    return Report("card_charged", name, "shop", now, now, data)


def _place(chance: random.Random) -> dict[str, float]:
    latitude, longitude = chance.choice(list(PLACES.values()))
    return {"latitude": latitude, "longitude": longitude}


PAYMENT_DOMAIN: Final = Domain(
    things="charges",
    length=timedelta(seconds=20),
    traffic=charges,
    one=one_charge,
    late_by=(timedelta(minutes=5), timedelta(hours=8)),
    checked=(
        Checked("rapid_payments", "key", rapid, series_is_final),
        Checked("distant_payments", "id", distant, final=lambda row: row["paid_at"] + NEAR_IN_TIME + WATERMARK),
        # Spark passes on the payments of five seconds together
        Checked("record_payments", "id", records, final=lambda row: row["paid_at"] + IN_ORDER + WATERMARK),
    ),
    followed=Followed(("card",), wrongly_blocked),
)


sample: Final = partial(ObservedSample, PAYMENT_DOMAIN)


TO_TRY: Final[tuple[tuple[str, str], ...]] = (
    (
        "cards charged several times within 10 seconds: reported after three minutes",
        "curl -sS '{api}/views/rapid_payments?sort=-start&limit=3'",
    ),
    (
        "charge a card",
        "curl -sS -X POST {api}/observations/card_charged -H 'content-type: application/json' "
        '-d \'{{"id": "mine-1", "source": "me", '
        '"data": {{"card": "mine", "cents": 2500, "latitude": 48.21, "longitude": 16.37}}}}\'',
    ),
    ("what happened to one of these cards: an alert blocks it", "curl -sS {api}/streams/card/card-1"),
    (
        "open it again",
        "curl -sS -X POST {api}/commands/card.unblock -H 'content-type: application/json' "
        '-d \'{{"card": "card-1"}}\'',
    ),
    ("payments far from the holder's phone", "curl -sS '{api}/views/distant_payments?sort=-paid_at&limit=3'"),
    (
        "payments above all earlier ones of the card",
        "curl -sS '{api}/views/record_payments?sort=-paid_at&limit=3'",
    ),
)
"""What each does, and its command."""
