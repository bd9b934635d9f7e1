"""How many pieces of each product lie in all baskets, and how often it was put back."""

from projections.expressions import negative
from projections.folds import add, count
from projections.view import Postgres, TableView
from shop.domain import ProductAdded, ProductRemoved

product_demand = TableView(
    name="product_demand",
    key="product",
    columns={
        "pieces": add({ProductAdded: "pieces", ProductRemoved: negative("pieces")}),
        "put_back": count(ProductRemoved),
    },
    stores=(Postgres(indexes=(("pieces",),)),),
    doc="What lies in the baskets, by product.",
)
