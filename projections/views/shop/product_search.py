"""Full-text search of the products in the shop's database, in Elasticsearch."""

from eventlog.sources.shop.shop import Product
from projections import Deleted, Elasticsearch, TableView, current

product_search = TableView(
    name="product_search",
    key="sku",
    columns={
        "name": current(Product, "name"),
        "category": current(Product, "category"),
        "description": current(Product, "description"),
        "price": current(Product, "price"),
        "weight_kg": current(Product, "weight_kg"),
        "labels": current(Product, "labels"),
        "available_from": current(Product, "available_from"),
        "changed_at": current(Product, "changed_at"),
    },
    deleted_by=(Deleted(Product),),
    stores=(Elasticsearch(text=("name", "description"), facets=("category",)),),
    doc="The shop's products by full text over name and description.",
)
