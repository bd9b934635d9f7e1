"""The sample domain `shop`: SQL traffic on a captured database, payments, views and customers checked with SQL."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from random import Random
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row

from compose.errors import ComposeError
from compose.samples.sample import SETTLE_S, Client, Deployment, Request, Sample, settled
from compose.samples.stored_rows import Rows, cached, differences, documents, table

from .database import create_shop
from .filling import fill
from .transactions import Traffic

SEED: Final = 1
CUSTOMERS, PAYMENTS, ROUNDS, LOADED = 500, 300, 3, 20
TRANSACTIONS: Final = 200
"""How many are made at first, and in each round."""
TRADED: Final = 3
"""How many transactions are made in each turn while views are rebuilt."""
LOOK_AGAIN_S, POLL_S = 0.2, 0.005

# What the views show, as SQL has it. Times are compared to the millisecond, because views have no more.
SHOWN_CUSTOMERS: Final = """
SELECT id::text AS key, name, email, is_business, credit_limit::text AS credit_limit,
       date_trunc('milliseconds', created_at) AS customer_since
FROM customers
"""
SHOWN_PRODUCTS: Final = """
SELECT sku AS key, name, category::text AS category, description, price::text AS price, weight_kg, labels,
       available_from::text AS available_from, date_trunc('milliseconds', changed_at) AS changed_at
FROM products
"""
# The traffic changes keys of products. A record of the new key lacks a long description that stays as it is, unless the
# old row has it: the connector may look for the new row before other sessions see its commit.
KEEP_LONG_VALUES: Final = "ALTER TABLE products REPLICA IDENTITY FULL"
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


class Shop:
    """Customers and products in a database of their own, and payments of the customers; see Sample for the methods.

    The events of customers come from the process that imports them.

    Each payment is of a customer that the traffic may have deleted, or given another key.
    """

    things = "customers"
    measured = 100
    views: Sequence[str] = ("customer_360", "product_search", "streams")

    def __init__(self) -> None:
        self.rows: Mapping[str, str] = {}
        self._shop = ""
        self._seeds = count(SEED)
        self._random = Random(SEED)
        self._customers: Sequence[str] = ()
        self._payments: dict[str, Paid] = {}

    @property
    def number(self) -> int:
        return CUSTOMERS

    async def prepare(self, client: Client, deployment: Deployment) -> None:
        self._shop = await asyncio.to_thread(create_shop, deployment.endpoints.postgres)
        is_new = await asyncio.to_thread(self._fill)
        await asyncio.to_thread(apply, deployment)
        await _wait_shown(client, self.rows)
        if is_new:
            await self.change()

    def loading(self) -> Sequence[Mapping[str, Request]]:
        received = {
            f"load-payment-{n}": _receive(f"loaded-{n}", Paid(str(1 + n % 10), 1_000 + 50 * n)) for n in range(LOADED)
        }
        return [received, {"load-refund-1": Request("payment.refund", {"payment_id": "loaded-1"})}]

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
        return await settled(lambda: self._differences(deployment), LOOK_AGAIN_S)

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

    def _differences(self, deployment: Deployment) -> list[str]:
        with psycopg.connect(self._shop, row_factory=dict_row) as connection:
            customers, products, aggregates = (
                {row.pop("key"): row for row in connection.execute(query)}
                for query in (SHOWN_CUSTOMERS, SHOWN_PRODUCTS, IMPORTED_CUSTOMERS)
            )
        customers = with_payments(customers, self._payments, _payment_times(deployment))
        checked = [
            ("streams", aggregates, _last_events(deployment, aggregates)),
            ("customer_360", customers, table(deployment, "customer_360", "customer_id")),
            ("customer_360", customers, cached(deployment, "customer_360")),
            ("product_search", products, documents(deployment, "product_search", "sku")),
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


def apply(deployment: Deployment) -> None:
    """Capture the shop as a user would; raises ComposeError with what the command says if it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "eventlog.sources", "apply", "shop"],
        env=dict(deployment.variables),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ComposeError(f"eventlog.capturing apply ended with {done.returncode}: {done.stderr or done.stdout}")


async def _wait_shown(client: Client, rows: Mapping[str, str]) -> None:
    """Return once the first rows are captured; raises ComposeError if they are not within SETTLE_S."""
    deadline = time.monotonic() + SETTLE_S
    for view, key in rows.items():
        while not (answer := await client.http.get(f"/views/{view}/{key}")).is_success:
            if time.monotonic() > deadline:
                raise ComposeError(
                    f"{view}/{key} is not captured within {SETTLE_S:.0f} s: {answer.text}; "
                    "`python -m eventlog.sources status` may say why"
                )
            await asyncio.sleep(LOOK_AGAIN_S)


def _receive(name: str, paid: Paid) -> Request:
    return Request("payment.receive", {"payment_id": name, "customer_id": paid.customer, "amount_cents": paid.cents})


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


def sample() -> Sample:
    """What `run` and `demo` send, and check."""
    return Shop()
