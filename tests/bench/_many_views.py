"""Views of the same events for the bench `console`, as many as a deployment with several domains has."""

from __future__ import annotations

from typing import Final

from headwater.projections.stores.declared import Cache, Postgres
from headwater.projections.table.computations import minus
from headwater.projections.table.folds import add, count, last
from headwater.projections.table.view import TableView
from headwater.samples.listings.domain import PriceChanged

VIEWS: Final = tuple(
    TableView(
        f"bench_many_{number:02}",
        "city",
        {"changes": count(PriceChanged), "gained": add({PriceChanged: minus("price", "previous_price")})}
        | {f"price_{number}": last({PriceChanged: "price"})},
        (Postgres(), Cache()) if number % 2 else (Postgres(),),
    )
    for number in range(21)
)
# a module's views are found by its names
globals().update({view.name: view for view in VIEWS})
