"""The sample `checkouts`, checked: the rows that must follow from its reports, computed apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from headwater.compose.samples.checkouts import TRAFFIC
from headwater.compose.samples.observed import Report
from tests.samples.observed import Checked, CheckedObserved, Domain, admitted
from tests.samples.stored_rows import Rows

LATE_AFTER: Final = timedelta(seconds=30)
WITHIN: Final = timedelta(minutes=10)
TRIES: Final = 3
FINAL_AFTER: Final = timedelta(seconds=5) + LATE_AFTER + timedelta(minutes=2)


def suspect(reports: Sequence[Report]) -> Rows:
    """The rows of `suspect_checkouts`."""
    by_device: dict[tuple[str, str], list[Report]] = defaultdict(list)
    for report in admitted(reports, LATE_AFTER):
        by_device[report.data["account"], report.data["device"]].append(report)
    found: Rows = {}
    for seen in by_device.values():
        open_: list[Report] = []
        for report in sorted(seen, key=lambda item: (item.time, item.name)):
            if report.type == "device_confirmed":
                open_ = []
            elif report.type == "checkout_paid" and (row := _row(open_, report)):
                found[report.name], open_ = row, []
            else:
                open_.append(report)
    return found


def _row(before: Sequence[Report], paid: Report) -> dict[str, Any]:
    """The row of a payment; empty if it is not suspect. before: what came since the last match or confirmation."""
    for place in reversed(range(len(before))):
        added = before[place]
        declined = [report.name for report in before[place:] if report.type == "checkout_declined"]
        if added.type == "device_added" and len(declined) >= TRIES and paid.time - added.time <= WITHIN:
            times = {"added_at": added.time, "paid_at": paid.time}
            return {**paid.data, **times, "declined": declined[:TRIES]}
    return {}


def one_checkout(name: str, now: datetime) -> Report:
    """One payment, of an account of its own."""
    return Report("checkout_paid", name, "web", now, now, {"account": name, "device": "phone", "cents": 100})


CHECKOUT_DOMAIN: Final = Domain(
    things="checkouts",
    traffic=TRAFFIC,
    one=one_checkout,
    checked=(Checked("suspect_checkouts", "id", suspect, final=lambda row: row["paid_at"] + FINAL_AFTER),),
)


sample: Final = partial(CheckedObserved, CHECKOUT_DOMAIN)
