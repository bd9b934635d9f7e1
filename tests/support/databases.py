"""A database that a test has had captured, and that is to go."""

from __future__ import annotations

import psycopg
from psycopg import errors, sql

from tests.support.waiting import eventually

SLOTS = "SELECT slot_name FROM pg_replication_slots WHERE database = %s"


def drop_database(server: str, name: str) -> None:
    """Drop a database and its replication slots, once the connectors that use these have ended.

    server: libpq URL of a superuser.
    """

    def is_dropped() -> bool:
        try:
            for (slot,) in connection.execute(SLOTS, (name,)).fetchall():
                connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
        except errors.ObjectInUse:  # somebody has not ended yet, although it was told to
            return False
        return True

    with psycopg.connect(server, autocommit=True) as connection:
        eventually(is_dropped, f"database {name} is dropped", every_s=0.2)
