"""A view of the shop's customers in PostgreSQL alone."""

from headwater.samples.shop.source import Customer
from projections import Deleted, Postgres, TableView, current

copied_customers = TableView(
    name="copied_customers",
    key="customer_id",
    columns={name: current(Customer, name) for name in ("name", "email", "is_business", "credit_limit", "changed_at")},
    stores=(Postgres(),),
    deleted_by=(Deleted(Customer),),
)
