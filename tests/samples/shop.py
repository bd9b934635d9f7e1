"""The sample `shop`, checked: views, customers and payments are compared with SQL."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Final

import psycopg
from psycopg.rows import dict_row

from headwater.compose.samples.sample import SETTLE_S, Client, Deployment, Request
from headwater.compose.samples.shop import CUSTOMERS, SEED, TRANSACTIONS, Shop, receive
from tests.samples.checked import CheckedSample, happened, settled
from tests.samples.stored_rows import Rows, cached, differences, documents, table

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
    last_events: Rows = {}
    for event in happened(deployment, ("customer",)):
        last_events[event.stream.removeprefix("customer/")] = {**event.data, "type": event.type}
    present = {key: data for key, data in last_events.items() if data["type"] != "customer.removed"}
    received = [event for event in happened(deployment, ("payment",)) if event.type == "payment.received"]
    times = {event.stream.removeprefix("payment/"): event.time for event in received}
    customers = with_payments(customers, payments, times)
    checked = [
        ("streams", aggregates, present),
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


PAYMENTS, ROUNDS = 300, 3
TRADED: Final = 3
"""How many transactions are made in each turn while views are rebuilt."""
POLL_S: Final = 0.005


class CheckedShop(CheckedSample, Shop):
    """The shop, with payments of customers that the traffic may have deleted, or given another key."""

    things = "customers"
    measured = 100
    number = CUSTOMERS
    views = ("customer_360", "product_search", "orders_by_status", "streams")

    def __init__(self) -> None:
        super().__init__()
        self._random = Random(SEED)
        self._payments: dict[str, Paid] = {}

    def rounds(self) -> Sequence[Sequence[Request]]:
        found: list[list[Request]] = []
        for number in range(ROUNDS):
            refunds = [self._refund(name) for name, paid in list(self._payments.items())[::5] if not paid.refunded]
            received = range(number * PAYMENTS, (number + 1) * PAYMENTS)
            found.append([*refunds, *(self._receive(f"payment-{n}") for n in received)])
        return found

    async def change(self) -> None:
        await asyncio.to_thread(self.make_transactions, TRANSACTIONS)

    async def write_and_read(self, client: Client, number: int) -> tuple[float, str]:
        name = f"Fresh {number}"
        key, began = await asyncio.to_thread(self._rename, number, name)
        while True:
            answer = await client.http.get(f"/views/customer_360/{key}")
            took_s = time.perf_counter() - began
            if answer.is_success and answer.json()["name"] == name:
                return took_s, ""
            if took_s > SETTLE_S:
                return took_s, f"customer_360/{key} does not have the name {name!r}: {answer.text}"
            await asyncio.sleep(POLL_S)

    async def trade(self, client: Client, number: int) -> None:
        await asyncio.to_thread(self.make_transactions, TRADED)
        await client.send(self._receive(f"traded-{number}"))

    async def mismatches(self, client: Client, deployment: Deployment) -> list[str]:
        await client.settle(self.rows)
        # wait for the connector: SQL has no position that a view could be asked for
        return await settled(lambda: mismatches(deployment, self.database, self._payments))

    def _rename(self, number: int, name: str) -> tuple[str, float]:
        """Give one customer a name; returns the customer's key, and when it was committed."""
        statement = """UPDATE customers SET name = %s
                       WHERE id = (SELECT id FROM customers ORDER BY id OFFSET %s LIMIT 1) RETURNING id::text"""
        with psycopg.connect(self.database, autocommit=True) as connection:
            ((key,),) = connection.execute(statement, (name, number)).fetchall()
            return key, time.perf_counter()

    def _receive(self, name: str) -> Request:
        paid = Paid(self._random.choice(self.customers), self._random.randrange(1, 100_000))
        self._payments[name] = paid
        return receive(name, paid.customer, paid.cents)

    def _refund(self, name: str) -> Request:
        paid = self._payments[name]
        self._payments[name] = Paid(paid.customer, paid.cents, refunded=True)
        return Request("payment.refund", {"payment_id": name})


sample: Final = CheckedShop
