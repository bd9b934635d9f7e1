"""Customers with their payments, a search of products, and sums of orders, from the rows of a captured database."""

from __future__ import annotations

from headwater import Cache, Deleted, Elasticsearch, Postgres, TableView, add, count, current, envelope, last, negative

from .domain.payment import PaymentReceived, PaymentRefunded
from .source import Customer, Order, Product

customer_360 = TableView(
    name="customer_360",
    version=2,
    key="customer_id",
    columns={
        "name": current(Customer, "name"),
        "email": current(Customer, "email"),
        "is_business": current(Customer, "is_business"),
        "credit_limit": current(Customer, "credit_limit"),
        "customer_since": current(Customer, "created_at"),
        "payments": count(PaymentReceived),
        "paid_cents": add({PaymentReceived: "amount_cents", PaymentRefunded: negative("amount_cents")}),
        "last_payment_at": last({PaymentReceived: envelope("time")}),
    },
    deleted_by=(Deleted(Customer),),
    stores=(Postgres(indexes=(("email",),)), Cache()),
    doc="A customer of the shop as its database has it, with the sum of the payments.",
)

product_search = TableView(
    name="product_search",
    version=2,
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

orders_by_status = TableView(
    name="orders_by_status",
    version=2,
    key="status",
    columns={"orders": count(Order), "total": add({Order: "total"})},
    stores=(Postgres(),),
    doc="How many orders have each status now, and their total: one that is paid is taken from the placed ones.",
)
