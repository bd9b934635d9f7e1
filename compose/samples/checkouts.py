"""The sample `checkouts`: new devices of accounts, and payments from them, some by guessing cards."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from headwater.compose.samples.observed import Checked, Delays, Domain, ObservedSample, Report, admitted
from headwater.compose.samples.stored_rows import Rows

LATE_AFTER: Final = timedelta(seconds=30)
WITHIN: Final = timedelta(minutes=10)
TRIES: Final = 3
FINAL_AFTER: Final = timedelta(seconds=5) + LATE_AFTER + timedelta(minutes=2)


def suspect(reports: Sequence[Report]) -> Rows:
    """The rows of `suspect_checkouts`."""
    by_device: dict[tuple[str, str], list[Report]] = defaultdict(list)
    for each in admitted(reports, LATE_AFTER):
        by_device[each.data["account"], each.data["device"]].append(each)
    found: Rows = {}
    for seen in by_device.values():
        open_: list[Report] = []
        for each in sorted(seen, key=lambda each: (each.time, each.name)):
            if each.type == "device_confirmed":
                open_ = []
            elif each.type == "checkout_paid" and (row := _row(open_, each)):
                found[each.name], open_ = row, []
            else:
                open_.append(each)
    return found


def _row(before: Sequence[Report], paid: Report) -> dict[str, Any]:
    """The row of a payment; empty if it is not suspect. before: what came since the last match or confirmation."""
    for place in reversed(range(len(before))):
        added = before[place]
        declined = [each.name for each in before[place:] if each.type == "checkout_declined"]
        if added.type == "device_added" and len(declined) >= TRIES and paid.time - added.time <= WITHIN:
            times = {"added_at": added.time, "paid_at": paid.time}
            return {**paid.data, **times, "declined": declined[:TRIES]}
    return {}


PAUSES_S: Final = (0.0, 0.5, 1.0, 2.0, 3.0, 60.0, 299.5, 300.0)
COURSES: Final = ("+---$", "+--$", "+-----$$", "+--?-$", "+?---$", "++---$", "---$", "+---$---$", "+-+--$", "+--+-$-$")
"""Added, declined, confirmed ("?") and paid."""
TYPES: Final = {"+": "device_added", "-": "checkout_declined", "?": "device_confirmed", "$": "checkout_paid"}
DELAYS: Final = Delays((0.0, 0.0, 0.1, 5.0, 30.0), late_s=(30.001, 600.0), late_share=0.03)


def checkouts(chance: random.Random, start: datetime, length: timedelta) -> list[Report]:
    """Checkouts from `start` for `length`, in the order of acceptance; some are late, some are sent twice."""
    found: list[Report] = []
    for number in range(24):
        time = start + timedelta(milliseconds=chance.randrange(5_000))
        who = {"account": f"account-{number % 8}", "device": f"phone-{number % 12}"}
        for sign in "".join(chance.choice(COURSES) for _ in range(3)):
            if time >= start + length:
                break
            data = who | ({"cents": chance.randrange(100, 50_000)} if sign in "-$" else {})
            name, source = f"{start:%Y%m%d%H%M%S}-{len(found)}", f"web-{chance.randrange(3)}"
            found += DELAYS.accepted(chance, Report(TYPES[sign], name, source, time, time, data))
            time += timedelta(seconds=chance.choice(PAUSES_S))
    return sorted(found, key=lambda each: each.recorded)


def one_checkout(name: str, now: datetime) -> Report:
    """One payment, of an account of its own."""
    return Report("checkout_paid", name, "web", now, now, {"account": name, "device": "phone", "cents": 100})


CHECKOUT_DOMAIN: Final = Domain(
    things="checkouts",
    length=timedelta(seconds=20),
    traffic=checkouts,
    one=one_checkout,
    late_by=(timedelta(minutes=5), timedelta(hours=8)),
    checked=(Checked("suspect_checkouts", "id", suspect, final=lambda row: row["paid_at"] + FINAL_AFTER),),
)


sample: Final = partial(ObservedSample, CHECKOUT_DOMAIN)


TO_TRY: Final[tuple[tuple[str, str], ...]] = (
    (
        "payments on a new device after three refused ones: reported after three minutes",
        "curl -sS '{api}/views/suspect_checkouts?sort=-paid_at&limit=3'",
    ),
    (
        "pay from a device",
        "curl -sS -X POST {api}/observations/checkout_paid -H 'content-type: application/json' "
        '-d \'{{"id": "mine-1", "source": "me", "data": {{"account": "mine", "device": "pc", "cents": 2500}}}}\'',
    ),
)
"""What each does, and its command."""
