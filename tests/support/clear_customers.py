"""The domain of personal_customers, with views that stores have in plaintext."""

from __future__ import annotations

from headwater import Elasticsearch, Postgres, TableView, count, last
from tests.support.personal_customers import Paid, Registered, customer, greeting

__all__ = ["customer", "greeting"]

known_customers = TableView(
    name="known_customers",
    key="customer_id",
    columns={
        "email": last({Registered: "email"}),
        "name": last({Registered: "name"}),
        "born": last({Registered: "born"}),
        "payee": last({Paid: "payee_name"}),
        "payments": count(Paid),
    },
    stores=(
        Postgres(indexes=(("email",),), clear=("email", "born", "payee")),
        Elasticsearch(text=("email",), clear=("email", "born", "payee")),
    ),
)
unsearched_customers = TableView(
    name="unsearched_customers",
    key="customer_id",
    columns={"email": last({Registered: "email"}), "payments": count(Paid)},
    stores=(Elasticsearch(clear=("email",)),),
)
sealed_customers = TableView(
    name="sealed_customers",
    key="customer_id",
    columns={"email": last({Registered: "email"}), "payments": count(Paid)},
    stores=(Postgres(), Elasticsearch()),
)
