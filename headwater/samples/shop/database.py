"""Creates the database `shop`, or one like it, with its roles and tables."""

from pathlib import Path
from typing import Final

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

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
        connection.execute((_HERE / "roles.sql").read_bytes())
        if connection.execute("SELECT FROM pg_database WHERE datname = %s", (database,)).fetchone() is None:
            connection.execute(sql.SQL("CREATE DATABASE {} OWNER shop").format(sql.Identifier(database)))
        with psycopg.connect(make_conninfo(server, dbname=database)) as tables:
            tables.execute("SET ROLE shop")
            if tables.execute("SELECT to_regclass('public.customers')").fetchone() == (None,):
                tables.execute((_HERE / "schema.sql").read_bytes())
    return application
