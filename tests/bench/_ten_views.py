"""Ten views of the same events, which the bench `replay_all` rebuilds, as a user's module declares them."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.projections.stores.declared import Postgres
from headwater.projections.table.computations import envelope, minus
from headwater.projections.table.folds import Column, add, count, first, last, maximum, minimum
from headwater.projections.table.view import TableView
from headwater.samples.listings.domain import PriceChanged

_COLUMNS: Mapping[str, Column] = {
    "city": last({PriceChanged: "city"}),
    "price": last({PriceChanged: "price"}),
    "first_price": first({PriceChanged: "price"}),
    "lowest": minimum({PriceChanged: "price"}),
    "highest": maximum({PriceChanged: "price"}),
    "gained": add({PriceChanged: minus("price", "previous_price")}),
    "changed_at": last({PriceChanged: envelope("time")}),
}


def _view(name: str, *columns: str) -> TableView:
    chosen = {column: _COLUMNS[column] for column in columns}
    return TableView(name, "listing_id", {"changes": count(PriceChanged), **chosen}, (Postgres(),))


bench_ten_0 = _view("bench_ten_0", "city", "price", "gained")
bench_ten_1 = _view("bench_ten_1", "city", "price")
bench_ten_2 = _view("bench_ten_2", "price", "gained")
bench_ten_3 = _view("bench_ten_3", "lowest", "highest")
bench_ten_4 = _view("bench_ten_4", "first_price", "price")
bench_ten_5 = _view("bench_ten_5", "gained")
bench_ten_6 = _view("bench_ten_6", "changed_at", "city")
bench_ten_7 = _view("bench_ten_7", "price", "highest")
bench_ten_8 = _view("bench_ten_8", "city", "lowest")
bench_ten_9 = _view("bench_ten_9", "changed_at", "price", "gained")
