"""The rows of the views of the shop, and the events of its customers, as SQL on its database has them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row

from headwater.compose.samples.sample import Deployment
from headwater.compose.samples.stored_rows import Rows, cached, differences, documents, table

# What the views show, as SQL has it. Times are compared to the millisecond, because views have no more.
SHOWN_CUSTOMERS: Final = """
SELECT id::text AS key, name, email, is_business, credit_limit,
       date_trunc('milliseconds', created_at) AS customer_since
FROM customers
"""
SHOWN_PRODUCTS: Final = """
SELECT sku AS key, name, category::text AS category, description, price, weight_kg, labels,
       available_from, date_trunc('milliseconds', changed_at) AS changed_at
FROM products
"""
COUNTED_ORDERS: Final = (
    "SELECT status::text AS key, count(*) AS orders, sum(total) AS total FROM orders GROUP BY status"
)
# What customers are as aggregates, as SQL has it.
IMPORTED_CUSTOMERS: Final = """
SELECT id::text AS key, name, email, is_business, (credit_limit * 100)::bigint AS credit_limit_cents FROM customers
"""
# The last event of each customer that was not removed.
LAST_EVENTS: Final = """
SELECT substr(stream, 10) AS key, record FROM (
    SELECT DISTINCT ON (stream) stream, type, record FROM {} WHERE stream LIKE 'customer/%%'
    ORDER BY stream, sequence DESC
) last WHERE type <> 'customer.removed'
"""
# The time of each payment's event.
PAYMENT_TIMES: Final = "SELECT stream, time FROM {} WHERE type = 'payment.received'"


@dataclass(frozen=True)
class Paid:
    """A payment that was sent."""

    customer: str
    cents: int
    refunded: bool = False


def mismatches(deployment: Deployment, shop: str, payments: Mapping[str, Paid]) -> list[str]:
    """Every difference between the views and SQL, as a text. shop: address of the database. payments: those sent."""
    with psycopg.connect(shop, row_factory=dict_row) as connection:
        customers, products, statuses, aggregates = (
            {row.pop("key"): row for row in connection.execute(query)}
            for query in (SHOWN_CUSTOMERS, SHOWN_PRODUCTS, COUNTED_ORDERS, IMPORTED_CUSTOMERS)
        )
    customers = with_payments(customers, payments, _payment_times(deployment))
    checked = [
        ("streams", aggregates, _last_events(deployment, aggregates)),
        ("customer_360", customers, table(deployment, "customer_360", "customer_id")),
        ("customer_360", customers, cached(deployment, "customer_360")),
        ("product_search", products, documents(deployment, "product_search", "sku")),
        ("orders_by_status", statuses, table(deployment, "orders_by_status", "status")),
    ]
    return [text for view, expected, actual in checked for text in differences(view, expected, actual, "SQL")]


def with_payments(customers: Rows, payments: Mapping[str, Paid], times: Mapping[str, datetime]) -> Rows:
    """The customers with the columns that come from payments. times: of the events of payments, by the payment's id."""
    number, cents, latest = Counter[str](), Counter[str](), dict[str, datetime]()
    for name, paid in payments.items():
        number[paid.customer] += 1
        cents[paid.customer] += 0 if paid.refunded else paid.cents
        if name in times:
            latest[paid.customer] = max(times[name], latest.get(paid.customer, times[name]))
    return {
        key: {**row, "payments": number[key], "paid_cents": cents[key], "last_payment_at": latest.get(key)}
        for key, row in customers.items()
    }


def _last_events(deployment: Deployment, aggregates: Rows) -> Rows:
    """What the events say of each customer, with the fields that are in `aggregates`."""
    names = next(iter(aggregates.values()), {}).keys()
    query = psycopg.sql.SQL(LAST_EVENTS).format(psycopg.sql.Identifier(deployment.environment, "streams"))
    with psycopg.connect(deployment.endpoints.postgres) as connection:
        found = {key: json.loads(record)["data"] for key, record in connection.execute(query, ())}
    return {key: {name: data.get(name) for name in names} for key, data in found.items()}


def _payment_times(deployment: Deployment) -> dict[str, Any]:
    query = psycopg.sql.SQL(PAYMENT_TIMES).format(psycopg.sql.Identifier(deployment.environment, "streams"))
    with psycopg.connect(deployment.endpoints.postgres) as connection:
        return {stream.removeprefix("payment/"): at for stream, at in connection.execute(query)}
