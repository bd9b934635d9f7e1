"""The sample `payments`: cards that are charged, some by thieves, and the phones of their holders."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from headwater.compose.samples.observed import Delays, ObservedSample, Report, ReportTraffic

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
    reports: list[Report] = []

    def add(kind: str, time: datetime, data: Mapping[str, Any]) -> None:
        name, source = f"{start:%Y%m%d%H%M%S}-{len(reports)}", f"{kind[:4]}-{chance.randrange(3)}"
        reports.extend(DELAYS.accepted(chance, Report(kind, name, source, time, time, data)))

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
    return sorted(reports, key=lambda report: report.recorded)


def _place(chance: random.Random) -> dict[str, float]:
    latitude, longitude = chance.choice(list(PLACES.values()))
    return {"latitude": latitude, "longitude": longitude}


TRAFFIC: Final = ReportTraffic(
    length=timedelta(seconds=20),
    reports=charges,
    late_by=(timedelta(minutes=5), timedelta(hours=8)),
)
sample: Final = partial(ObservedSample, TRAFFIC)


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
