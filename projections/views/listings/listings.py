"""Every listing with all its details, in PostgreSQL."""

from commands.aggregates.listings.listing import (
    DetailsRevised,
    Listed,
    PriceChanged,
    PutUnderOffer,
    Relisted,
    Sold,
    Withdrawn,
)
from projections import Postgres, TableView, count, envelope, first, last, value

STATUS = last(
    {
        Listed: value("listed"),
        PutUnderOffer: value("under_offer"),
        Sold: value("sold"),
        Withdrawn: value("withdrawn"),
        Relisted: value("listed"),
    }
)
PRICE = last({Listed: "price", PriceChanged: "price", Relisted: "price"})

listings = TableView(
    name="listings",
    key="listing_id",
    columns={
        "city": last({Listed: "city"}),
        "zip": last({Listed: "zip"}),
        "property_type": last({Listed: "property_type", DetailsRevised: "property_type"}),
        "beds": last({Listed: "beds", DetailsRevised: "beds"}),
        "baths": last({Listed: "baths", DetailsRevised: "baths"}),
        "square_feet": last({Listed: "square_feet", DetailsRevised: "square_feet"}),
        "latitude": last({Listed: "latitude"}),
        "longitude": last({Listed: "longitude"}),
        "description": last({Listed: "description", DetailsRevised: "description"}),
        "status": STATUS,
        "price": PRICE,
        "first_price": first({Listed: "price"}),
        "price_changes": count(PriceChanged),
        "sold_for": last({Sold: "sold_for"}),
        "listed_at": first({Listed: envelope("time")}),
    },
    stores=(Postgres(indexes=(("city", "price"), ("status", "price"))),),
    doc="Every listing: its details, status, number of price changes, first and last price.",
)
