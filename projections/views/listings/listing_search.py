"""Full-text search of listings, in Elasticsearch. Withdrawn listings are not found; sold listings are found as sold."""

from commands.aggregates.listings.listing import DetailsRevised, Listed, Relisted, Withdrawn
from projections import Elasticsearch, TableView, last, point
from projections.views.listings.listings import PRICE, STATUS

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
