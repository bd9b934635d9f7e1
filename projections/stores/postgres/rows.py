"""The rows of a generation's table, as states; single ones are replaced if their version has not changed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime
from typing import Any, Final

import psycopg
from psycopg import sql

from headwater.projections.errors import GenerationMissing
from headwater.projections.limits import CHUNK_ROWS
from headwater.projections.settings import StoreSettings
from headwater.projections.stores import ledgers
from headwater.projections.stores.clear_columns import ClearColumns
from headwater.projections.stores.names import patch_partition, table_key, table_name
from headwater.projections.stores.postgres import ddl
from headwater.projections.stores.postgres.connection import connect
from headwater.projections.stores.postgres.errors import meaning
from headwater.projections.stores.postgres.row_json import rows_json
from headwater.projections.stores.postgres.text import NAME, without_nul
from headwater.projections.stores.rows import Rows, Size, StoredRow, covers, without_empty
from headwater.projections.stores.store import Ledger, Target
from headwater.projections.table.decimals import decimal_text
from headwater.projections.table.monoids import State
from headwater.projections.table.patch import places_from_json
from headwater.projections.table.types import ColumnType

# the planner's estimate, from the last ANALYZE, which a rebuild and autovacuum run; -1 if there was none
SIZE: Final = (
    "SELECT reltuples::bigint, pg_relation_size(oid), pg_total_relation_size(oid) "
    "FROM pg_class WHERE oid = to_regclass(%s)"
)
COUNT: Final = sql.SQL("SELECT count(*) FROM {}")
COUNTED_BYTES: Final = 8 * 2**20
"""A table of up to this size is counted, in milliseconds: autovacuum may never look at it."""
# every update of a row makes a new version of it, also one that changes no value
VERSION: Final = sql.SQL("SELECT xmin::text, ctid::text FROM {} WHERE {} = %s")
DELETE: Final = sql.SQL("DELETE FROM {} WHERE {} = %s")
FIND: Final = sql.SQL("SELECT {key} FROM {table} WHERE {column} <= %s LIMIT %s")
# it waits for no loader, so that it is in no deadlock; what a loader writes now is found the next time
REMOVE: Final = sql.SQL("""
DELETE FROM {table} WHERE {key} IN (SELECT {key} FROM {table} WHERE {key} = ANY(%s) FOR UPDATE SKIP LOCKED)
""")


class PostgresRows:
    """See ExpiredRows. The version of a row is PostgreSQL's own (`xmin` and `ctid`)."""

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings

    def rows(self, target: Target) -> Rows:
        # a cursor of the server needs a transaction
        with self._transaction(target) as connection, connection.cursor("rows") as cursor:
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

    def read(self, target: Target, key: str) -> StoredRow:
        # rows and ledgers are written together, so one snapshot of both is exact
        with self._transaction(target, "REPEATABLE READ") as connection:
            ledger = self._ledger(connection, target, key, ddl.READ_LEDGERS)
            version = self._version(connection, target, key)
            found = connection.execute(select_rows(self._settings.environment, target), [[table_key(key)]])
            row = found.fetchone()
        return StoredRow(None if row is None else row_of(target, row)[1], ledger.applied, version)

    def as_read(self, state: State) -> State:
        return without_empty(without_nul(state))

    def replace(self, target: Target, key: str, before: StoredRow, state: State | None) -> bool:
        stored = table_key(key)
        with self._transaction(target) as connection:
            connection.execute("SET LOCAL synchronous_commit = on")
            # as loaders do: with it, none of them has read the row and not written it yet
            ledger = self._ledger(connection, target, key, ddl.LOCK_LEDGERS)
            if not covers(ledger, before) or self._version(connection, target, key) != before.version:
                return False
            if state is None:
                connection.execute(DELETE.format(self._table(target), sql.Identifier(target.view.key_name)), [stored])
            else:
                clear = ClearColumns.of(target.view, "postgres", self._settings.environment)
                with ledgers.loadable(NAME):
                    document = rows_json(target, {stored: without_nul(state)}, clear)
                upsert = sql.SQL(ddl.upsert(self._settings.environment, target))
                connection.execute(upsert, [document])
        return True

    def find(self, target: Target, last_day: date, limit: int) -> list[str]:
        with self._connected(target) as connection:
            found = connection.execute(self._sql(FIND, target), [last_day, limit])
            return [key for (key,) in found]

    def remove(self, target: Target, keys: Sequence[str]) -> int:
        with self._connected(target) as connection:
            return connection.execute(self._sql(REMOVE, target), [list(map(table_key, keys))]).rowcount

    def _ledger(self, connection: psycopg.Connection[Any], target: Target, key: str, query: str) -> Ledger:
        partition = patch_partition(target.view, target.tag, key, self._settings.patch_partitions)
        name, number = target.id
        last = partition if query == ddl.LOCK_LEDGERS else self._table(target).as_string(connection)
        values = ([name], [number], [last])
        text = sql.SQL(query).format(schema=sql.Identifier(self._settings.environment))
        for row in connection.execute(text, values):
            found, next_offset, applied = row[-3:]
            if found == partition:
                return Ledger(next_offset, places_from_json(applied))
        raise GenerationMissing(*target.id)

    def _version(self, connection: psycopg.Connection[Any], target: Target, key: str) -> Any:
        query = VERSION.format(self._table(target), sql.Identifier(target.view.key_name))
        return connection.execute(query, [table_key(key)]).fetchone()

    def _table(self, target: Target) -> sql.Identifier:
        return sql.Identifier(self._settings.environment, table_name(*target.id))

    def _sql(self, statement: sql.SQL, target: Target) -> sql.Composed:
        view = target.view
        return statement.format(
            table=self._table(target),
            key=sql.Identifier(view.key_name),
            column=sql.Identifier("" if view.expiry is None else view.expiry.column),
        )

    @contextmanager
    def _transaction(self, target: Target, isolation: str = "READ COMMITTED") -> Iterator[psycopg.Connection[Any]]:
        with self._connected(target) as connection, connection.transaction():
            connection.execute(sql.SQL("SET TRANSACTION ISOLATION LEVEL " + isolation))
            yield connection

    @contextmanager
    def _connected(self, target: Target) -> Iterator[psycopg.Connection[Any]]:
        """A connection that raises Headwater's errors."""
        options = f"-c timezone=UTC -c search_path={self._settings.environment}"
        try:
            with closing(connect(self._settings.postgres, autocommit=True, options=options)) as connection:
                yield connection
        except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as error:
            raise GenerationMissing(*target.id) from error
        except psycopg.Error as error:
            if (problem := meaning(error)) is None:
                raise
            raise problem from error


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
