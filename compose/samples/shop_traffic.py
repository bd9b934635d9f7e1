"""Random changes to the shop, as its application would make them: ordinary SQL, one transaction at a time.

`python -m headwater.compose.samples.shop_traffic --transactions 500 --rate 50` makes some in the local stack.
"""

from __future__ import annotations

import os
import sys
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, Final

import psycopg
from psycopg import errors, sql

from headwater.compose.samples.shop_database import (
    CATEGORIES,
    STATUSES,
    Row,
    create_shop,
    customer_row,
    moment,
    order_line_row,
    order_row,
    product_row,
    sku,
)
from headwater.compose.settings import StackSettings

LARGE: Final = 2_000
"""How many rows a large transaction changes at most."""
LOST_RACES: Final = (errors.IntegrityError, errors.DeadlockDetected)
"""What another client's changes can make of a correct transaction."""


class Traffic:
    """A client of the shop. Alone on a database, the same seed makes the same changes.

    made: how many transactions were made, by the kind; those that lost a race to another client count as `lost`.
    """

    def __init__(self, connection: psycopg.Connection[Any], seed: int) -> None:
        self.made: Counter[str] = Counter()
        self._sql = connection
        self._random = Random(seed)
        self._weights: dict[Callable[[], object], int] = {
            self.add_customer: 10,
            self.change_customer: 20,
            self.delete_customer: 5,
            self.renumber_customer: 3,
            self.replace_customer: 3,
            self.add_product: 5,
            self.change_product: 15,
            self.delete_product: 3,
            self.rename_sku: 4,
            self.place_order: 20,
            self.advance_order: 15,
            self.cancel_order: 5,
            self.roll_back: 5,
            self.roll_back_partly: 5,
            self.reprice_category: 1,
        }

    def run(self, transactions: int) -> None:
        """Make this many transactions; raises psycopg.Error if the database fails."""
        for _ in range(transactions):
            self.step()

    def step(self) -> None:
        """Make one transaction of a random kind; raises psycopg.Error if the database fails."""
        (kind,) = self._random.choices(list(self._weights), list(self._weights.values()))
        try:
            with self._sql.transaction():
                kind()
            self.made[kind.__name__] += 1
        except LOST_RACES:
            self.made["lost"] += 1

    def add_customer(self) -> int:
        """Insert a customer; returns the id."""
        return self._insert_numbered("customers", customer_row(self._random))

    def change_customer(self) -> None:
        """Change some columns of a customer, or none of their values."""
        self._change("customers", "id", customer_row(self._random), but=("public_id", "email"))

    def delete_customer(self) -> None:
        """Delete a customer without orders."""
        self._sql.execute(
            "DELETE FROM customers WHERE id = %s AND NOT EXISTS (SELECT FROM orders WHERE customer_id = customers.id)",
            (self._any("customers", "id"),),
        )

    def renumber_customer(self) -> None:
        """Change a customer's primary key; the orders follow."""
        self._sql.execute(
            "UPDATE customers SET id = nextval(pg_get_serial_sequence('customers', 'id')) WHERE id = %s",
            (self._any("customers", "id"),),
        )

    def replace_customer(self) -> None:
        """Insert, delete and insert the same key again, in one transaction."""
        number = self.add_customer()
        self._sql.execute("DELETE FROM customers WHERE id = %s", (number,))
        self._insert("customers", {"id": number, **customer_row(self._random)})

    def add_product(self) -> None:
        """Insert a product."""
        self._insert("products", product_row(self._random))

    def change_product(self) -> None:
        """Change some columns of a product; a long description often stays as it is."""
        self._change("products", "sku", product_row(self._random), but=("sku",))

    def delete_product(self) -> None:
        """Delete a product that was never ordered."""
        self._sql.execute(
            "DELETE FROM products WHERE sku = %s AND NOT EXISTS (SELECT FROM order_lines WHERE sku = products.sku)",
            (self._any("products", "sku"),),
        )

    def rename_sku(self) -> None:
        """Change a product's primary key; the order lines follow."""
        self._sql.execute(
            "UPDATE products SET sku = %s WHERE sku = %s", (sku(self._random), self._any("products", "sku"))
        )

    def place_order(self) -> None:
        """Insert an order with one to four lines, and then its total."""
        customer, skus = self._any("customers", "id"), [self._any("products", "sku") for _ in range(4)]
        if customer is None or None in skus:
            return
        number = self._insert_numbered("orders", order_row(self._random, customer))
        for line in range(1, self._random.randrange(1, 5) + 1):
            self._insert("order_lines", order_line_row(self._random, number, line, self._random.choice(skus)))
        self._sql.execute(
            "UPDATE orders SET total = (SELECT sum(quantity * unit_price) FROM order_lines WHERE order_id = id) "
            "WHERE id = %s",
            (number,),
        )

    def advance_order(self) -> None:
        """Change the status of an order."""
        self._sql.execute(
            "UPDATE orders SET status = %s, shipped_at = %s WHERE id = %s",
            (
                self._random.choice(STATUSES),
                moment(self._random).replace(tzinfo=None),
                self._any("orders", "id"),
            ),
        )

    def cancel_order(self) -> None:
        """Delete an order; its lines follow."""
        self._sql.execute("DELETE FROM orders WHERE id = %s", (self._any("orders", "id"),))

    def roll_back(self) -> None:
        """Change things, then undo the whole transaction."""
        self.place_order()
        self.change_customer()
        raise psycopg.Rollback

    def roll_back_partly(self) -> None:
        """Change things, and undo what happened after a savepoint."""
        self.add_customer()
        with self._sql.transaction() as savepoint:
            self.change_customer()
            self.add_product()
            raise psycopg.Rollback(savepoint)
        self.change_product()

    def reprice_category(self) -> None:
        """Change the price of many products in one transaction."""
        self._sql.execute(
            "UPDATE products SET price = price + 0.01 WHERE sku IN "
            "(SELECT sku FROM products WHERE category = %s ORDER BY sku LIMIT %s)",
            (self._random.choice(CATEGORIES), LARGE),
        )

    def _any(self, table: str, key: str) -> Any:
        """A random existing key; None if the table is empty."""
        names = {"key": sql.Identifier(key), "table": sql.Identifier(table)}
        query = "SELECT {key} FROM {table} ORDER BY {key} LIMIT 1 OFFSET floor(%s * (SELECT count(*) FROM {table}))"
        row = self._sql.execute(sql.SQL(query).format(**names), (self._random.random(),)).fetchone()
        return row and row[0]

    def _insert(self, table: str, row: Row) -> None:
        statement = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
            sql.Identifier(table),
            sql.SQL(", ").join(map(sql.Identifier, row)),
            sql.SQL(", ").join(map(sql.Placeholder, row)),
        )
        self._sql.execute(statement, row)

    def _insert_numbered(self, table: str, row: Row) -> int:
        """Insert a row with the next id of the table, and return the id."""
        ((number,),) = self._sql.execute("SELECT nextval(pg_get_serial_sequence(%s, 'id'))", (table,)).fetchall()
        self._insert(table, {"id": number, **row})
        return int(number)

    def _change(self, table: str, key: str, row: Row, but: tuple[str, ...]) -> None:
        """Set one to three random columns of a random row."""
        names = self._random.sample([name for name in row if name not in but], self._random.randrange(1, 4))
        changes = sql.SQL(", ").join(
            sql.SQL("{} = {}").format(sql.Identifier(name), sql.Placeholder(name)) for name in names
        )
        statement = sql.SQL("UPDATE {} SET {} WHERE {} = {}").format(
            sql.Identifier(table), changes, sql.Identifier(key), sql.Placeholder("_key")
        )
        self._sql.execute(statement, {**{name: row[name] for name in names}, "_key": self._any(table, key)})


def main() -> int:
    """Make transactions, and print how many of each kind; returns the exit code."""
    parser = ArgumentParser(description="Change the database `shop`, which is created if it does not exist.")
    parser.add_argument("--seed", type=int, default=1, help="the same seed makes the same changes")
    parser.add_argument("--transactions", type=int, default=1_000)
    parser.add_argument("--rate", type=float, default=50.0, help="how many transactions to make per second")
    given = parser.parse_args()
    try:
        shop = create_shop(
            os.environ.get("HEADWATER_POSTGRES") or StackSettings.from_environ(os.environ).endpoints.postgres
        )
        with psycopg.connect(shop, autocommit=True) as connection:
            client, began = Traffic(connection, given.seed), time.monotonic()
            for number in range(given.transactions):
                client.step()
                time.sleep(max(0.0, began + (number + 1) / given.rate - time.monotonic()))
    except psycopg.Error as error:
        print(f"error: {error}".strip(), file=sys.stderr)
        return 1
    for kind, count in client.made.most_common():
        print(f"{count:7} {kind}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
