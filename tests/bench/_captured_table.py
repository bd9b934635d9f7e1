"""A view of the shop's customers in PostgreSQL alone."""

from headwater import Deleted, Postgres, TableView, current
from headwater.samples.shop.source import Customer

copied_customers = TableView(
    name="copied_customers",
    key="customer_id",
    columns={name: current(Customer, name) for name in ("name", "email", "is_business", "credit_limit", "changed_at")},
    stores=(Postgres(),),
    deleted_by=(Deleted(Customer),),
)
