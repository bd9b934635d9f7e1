"""A view whose rows are for those whose claim they have."""

from __future__ import annotations

from headwater import Claim, Postgres, TableView, last
from headwater.samples.listings.domain import Listed

own_listings = TableView(
    name="bench_own_listings",
    key="listing_id",
    columns={"city": last({Listed: "city"}), "price": last({Listed: "price"})},
    stores=(Postgres(indexes=(("city",),)),),
    readable_by={"city": Claim("city")},
)
