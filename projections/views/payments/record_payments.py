"""Payments above everything that was charged to the card before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from commands.observations.payments.card_charged import CardCharged
from projections import INTEGER, TEXT, TIME, Cache, Postgres, StreamView, in_order, observations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS = {"id": TEXT, "card": TEXT, "cents": INTEGER, "paid_at": TIME, "previous_cents": INTEGER, "previous_id": TEXT}


def above_before(charges: DataFrame) -> DataFrame:
    """A row per payment that is higher than each earlier one of its card; the first one has nothing to compare with."""
    return in_order(charges, key="card", step=compare, columns=COLUMNS, forget_after="90d")


def compare(highest: Any, charge: Any) -> tuple[Any, list[dict[str, Any]]]:
    """highest: `{"cents": …, "id": …}` of the card's highest payment so far."""
    if highest is not None and charge.cents <= highest["cents"]:
        return highest, []
    evidence = highest and {
        "id": charge.id,
        "card": charge.card,
        "cents": charge.cents,
        "paid_at": charge.time,
        "previous_cents": highest["cents"],
        "previous_id": highest["id"],
    }
    return {"cents": charge.cents, "id": charge.id}, [evidence] if evidence else []


record_payments = StreamView(
    name="record_payments",
    key="id",
    columns=COLUMNS,
    sources={"charges": observations(CardCharged, late_after="30s")},
    final=True,
    stores=(Postgres(indexes=(("card", "paid_at"),)), Cache()),
    query=above_before,
    doc="payments above the highest earlier one of the card, with that one",
)
