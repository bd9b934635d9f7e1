"""The views that benches rebuild from the shell, as a user's module declares them."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.projections.stores.declared import Postgres
from headwater.projections.table.computations import envelope, minus
from headwater.projections.table.folds import Column, add, count, last
from headwater.projections.table.view import TableView
from headwater.samples.listings.domain import PriceChanged

PRICES: Mapping[str, Column] = {
    "city": last({PriceChanged: "city"}),
    "price": last({PriceChanged: "price"}),
    "changes": count(PriceChanged),
    "gained": add({PriceChanged: minus("price", "previous_price")}),
}
bench_prices = TableView(name="bench_prices", key="listing_id", columns=PRICES, stores=(Postgres(),))
bench_rows = TableView(
    name="bench_rows",
    key=envelope("id"),
    key_name="id",
    columns={"price": last({PriceChanged: "price"}), "changes": count(PriceChanged)},
    stores=(Postgres(),),
)
