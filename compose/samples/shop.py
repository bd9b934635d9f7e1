"""The sample `shop`: SQL traffic on a captured database, payments, views and customers checked with SQL."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from random import Random
from typing import Final

import psycopg
from psycopg.rows import dict_row

from headwater.compose.errors import ComposeError
from headwater.compose.samples.sample import (
    LOOK_AGAIN_S,
    SETTLE_S,
    Client,
    Deployment,
    Request,
    Sample,
    happened,
    settled,
)
from headwater.compose.samples.shop_database import create_shop, fill
from headwater.compose.samples.shop_traffic import Traffic
from headwater.compose.samples.stored_rows import Rows, cached, differences, documents, table
from headwater.eventlog.programs.modules import SAFE_PATH

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
    received = [each for each in happened(deployment, ("payment",)) if each.type == "payment.received"]
    times = {each.stream.removeprefix("payment/"): each.time for each in received}
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


SEED: Final = 1
CUSTOMERS, PAYMENTS, ROUNDS, LOADED = 500, 300, 3, 20
TRANSACTIONS: Final = 200
"""How many are made at first, and in each round."""
TRADED: Final = 3
"""How many transactions are made in each turn while views are rebuilt."""
POLL_S: Final = 0.005

# The traffic changes keys of products. A record of the new key lacks a long description that stays as it is, unless the
# old row has it: the connector may look for the new row before other sessions see its commit.
KEEP_LONG_VALUES: Final = "ALTER TABLE products REPLICA IDENTITY FULL"


class Shop(Sample):
    """Customers and products in a database of their own, and payments of the customers.

    The events of customers come from the process that imports them.

    Each payment is of a customer that the traffic may have deleted, or given another key.
    """

    things = "customers"
    measured = 100
    number = CUSTOMERS
    views = ("customer_360", "product_search", "orders_by_status", "streams")

    def __init__(self) -> None:
        self._shop = ""
        self._seeds = count(SEED)
        self._random = Random(SEED)
        self._customers: Sequence[str] = ()
        self._payments: dict[str, Paid] = {}

    async def prepare(self, client: Client, deployment: Deployment) -> None:
        self._shop = await asyncio.to_thread(create_shop, deployment.endpoints.postgres)
        is_new = await asyncio.to_thread(self._fill)
        await asyncio.to_thread(apply, deployment)
        await _wait_shown(client, self.rows)
        if is_new:
            await self.change()

    def loading(self) -> Sequence[Sequence[Request]]:
        received = [_receive(f"loaded-{n}", Paid(str(1 + n % 10), 1_000 + 50 * n)) for n in range(LOADED)]
        return [received, [Request("payment.refund", {"payment_id": "loaded-1"})]]

    def rounds(self) -> Sequence[Sequence[Request]]:
        found: list[list[Request]] = []
        for number in range(ROUNDS):
            refunds = [self._refund(name) for name, paid in list(self._payments.items())[::5] if not paid.refunded]
            received = range(number * PAYMENTS, (number + 1) * PAYMENTS)
            found.append([*refunds, *(self._receive(f"payment-{n}") for n in received)])
        return found

    async def change(self) -> None:
        await asyncio.to_thread(self._change, TRANSACTIONS)

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
        await asyncio.to_thread(self._change, TRADED)
        await client.send(self._receive(f"traded-{number}"))

    async def mismatches(self, client: Client, deployment: Deployment) -> list[str]:
        await client.settle(self.rows)
        # wait for the connector: SQL has no position that a view could be asked for
        return await settled(lambda: mismatches(deployment, self._shop, self._payments))

    def _fill(self) -> bool:
        """Fill the tables if they are empty, and find out the keys; returns whether they were empty."""
        with psycopg.connect(self._shop) as connection:
            is_new = connection.execute("SELECT FROM customers LIMIT 1").fetchone() is None
            if is_new:
                connection.execute(KEEP_LONG_VALUES)
                fill(connection, SEED, CUSTOMERS)
            self._customers = [key for (key,) in connection.execute("SELECT id::text FROM customers ORDER BY id")]
            skus = connection.execute("SELECT min(sku) FROM products").fetchone()
        self.rows = {"customer_360": self._customers[0]}
        if skus is not None and skus[0] is not None:
            self.rows = {**self.rows, "product_search": skus[0]}
        return is_new

    def _change(self, transactions: int) -> None:
        with psycopg.connect(self._shop, autocommit=True) as connection:
            Traffic(connection, SEED + next(self._seeds)).run(transactions)

    def _rename(self, number: int, name: str) -> tuple[str, float]:
        """Give one customer a name; returns the customer's key, and when it was committed."""
        statement = """UPDATE customers SET name = %s
                       WHERE id = (SELECT id FROM customers ORDER BY id OFFSET %s LIMIT 1) RETURNING id::text"""
        with psycopg.connect(self._shop, autocommit=True) as connection:
            ((key,),) = connection.execute(statement, (name, number)).fetchall()
            return key, time.perf_counter()

    def _receive(self, name: str) -> Request:
        paid = Paid(self._random.choice(self._customers), self._random.randrange(1, 100_000))
        self._payments[name] = paid
        return _receive(name, paid)

    def _refund(self, name: str) -> Request:
        paid = self._payments[name]
        self._payments[name] = Paid(paid.customer, paid.cents, refunded=True)
        return Request("payment.refund", {"payment_id": name})


def apply(deployment: Deployment) -> None:
    """Capture the shop as a user would; raises ComposeError with what the command says if it fails."""
    done = subprocess.run(
        [sys.executable, *SAFE_PATH, "-m", "headwater.eventlog.capturing", "apply", "shop"],
        env=dict(deployment.variables),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ComposeError(
            f"headwater.eventlog.capturing apply ended with {done.returncode}: {done.stderr or done.stdout}"
        )


async def _wait_shown(client: Client, rows: Mapping[str, str]) -> None:
    """Return once the first rows are captured; raises ComposeError if they are not within SETTLE_S."""
    deadline = time.monotonic() + SETTLE_S
    for view, key in rows.items():
        while not (answer := await client.http.get(f"/views/{view}/{key}")).is_success:
            if time.monotonic() > deadline:
                raise ComposeError(
                    f"{view}/{key} is not captured within {SETTLE_S:.0f} s: {answer.text}; "
                    "`headwater sources status` may say why"
                )
            await asyncio.sleep(LOOK_AGAIN_S)


def _receive(name: str, paid: Paid) -> Request:
    return Request("payment.receive", {"payment_id": name, "customer_id": paid.customer, "amount_cents": paid.cents})


sample: Final = Shop


TO_TRY: Final[tuple[tuple[str, str], ...]] = (
    ("a customer: a row of the shop's database, with the payments", "curl -sS {api}/views/customer_360/1"),
    ("a search of its products", "curl -sS '{api}/views/product_search/search?q=saffron&category=tea&limit=3'"),
    ("how many orders have each status, and what they cost", "curl -sS {api}/views/orders_by_status"),
    (
        "receive a payment; then read the customer again",
        "curl -sS -X POST {api}/commands/payment.receive -H 'content-type: application/json' "
        '-d \'{{"payment_id": "mine", "customer_id": "1", "amount_cents": 2500}}\'',
    ),
    (
        "change the database by ordinary SQL",
        "{bin}/python -m headwater.compose.samples.shop_traffic --transactions 500",
    ),
    ("how far it is captured", "{bin}/headwater sources status"),
)
"""What each does, and its command."""
