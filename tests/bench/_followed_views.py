"""A view with its rows in a topic, and views over them, which the bench `rows_of_views` measures."""

from __future__ import annotations

from headwater.commands.declaring.view_rows import ViewRow
from headwater.projections.stores.declared import Cache, Elasticsearch, Postgres, Topic
from headwater.projections.table.folds import add, average, count, last
from headwater.projections.table.view import TableView
from headwater.samples.listings.domain import Listed, PriceChanged

bench_prices = TableView(
    name="bench_prices",
    key="listing_id",
    columns={
        "city": last({Listed: "city", PriceChanged: "city"}),
        "price": last({Listed: "price", PriceChanged: "price"}),
        "changes": count(PriceChanged),
    },
    stores=(Postgres(), Topic()),
)


class Price(ViewRow, view="bench_prices"):
    """A listing at its price."""

    city: str | None
    price: int | None
    changes: int | None


bench_markets = TableView(
    name="bench_markets",
    key="city",
    columns={
        "listings": count(Price),
        "changes": add({Price: "changes"}),
        "mean": average({Price: "price"}),
    },
    stores=(Postgres(), Elasticsearch(), Cache()),
)
