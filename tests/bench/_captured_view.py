"""A view of the shop's customers in all three stores."""

from headwater import Cache, Deleted, Elasticsearch, Postgres, TableView, current
from headwater.samples.shop.source import Customer

seen_customers = TableView(
    name="seen_customers",
    key="customer_id",
    columns={name: current(Customer, name) for name in ("name", "email", "is_business", "credit_limit", "changed_at")},
    stores=(Postgres(), Elasticsearch(), Cache()),
    deleted_by=(Deleted(Customer),),
)
