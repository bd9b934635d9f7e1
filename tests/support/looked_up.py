"""Views that look columns up in each other: homes in every store, in cities of every store, over listings' events."""

from headwater.projections.stores.declared import Cache, Elasticsearch, Postgres
from headwater.projections.table.computations import envelope
from headwater.projections.table.declared_store import DeclaredStore
from headwater.projections.table.folds import count, first, last
from headwater.projections.table.lookups import Lookup
from headwater.projections.table.view import TableView
from headwater.samples.listings.domain import Listed, PriceChanged, Sold

CITIES = ("postgres", "elasticsearch", "valkey", "both")


def _cities(name: str, *stores: DeclaredStore) -> TableView:
    """What is known of a city; a sale takes it out of sight."""
    return TableView(
        name=f"cities_in_{name}",
        key="city",
        columns={"listed": count(Listed), "price": last({Listed: "price", PriceChanged: "price"})},
        deleted_by=(Sold,),
        stores=stores,
    )


def _homes(store: DeclaredStore) -> TableView:
    """A home, with how many are listed in its city and at what price the last, as each of the cities' views says."""
    return TableView(
        name=f"homes_in_{store.name}",
        key="listing_id",
        columns={"city": last({Listed: "city"}), "price": last({Listed: "price", PriceChanged: "price"})},
        lookups=tuple(
            Lookup(f"cities_in_{name}", on="city", columns={f"{name}_listed": "listed", f"{name}_price": "price"})
            for name in CITIES
        ),
        stores=(store,),
    )


cities_in_postgres = _cities("postgres", Postgres())
cities_in_elasticsearch = _cities("elasticsearch", Elasticsearch())
cities_in_valkey = _cities("valkey", Cache())
cities_in_both = _cities("both", Postgres(), Cache())

homes_in_postgres = _homes(Postgres())
homes_in_elasticsearch = _homes(Elasticsearch(text=("city",)))
homes_in_valkey = _homes(Cache())

kinship = TableView(
    name="kinship",
    key="listing_id",
    columns={"next_of_kin": last({Listed: "description"}), "listed_at": first({Listed: envelope("time")})},
    lookups=(
        Lookup("kinship", on="next_of_kin", columns={"next_listed_at": "listed_at", "second_next": "next_of_kin"}),
        Lookup("kinship", on="listing_id", columns={"same": "listing_id"}),
    ),
    stores=(Postgres(),),
    doc="Rows that look each other up.",
)
