"""The database `shop`: its roles and tables, and random rows for them: the same seed gives the same rows."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.types.json import Jsonb

SHOP: Final = "shop"
_HERE: Final = Path(__file__).parent
_LOCK: Final = 7_467_002
"""Number of the advisory lock that makes the creation safe for several processes."""


def create_shop(server: str, database: str = SHOP) -> str:
    """Create `database` with empty tables, unless it exists, and return how the application connects to it.

    server: libpq URL of a role that may create roles and databases. Raises psycopg.Error if the server refuses.
    """
    application = make_conninfo(server, user="shop", dbname=database)
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
        connection.execute((_HERE / "shop_roles.sql").read_bytes())
        if connection.execute("SELECT FROM pg_database WHERE datname = %s", (database,)).fetchone() is None:
            connection.execute(sql.SQL("CREATE DATABASE {} OWNER shop").format(sql.Identifier(database)))
        with psycopg.connect(make_conninfo(server, dbname=database)) as tables:
            tables.execute("SET ROLE shop")
            if tables.execute("SELECT to_regclass('public.customers')").fetchone() == (None,):
                tables.execute((_HERE / "shop_schema.sql").read_bytes())
    return application


FIRST: Final = ("Ada", "Bo", "Chen", "Dilara", "Émile", "Fatou", "Grace", "Håkon", "Iðunn", "João", "Kenji", "Łucja")
LAST: Final = ("Abara", "Bianchi", "Çelik", "Dupont", "Eriksen", "Fischer", "García", "Huang", "O'Neill", "Šimić")
THINGS: Final = ("Assam", "Cardamom", "Darjeeling", "Espresso", "Fennel", "Genmaicha", "Kettle", "Mug", "Saffron")
CATEGORIES: Final = ("tea", "coffee", "spices", "books", "tableware")
STATUSES: Final = ("placed", "paid", "shipped", "delivered", "cancelled")
LABELS: Final = ("organic", "fair trade", "new", 'a "quoted" one', "a, b", "{curly}", "back\\slash", "")
_EPOCH: Final = datetime(2020, 1, 1, tzinfo=UTC)
_YEARS_S: Final = 6 * 365 * 24 * 3600

Row = dict[str, Any]


def customer_row(random: Random) -> Row:
    """A row of `customers` without its id."""
    public_id = uuid.UUID(int=random.getrandbits(128), version=4)
    first, last = random.choice(FIRST), random.choice(LAST)
    return {
        "public_id": public_id,
        "name": f"{first} {last}",
        "email": f"{first}.{public_id.hex[:12]}@example.org".lower(),
        "phone": _maybe(random, f"+49 30 {random.randrange(10**7):07}"),
        "born_on": _maybe(random, date(1930, 1, 1) + timedelta(days=random.randrange(28_000))),
        "credit_limit": _maybe(random, money(random, 100_000)),
        "is_business": random.random() < 0.2,
        "interests": random.sample(CATEGORIES, random.randrange(4)),
        "preferences": Jsonb(
            {"newsletter": random.random() < 0.5, "language": random.choice(["de", "en", "tr", None])}
        ),
        "created_at": moment(random),
        "changed_at": moment(random),
    }


def product_row(random: Random) -> Row:
    """A row of `products`; a third of the descriptions are too long to be stored inside the row."""
    category = random.choice(CATEGORIES)
    return {
        "sku": sku(random),
        "name": f"{random.choice(THINGS)} {random.choice(['classic', 'extra', 'No. 7', '½ kg', '茶'])}",
        "category": category,
        "description": text(random, 12_000 if random.random() < 0.34 else 80),
        "price": money(random, 500),
        "weight_kg": _maybe(random, random.choice([0.1, 1 / 3, 2.5, 12.0])),
        "attributes": Jsonb({"origin": random.choice(["IN", "CN", "ET"]), "grades": [random.randrange(5), 0.5, None]}),
        "labels": random.sample(LABELS, random.randrange(4)),
        "picture": _maybe(random, random.randbytes(random.choice([0, 16, 3_000]))),
        "best_before": _maybe(random, timedelta(days=random.randrange(1_000), hours=random.randrange(24))),
        "available_from": date(2020, 1, 1) + timedelta(days=random.randrange(2_500)),
        "changed_at": moment(random),
    }


def order_row(random: Random, customer_id: int) -> Row:
    """A row of `orders` without its id."""
    return {
        "customer_id": customer_id,
        "status": random.choice(STATUSES),
        "total": money(random, 2_000),
        "currency": random.choice(["EUR", "USD", "TRY"]),
        "deliver_after": _maybe(random, time(random.randrange(24), random.randrange(60))),
        "note": _maybe(random, text(random, 60)),
        "placed_at": moment(random),
        "shipped_at": _maybe(random, moment(random).replace(tzinfo=None)),
    }


def order_line_row(random: Random, order_id: int, number: int, product_sku: str) -> Row:
    """A row of `order_lines`."""
    return {
        "order_id": order_id,
        "line_number": number,
        "sku": product_sku,
        "quantity": random.randrange(1, 10),
        "unit_price": money(random, 500),
    }


def sku(random: Random) -> str:
    """A product's number; 2**40 of them, so that two are practically never equal."""
    return f"P-{random.getrandbits(40):010x}"


