"""What lies in the baskets, by product and by basket."""

from headwater import Cache, Lookup, Postgres, TableView, add, count, envelope, first, last, negative, nested

from .domain import CheckedOut, ProductAdded, ProductRemoved

product_demand = TableView(
    name="product_demand",
    key="product",
    columns={
        "pieces": add({ProductAdded: "pieces", ProductRemoved: negative("pieces")}),
        "put_back": count(ProductRemoved),
    },
    stores=(Postgres(indexes=(("pieces",),)),),
    doc="What lies in all baskets together, by product, and how often it was put back.",
)

baskets = TableView(
    name="baskets",
    key="basket_id",
    columns={
        "lines": nested(
            "product",
            key={ProductAdded: "product", ProductRemoved: "product"},
            columns={
                "pieces": add({ProductAdded: "pieces", ProductRemoved: negative("pieces")}),
                "gift": last({ProductAdded: "gift"}),
            },
        ),
        "last_added": last({ProductAdded: "product"}),
        "bought_at": first({CheckedOut: envelope("time")}),
    },
    stores=(Postgres(), Cache()),
    lookups=(Lookup("product_demand", on="last_added", columns={"last_added_in_all_baskets": "pieces"}),),
    doc="A basket with its lines, and how much the product that was added last is in demand at the moment.",
)
