"""Fills the shop's tables with random rows, by COPY."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from random import Random
from typing import Any

import psycopg
from psycopg import sql

from . import rows


def fill(connection: psycopg.Connection[Any], seed: int, customers: int = 500, products: int = 200) -> None:
    """Add random customers and products, and an order of one to four lines for every second customer, in one commit.

    The same seed adds the same rows to an empty database. Raises psycopg.Error.
    """
    random = Random(seed)
    with connection.transaction():
        numbers = _reserve(connection, "customers", customers)
        _copy(connection, "customers", ({"id": number, **rows.customer(random)} for number in numbers))
        goods = [rows.product(random) for _ in range(products)]
        _copy(connection, "products", goods)
        owners = numbers[::2] if goods else []
        orders = _reserve(connection, "orders", len(owners))
        pairs = zip(orders, owners, strict=True)
        _copy(connection, "orders", ({"id": number, **rows.order(random, owner)} for number, owner in pairs))
        skus = [product["sku"] for product in goods]
        _copy(connection, "order_lines", chain.from_iterable(_lines(random, number, skus) for number in orders))


def _lines(random: Random, order_id: int, skus: list[str]) -> Iterator[rows.Row]:
    for number in range(1, random.randrange(1, 5) + 1):
        yield rows.order_line(random, order_id, number, random.choice(skus))


def _reserve(connection: psycopg.Connection[Any], table: str, count: int) -> list[int]:
    """The next ids of the table's sequence."""
    query = "SELECT nextval(pg_get_serial_sequence(%s, 'id')) FROM generate_series(1, %s)"
    return [number for (number,) in connection.execute(query, (table, count))]


def _copy(connection: psycopg.Connection[Any], table: str, given: Iterable[rows.Row]) -> None:
    remaining = iter(given)
    first = next(remaining, None)
    if first is None:
        return
    columns = sql.SQL(", ").join(map(sql.Identifier, first))
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table), columns)
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for row in chain([first], remaining):
            copy.write_row(list(row.values()))
