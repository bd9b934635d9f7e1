"""The rows of a generation's table, as states."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Any, Final

import psycopg
from psycopg import sql

from projections.errors import GenerationMissing, StoreUnavailable
from projections.limits import CHUNK_ROWS
from projections.settings import StoreSettings
from projections.stores.names import table_key, table_name
from projections.stores.postgres.connection import connect
from projections.stores.postgres.text import NAME
from projections.stores.row_reader import Rows, Size, without_empty
from projections.stores.store import Target
from projections.table.decimals import decimal_text
from projections.table.monoids import State
from projections.table.types import ColumnType

# the planner's estimate, from the last ANALYZE, which a rebuild and autovacuum run; -1 if there was none
SIZE: Final = (
    "SELECT reltuples::bigint, pg_relation_size(oid), pg_total_relation_size(oid) "
    "FROM pg_class WHERE oid = to_regclass(%s)"
)
COUNT: Final = sql.SQL("SELECT count(*) FROM {}")
COUNTED_BYTES: Final = 8 * 2**20
"""A table of up to this size is counted, in milliseconds: autovacuum may never look at it."""


class PostgresRows:
    """See RowReader."""

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings

    def rows(self, target: Target) -> Rows:
        with self._connected(target) as connection, connection.cursor("rows") as cursor:
            cursor.itersize = CHUNK_ROWS
            cursor.execute(_select(self._settings.environment, target, "true"))
            yield from (row_of(target, row) for row in cursor)

    def rows_of(self, target: Target, keys: Sequence[str]) -> dict[str, State]:
        stored = [table_key(key) for key in keys]
        with self._connected(target) as connection:
            found = connection.execute(select_rows(self._settings.environment, target), [stored])
            return dict(row_of(target, row) for row in found)

    def size(self, target: Target) -> Size:
        table = sql.Identifier(self._settings.environment, table_name(*target.id))
        with self._connected(target) as connection:
            row = connection.execute(SIZE, [table.as_string(connection)]).fetchone()
            if row is None:
                raise GenerationMissing(*target.id)
            rows, table_bytes, size_bytes = row
            if table_bytes <= COUNTED_BYTES:
                (rows,) = connection.execute(COUNT.format(table)).fetchone() or (None,)
        return Size(rows if rows is not None and rows >= 0 else None, size_bytes)

    @contextmanager
    def _connected(self, target: Target) -> Iterator[psycopg.Connection[Any]]:
        """A connection that raises Headwater's errors."""
        try:
            with closing(connect(self._settings.postgres, options="-c timezone=UTC")) as connection:
                yield connection
        except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as error:
            raise GenerationMissing(*target.id) from error
        except psycopg.OperationalError as error:
            raise StoreUnavailable(NAME, str(error).strip()) from error


def select_rows(environment: str, target: Target) -> sql.SQL:
    """The query for the rows with given keys; its parameter is their list."""
    return _select(environment, target, f'"{target.view.key_name}" = ANY(%s)')


def _select(environment: str, target: Target, condition: str) -> sql.SQL:
    """A query made of checked names: loaders make it for each batch, and from parts it takes five times as long."""
    columns = (target.view.key_name, *(field.name for field in target.view.layout.fields))
    listed = ", ".join(f'"{name}"' for name in columns)
    return sql.SQL(f'SELECT {listed} FROM "{environment}"."{table_name(*target.id)}" WHERE {condition}')  # noqa: S608


def row_of(target: Target, row: Sequence[Any]) -> tuple[str, State]:
    """The key and state in a row of these queries."""
    values = zip(target.view.layout.fields, row[1:], strict=True)
    return row[0], without_empty(
        {field.name: _plain(value, field.type) for field, value in values if value is not None}
    )


def _plain(value: Any, kind: ColumnType) -> Any:
    """A value of PostgreSQL in the form of the other stores."""
    match kind:
        case ColumnType.COUNTS | ColumnType.ENTRIES:
            return json.loads(value)
        case ColumnType.POINT:
            longitude, latitude = value.strip("()").split(",")
            return {"lat": float(latitude), "lon": float(longitude)}
        case ColumnType.DATE | ColumnType.UUID:
            return str(value)
        case _ if kind.is_decimal:
            return decimal_text(value, kind.places)
        case _ if isinstance(value, datetime):
            return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case _:
            return value
