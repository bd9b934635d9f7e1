"""Payments that succeeded on a new device after three refused ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headwater import INTEGER, JSON, TEXT, TIME, Cache, Postgres, StreamView, observations, occurs, pattern

from .domain import CheckoutDeclined, CheckoutPaid, DeviceAdded, DeviceConfirmed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GUESSED = pattern(
    DeviceAdded,
    occurs(CheckoutDeclined, times=3),
    CheckoutPaid,
    within="10m",
    without=(DeviceConfirmed,),
)
COLUMNS = {
    "id": TEXT,
    "account": TEXT,
    "device": TEXT,
    "cents": INTEGER,
    "added_at": TIME,
    "paid_at": TIME,
    "declined": JSON,
}


def tried_until_paid(checkouts: DataFrame) -> DataFrame:
    """A row per match of GUESSED on a device of an account."""
    return GUESSED.matches(checkouts, key=("account", "device"), row=evidence, columns=COLUMNS)


def evidence(rows: Sequence[Any]) -> dict[str, Any]:
    """The payment, and the ids of the refused ones before it."""
    added, *declined, paid = rows
    return {
        "id": paid.id,
        "account": paid.account,
        "device": paid.device,
        "cents": paid.cents,
        "added_at": added.time,
        "paid_at": paid.time,
        "declined": [event.id for event in declined],
    }


suspect_checkouts = StreamView(
    name="suspect_checkouts",
    key="id",
    columns=COLUMNS,
    sources={
        "checkouts": observations(DeviceAdded, DeviceConfirmed, CheckoutDeclined, CheckoutPaid, late_after="30s"),
    },
    final=True,
    stores=(Postgres(indexes=(("account", "paid_at"),)), Cache()),
    query=tried_until_paid,
    doc="payments on a new device after three refused ones, unless the holder has confirmed the device",
)
