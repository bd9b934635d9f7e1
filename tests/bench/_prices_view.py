"""The view that the bench `catch_up` serves beside `streams`, as a user's module declares it."""

from __future__ import annotations

from headwater.commands.declaring.aggregate import Event
from headwater.projections.stores.declared import Postgres
from headwater.projections.table.folds import add, count, last
from headwater.projections.table.view import TableView
from tests.support.recording import recording


class Repriced(Event, type="listing.price_changed"):
    """What `fill` appends; the sample `listings` would bring its own views, in all stores."""

    listing_id: str
    city: str
    price: int


listing = recording("listing", "city", Repriced)
bench_repriced = TableView(
    name="bench_repriced",
    key="listing_id",
    columns={"city": last({Repriced: "city"}), "changes": count(Repriced), "total": add({Repriced: "price"})},
    stores=(Postgres(),),
)
