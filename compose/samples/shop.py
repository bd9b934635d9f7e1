"""The sample `shop`: a captured database, changes of it by SQL, and payments."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Final

import psycopg

from headwater.compose.errors import ComposeError
from headwater.compose.samples.sample import LOOK_AGAIN_S, SETTLE_S, Client, Deployment, Request, Sample
from headwater.compose.samples.shop_database import create_shop, fill
from headwater.compose.samples.shop_traffic import Traffic
from headwater.eventlog.programs.modules import SAFE_PATH

SEED: Final = 1
CUSTOMERS, LOADED = 500, 20
TRANSACTIONS: Final = 200
"""How many are made when the tables are filled."""
# The traffic changes keys of products. A record of the new key lacks a long description that stays as it is, unless the
# old row has it: the connector may look for the new row before other sessions see its commit.
KEEP_LONG_VALUES: Final = "ALTER TABLE products REPLICA IDENTITY FULL"


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


def receive(name: str, customer: str, cents: int) -> Request:
    """The command for a payment."""
    return Request("payment.receive", {"payment_id": name, "customer_id": customer, "amount_cents": cents})


class Shop(Sample):
    """Customers and products in a database of their own, and payments of the customers.

    The events of customers come from the process that imports them. database: its address. customers: their keys.
    """

    def __init__(self) -> None:
        self.database = ""
        self.customers: Sequence[str] = ()
        self._seeds = count(SEED)

    async def prepare(self, client: Client, deployment: Deployment) -> None:
        self.database = await asyncio.to_thread(create_shop, deployment.endpoints.postgres)
        is_new = await asyncio.to_thread(self._fill)
        await asyncio.to_thread(apply, deployment)
        await _wait_shown(client, self.rows)
        if is_new:
            await asyncio.to_thread(self.make_transactions, TRANSACTIONS)

    def loading(self) -> Sequence[Sequence[Request]]:
        received = [receive(f"loaded-{n}", str(1 + n % 10), 1_000 + 50 * n) for n in range(LOADED)]
        return [received, [Request("payment.refund", {"payment_id": "loaded-1"})]]

    def make_transactions(self, number: int) -> None:
        """Change the database by so many transactions, each time others."""
        with psycopg.connect(self.database, autocommit=True) as connection:
            Traffic(connection, SEED + next(self._seeds)).run(number)

    def _fill(self) -> bool:
        """Fill the tables if they are empty, and find out the keys; returns whether they were empty."""
        with psycopg.connect(self.database) as connection:
            is_new = connection.execute("SELECT FROM customers LIMIT 1").fetchone() is None
            if is_new:
                connection.execute(KEEP_LONG_VALUES)
                fill(connection, SEED, CUSTOMERS)
            self.customers = [key for (key,) in connection.execute("SELECT id::text FROM customers ORDER BY id")]
            skus = connection.execute("SELECT min(sku) FROM products").fetchone()
        self.rows = {"customer_360": self.customers[0]}
        if skus is not None and skus[0] is not None:
            self.rows = {**self.rows, "product_search": skus[0]}
        return is_new


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
