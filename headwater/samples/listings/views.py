"""What is on the market: rows, a search, a cache, a market per city, and how often each listing is looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater import (
    INTEGER,
    TEXT,
    TIME,
    Cache,
    Elasticsearch,
    Postgres,
    StreamView,
    TableView,
    add,
    count,
    envelope,
    field,
    first,
    highest,
    last,
    lowest,
    members,
    minus,
    negative,
    observations,
    point,
    ratio,
    value,
    when,
)

from .domain import (
    DetailsRevised,
    Listed,
    ListingViewed,
    PriceChanged,
    PutUnderOffer,
    Relisted,
    Sold,
    Withdrawn,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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


listing_search = TableView(
    name="listing_search",
    key="listing_id",
    columns={
        "description": last({Listed: "description", DetailsRevised: "description"}),
        "property_type": last({Listed: "property_type", DetailsRevised: "property_type"}),
        "city": last({Listed: "city"}),
        "zip": last({Listed: "zip"}),
        "status": STATUS,
        "price": PRICE,
        "beds": last({Listed: "beds", DetailsRevised: "beds"}),
        "baths": last({Listed: "baths", DetailsRevised: "baths"}),
        "square_feet": last({Listed: "square_feet", DetailsRevised: "square_feet"}),
        "location": last({Listed: point("latitude", "longitude")}),
    },
    deleted_by=(Withdrawn,),
    restored_by=(Relisted,),
    stores=(
        Elasticsearch(
            text=("description", "property_type", "city"),
            facets=("city", "property_type", "status", "beds"),
        ),
    ),
    doc="Listings by full text over description, type and city, with filters, facets and distance.",
)


listing_card = TableView(
    name="listing_card",
    key="listing_id",
    columns={
        "city": last({Listed: "city"}),
        "property_type": last({Listed: "property_type", DetailsRevised: "property_type"}),
        "beds": last({Listed: "beds", DetailsRevised: "beds"}),
        "baths": last({Listed: "baths", DetailsRevised: "baths"}),
        "square_feet": last({Listed: "square_feet", DetailsRevised: "square_feet"}),
        "status": STATUS,
        "price": PRICE,
    },
    deleted_by=(Withdrawn,),
    restored_by=(Relisted,),
    stores=(Cache(),),
    doc="The card of one listing, by its id.",
)


ON_MARKET = add({Listed: 1, Relisted: 1, Sold: -1, Withdrawn: -1})


ASKED = add(
    {
        Listed: "price",
        Relisted: "price",
        PriceChanged: minus("price", "previous_price"),
        Sold: negative("price"),
        Withdrawn: negative("price"),
    }
)


AREA = add(
    {
        Listed: "square_feet",
        Relisted: "square_feet",
        DetailsRevised: "square_feet_added",
        Sold: negative("square_feet"),
        Withdrawn: negative("square_feet"),
    }
)


PRICES = members(
    {
        Listed: [(1, "price")],
        Relisted: [(1, "price")],
        PriceChanged: [(-1, "previous_price"), (1, "price")],
        Sold: [(-1, "price")],
        Withdrawn: [(-1, "price")],
    }
)


city_market = TableView(
    name="city_market",
    key="city",
    columns={
        "listed": add(
            {
                Listed: 1,
                Relisted: 1,
                PutUnderOffer: -1,
                Withdrawn: when(field("under_offer"), 0, -1),
            }
        ),
        "under_offer": add({PutUnderOffer: 1, Sold: -1, Withdrawn: when(field("under_offer"), -1, 0)}),
        "sold": count(Sold),
        "withdrawn": add({Withdrawn: 1, Relisted: -1}),
        "lowest_price": lowest(PRICES),
        "highest_price": highest(PRICES),
        "average_price": ratio(ASKED, ON_MARKET),
        "average_price_per_square_foot": ratio(ASKED, AREA),
    },
    stores=(Postgres(),),
    doc="Each city's market: how many listings in each status, and the asking prices of those on the market.",
)


def count_by_hour(views: DataFrame) -> DataFrame:
    """A row per listing and hour; a report that was sent twice counts once."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - only the process that runs the query needs Spark

    return (
        views.dropDuplicates(["id", "time"])
        .groupBy("listing_id", f.window("time", "1 hour").alias("hours"))
        .agg(f.count("*").alias("views"))
        .select("listing_id", f.col("hours.start").alias("hour"), "views")
    )


hourly_views = StreamView(
    name="hourly_views",
    key=("listing_id", "hour"),
    columns={"listing_id": TEXT, "hour": TIME, "views": INTEGER},
    sources={"views": observations(ListingViewed, late_after="1h")},
    late="amend",
    keep_state="1d",
    stores=(Postgres(indexes=(("listing_id", "hour"),)), Cache()),
    query=count_by_hour,
    doc="page views of each listing, per hour in which they happened",
)
