"""The short document of a listing for its page, in Valkey. A withdrawn listing has none."""

from commands.aggregates.listings.listing import DetailsRevised, Listed, Relisted, Withdrawn
from projections import Cache, TableView, last
from projections.views.listings.listings import PRICE, STATUS

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
