"""Everything about a customer in one row: what the shop's database says now, and the payments that were received.

The customer is a row of a captured table, the payments are events. Both meet under the customer's id. A customer who is
deleted in the database disappears with the payments, and comes back with them.
"""

from commands.aggregates.shop.payment import PaymentReceived, PaymentRefunded
from eventlog.sources.shop.shop import Customer
from projections import Cache, Deleted, Postgres, TableView, add, count, current, envelope, last, negative

customer_360 = TableView(
    name="customer_360",
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
