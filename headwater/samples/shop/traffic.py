"""The sample `shop`: SQL traffic on a captured database, payments, views and customers checked with SQL."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import count
from random import Random
from typing import Final

import psycopg

from headwater.compose.errors import ComposeError
from headwater.compose.samples.sample import SETTLE_S, Client, Deployment, Request, Sample, settled
from headwater.eventlog.programs.modules import SAFE_PATH

from .database import create_shop
from .expected import Paid, mismatches
from .filling import fill
from .transactions import Traffic

SEED: Final = 1
CUSTOMERS, PAYMENTS, ROUNDS, LOADED = 500, 300, 3, 20
TRANSACTIONS: Final = 200
"""How many are made at first, and in each round."""
TRADED: Final = 3
"""How many transactions are made in each turn while views are rebuilt."""
LOOK_AGAIN_S, POLL_S = 0.2, 0.005

# The traffic changes keys of products. A record of the new key lacks a long description that stays as it is, unless the
# old row has it: the connector may look for the new row before other sessions see its commit.
KEEP_LONG_VALUES: Final = "ALTER TABLE products REPLICA IDENTITY FULL"


class Shop:
    """Customers and products in a database of their own, and payments of the customers; see Sample for the methods.

    The events of customers come from the process that imports them.

    Each payment is of a customer that the traffic may have deleted, or given another key.
    """

    things = "customers"
    measured = 100
    views: Sequence[str] = ("customer_360", "product_search", "orders_by_status", "streams")

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
        return await settled(lambda: mismatches(deployment, self._shop, self._payments), LOOK_AGAIN_S)

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


def sample() -> Sample:
    """What `run` and `demo` send, and check."""
    return Shop()


TO_TRY: Final[tuple[tuple[str, str], ...]] = (
    ("a customer: a row of the shop's database, with the payments", "curl -sS {api}/views/customer_360/1"),
    ("a search of its products", "curl -sS '{api}/views/product_search/search?q=saffron&category=tea&limit=3'"),
    ("how many orders have each status, and what they cost", "curl -sS {api}/views/orders_by_status"),
    (
        "receive a payment; then read the customer again",
        "curl -sS -X POST {api}/commands/payment.receive -H 'content-type: application/json' "
        '-d \'{{"payment_id": "mine", "customer_id": "1", "amount_cents": 2500}}\'',
    ),
    ("change the database by ordinary SQL", "{bin}/python -m headwater.samples.shop traffic --transactions 500"),
    ("how far it is captured", "{bin}/headwater sources status"),
)
"""What each does, and its command."""
