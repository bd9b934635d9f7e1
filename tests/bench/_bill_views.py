"""The views that the bench `decimal_sums` rebuilds, as a user's module declares them."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import Field

from headwater.commands.declaring.aggregate import Event
from headwater.projections.stores.declared import Postgres
from headwater.projections.table.folds import Column, add, count
from headwater.projections.table.view import TableView
from tests.support.recording import recording


class Charged(Event, type="bill.charged"):
    """It has the same amount in both forms."""

    bill_id: str
    cents: int
    amount: Annotated[Decimal, Field(max_digits=12, decimal_places=2)]


def _view(name: str, charged: Column) -> TableView:
    return TableView(name, "bill_id", {"charges": count(Charged), "charged": charged}, (Postgres(),))


bill = recording("bill", "bill_id", Charged)
bench_decimals = _view("bench_decimals", add({Charged: "amount"}))
bench_integers = _view("bench_integers", add({Charged: "cents"}))