def money(random: Random, most: int) -> Decimal:
    """An amount from 0 to `most` with two digits after the point."""
    return Decimal(random.randrange(most * 100)) / 100


def moment(random: Random) -> datetime:
    """A time in the years after 2020, exact to the microsecond as PostgreSQL has it."""
    return _EPOCH + timedelta(seconds=random.randrange(_YEARS_S), microseconds=random.randrange(1_000_000))


def text(random: Random, length: int) -> str:
    """About `length` characters that compress badly, so that a long text leaves the row."""
    words: list[str] = []
    while length > 0:
        words.append(random.choice([*THINGS, f"{random.getrandbits(64):x}"]))
        length -= len(words[-1]) + 1
    return " ".join(words)


def _maybe(random: Random, value: Any) -> Any:
    return value if random.random() < 0.8 else None


def fill(connection: psycopg.Connection[Any], seed: int, customers: int = 500, products: int = 200) -> None:
    """Add random customers and products, and an order of one to four lines for every second customer, in one commit.

    The same seed adds the same rows to an empty database. Raises psycopg.Error.
    """
    random = Random(seed)
    with connection.transaction():
        numbers = _reserve(connection, "customers", customers)
        _copy(connection, "customers", ({"id": number, **customer_row(random)} for number in numbers))
        goods = [product_row(random) for _ in range(products)]
        _copy(connection, "products", goods)
        owners = numbers[::2] if goods else []
        orders = _reserve(connection, "orders", len(owners))
        pairs = zip(orders, owners, strict=True)
        _copy(connection, "orders", ({"id": number, **order_row(random, owner)} for number, owner in pairs))
        skus = [product["sku"] for product in goods]
        _copy(connection, "order_lines", chain.from_iterable(_lines(random, number, skus) for number in orders))


def _lines(random: Random, order_id: int, skus: list[str]) -> Iterator[Row]:
    for number in range(1, random.randrange(1, 5) + 1):
        yield order_line_row(random, order_id, number, random.choice(skus))


def _reserve(connection: psycopg.Connection[Any], table: str, count: int) -> list[int]:
    """The next ids of the table's sequence."""
    query = "SELECT nextval(pg_get_serial_sequence(%s, 'id')) FROM generate_series(1, %s)"
    return [number for (number,) in connection.execute(query, (table, count))]


def _copy(connection: psycopg.Connection[Any], table: str, given: Iterable[Row]) -> None:
    remaining = iter(given)
    first = next(remaining, None)
    if first is None:
        return
    columns = sql.SQL(", ").join(map(sql.Identifier, first))
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table), columns)
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for row in chain([first], remaining):
            copy.write_row(list(row.values()))
