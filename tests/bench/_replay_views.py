"""The view that the bench `replay_cli` rebuilds, as a user's module declares it."""

from __future__ import annotations

from collections.abc import Mapping

from commands.aggregates.listings.listing import PriceChanged
from projections.table.declared_stores import Postgres
from projections.table.expressions import minus
from projections.table.folds import Column, add, count, last
from projections.table.view import TableView

PRICES: Mapping[str, Column] = {
    "city": last({PriceChanged: "city"}),
    "price": last({PriceChanged: "price"}),
    "changes": count(PriceChanged),
    "gained": add({PriceChanged: minus("price", "previous_price")}),
}
bench_prices = TableView(name="bench_prices", key="listing_id", columns=PRICES, stores=(Postgres(),))
