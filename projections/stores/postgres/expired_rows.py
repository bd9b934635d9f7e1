"""Rows of a generation's table that expired for good."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import date
from typing import Any, Final

import psycopg
from psycopg import sql

from projections.errors import GenerationMissing, StoreUnavailable
from projections.settings import StoreSettings
from projections.stores.names import table_key, table_name
from projections.stores.postgres.connection import connect
from projections.stores.postgres.errors import meaning
from projections.stores.postgres.text import NAME
from projections.stores.store import Target

FIND: Final = sql.SQL("SELECT {key} FROM {table} WHERE {column} <= %s LIMIT %s")
# it waits for no loader, so that it is in no deadlock; what a loader writes now is found the next time
REMOVE: Final = sql.SQL("""
DELETE FROM {table} WHERE {key} IN (SELECT {key} FROM {table} WHERE {key} = ANY(%s) FOR UPDATE SKIP LOCKED)
""")


class PostgresExpiredRows:
    """See ExpiredRows."""

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings

    def find(self, target: Target, last_day: date, limit: int) -> list[str]:
        with self._connected(target) as connection:
            found = connection.execute(self._sql(FIND, target), [last_day, limit])
            return [key for (key,) in found]

    def remove(self, target: Target, keys: Sequence[str]) -> int:
        with self._connected(target) as connection:
            return connection.execute(self._sql(REMOVE, target), [list(map(table_key, keys))]).rowcount

    def _sql(self, statement: sql.SQL, target: Target) -> sql.Composed:
        view = target.view
        return statement.format(
            table=sql.Identifier(self._settings.environment, table_name(*target.id)),
            key=sql.Identifier(view.key_name),
            column=sql.Identifier("" if view.expiry is None else view.expiry.column),
        )

    @contextmanager
    def _connected(self, target: Target) -> Iterator[psycopg.Connection[Any]]:
        try:
            with closing(connect(self._settings.postgres, autocommit=True)) as connection:
                yield connection
        except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as error:
            raise GenerationMissing(*target.id) from error
        except psycopg.Error as error:
            raise meaning(error) or StoreUnavailable(NAME, str(error).strip()) from error
